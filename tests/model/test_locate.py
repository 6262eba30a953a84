"""Which file of a folder is the checkpoint, which paths a server opens, and what the digest covers."""

import hashlib
import io
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import files, uploads
from model.files import MAX_CONFIG, ROOTS, read_json
from model.locate import CheckpointError, canonical, check_allowed, demo_names, digest, file_digest, locate, server_path


def folder_of(path: Path, *names: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"{}" if name.endswith(".json") else name.encode())
    return path


def index_of(folder: Path, name: str, *shards: str) -> None:
    (folder / name).write_text(json.dumps({"weight_map": {f"t{n}": shard for n, shard in enumerate(shards)}}))


def closed_by_path(name: str) -> None:
    check_allowed(Path(name))


STANDING = ["model.safetensors", "only.safetensors", "pytorch_model.bin", "ckpt.pt", "model.pt", "some.pth"]


@pytest.mark.parametrize("first", range(len(STANDING)))
def test_candidates_are_taken_in_a_fixed_order(tmp_path: Path, first: int) -> None:
    folder = folder_of(tmp_path / "x", *STANDING[first:], "optimizer.pt", "training_args.bin", "rng_state_0.pth")
    assert locate(str(folder)).weights.name == STANDING[first]


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_an_index_comes_before_one_file_and_leads_to_its_shards(tmp_path: Path, kind: str) -> None:
    ending = kind.split(".")[1]
    folder = folder_of(tmp_path / "x", f"a.{ending}", f"b.{ending}", kind)
    index_of(folder, f"{kind}.index.json", f"a.{ending}", f"b.{ending}", f"a.{ending}")
    for name in (folder, folder / f"{kind}.index.json"):
        located = locate(str(name))
        assert located.weights.name == f"{kind}.index.json"
        assert [part.name for part in located.parts] == [f"a.{ending}", f"b.{ending}"]
        assert set(located.parts) <= set(located.files)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a.safetensors", "b.safetensors"], r"holds 2 files .* \(a.safetensors, b.safetensors\); give the path of one file"),
        (["a.pt", "b.pth", "c.bin"], r"holds 3 files .* \(a.pt, b.pth, c.bin\); give the path of one file"),
        (["config.json", "optimizer.pt"], "holds no weights"),
    ],
)
def test_a_folder_that_leaves_open_what_is_meant_is_refused_with_a_list(
    tmp_path: Path, names: list[str], sentence: str
) -> None:
    folder = folder_of(tmp_path / "x", *names)
    with pytest.raises(CheckpointError, match=sentence):
        locate(str(folder))


@pytest.mark.parametrize("names", [["W.PT"], ["Model.SafeTensors", "x.Bin"], ["CKPT.pt", "b.pt"], ["Optimizer.PT", "a.pth"]])
def test_capital_letters_make_no_difference(tmp_path: Path, names: list[str]) -> None:
    wanted = names[1] if names[0].startswith("Opt") else names[0]
    assert locate(str(folder_of(tmp_path / "x", *names))).weights.name == wanted


def test_a_run_in_the_same_folder_is_never_taken_for_weights(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", "ckpt.pt", "prompt-0000.safetensors", "prompt-0001.safetensors", "run.json")
    located = locate(str(folder))
    assert (located.weights.name, located.notes) == ("ckpt.pt", ())
    (folder / "ckpt.pt").unlink()
    for name in (folder, folder / "prompt-0000.safetensors"):
        with pytest.raises(CheckpointError, match=r"run.* no weights"):
            locate(str(name))
    (folder / "run.json").unlink()  # then it is a file of that name and nothing else is known of it
    (folder / "prompt-0001.safetensors").unlink()
    assert locate(str(folder)).weights.name == "prompt-0000.safetensors"


@pytest.mark.parametrize(
    ("taken", "others", "said"),
    [
        ("model.safetensors", ["pytorch_model.bin"], ": pytorch_model.bin."),
        ("ckpt.pt", ["a.pt", "b.pt", "c.pth", "d.bin", "optimizer.pt"], ": a.pt, b.pt, c.pth and 1 more."),
        ("model.safetensors", ["config.json", "tokenizer.json", "training_args.bin"], None),
    ],
)
def test_weights_that_are_not_read_are_named_in_a_note(tmp_path: Path, taken: str, others: list[str], said: str | None) -> None:
    folder = folder_of(tmp_path / "x", taken, *others)
    located = locate(str(folder))
    assert located.weights.name == taken
    assert located.notes == (() if said is None else (f"The weights are those of {taken}; beside it, not read{said}",))
    assert locate(str(folder / taken)).notes == ()


def test_shards_and_their_index_need_no_note(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", "a.safetensors", "b.safetensors", "old.pt")
    index_of(folder, "model.safetensors.index.json", "a.safetensors", "b.safetensors")
    assert locate(str(folder)).notes == ("The weights are those of model.safetensors.index.json; beside it, not read: old.pt.",)


@pytest.mark.parametrize(
    ("below", "named"),
    [
        (["step-1/ckpt.pt", "step-2/model.safetensors", "logs/x.txt"], "step-1, step-2."),
        (["snapshots/abc/model.safetensors", "refs/main", "blobs/1"], "snapshots/abc."),
        (["models--a--b/snapshots/abc/w.bin"], "models--a--b/snapshots/abc."),
        ([f"step-{n}/ckpt.pt" for n in range(9)], "step-0, step-1, step-2, step-3 and more."),
        (["a/b/c/d/ckpt.pt", ".git/ckpt.pt", "run/run.json", "run/prompt-0000.safetensors"], None),
    ],
)
def test_a_folder_of_checkpoints_names_those_that_one_could_give(tmp_path: Path, below: list[str], named: str | None) -> None:
    folder = folder_of(tmp_path / "x", "config.json", *below)
    (folder / "link").symlink_to(folder_of(tmp_path / "elsewhere", "ckpt.pt"))
    with pytest.raises(CheckpointError) as caught:
        locate(str(folder))
    wanted = "holds no weights (model" if named is None else f"give the path of a folder in it that does: {named}"
    assert wanted in str(caught.value)
    if named is not None:
        assert locate(str(folder / named.split(",")[0].removesuffix("."))).weights.is_file()


def test_a_folder_is_called_by_its_name_however_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder_of(tmp_path / "mine" / "sub").parent)
    for given_as, name in ((".", "mine"), ("sub/..", "mine"), ("sub", "sub")):
        with pytest.raises(CheckpointError, match=f"The folder '{name}' holds no weights"):
            locate(given_as)


def test_an_upload_without_weights_is_called_by_its_label() -> None:
    upload = uploads.keep([("my-model/config.json", io.BytesIO(b"{}"))], limit_bytes=100)
    try:
        with pytest.raises(CheckpointError, match="The upload 'my-model' holds no weights"):
            locate(upload.name)
    finally:
        uploads.remove(upload.name)


def test_one_of_several_is_taken_by_its_path(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", "a.pt", "b.pt", "config.json", "meta.pkl")
    located = locate(str(folder / "b.pt"))
    assert (located.weights, located.parts) == (folder / "b.pt", (folder / "b.pt",))
    assert (located.config, located.tokenizer) == (folder / "config.json", folder / "meta.pkl")
    with pytest.raises(CheckpointError, match=r"config\.json holds no weights"):
        locate(str(folder / "config.json"))


def test_missing_and_empty_shards_are_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", "a.bin")
    index_of(folder, "pytorch_model.bin.index.json", "a.bin", "b.bin")
    with pytest.raises(CheckpointError, match=r"names 2 shards and 1 of them are not there \(b\.bin\)"):
        locate(str(folder))
    (folder / "b.bin").touch()
    with pytest.raises(CheckpointError, match=r"b\.bin is empty"):
        locate(str(folder))


def test_every_file_that_decides_the_result_is_in_the_digest(tmp_path: Path) -> None:
    names = ["config.json", "a.bin", "b.bin", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
    folder = folder_of(tmp_path / "x", *names)
    index_of(folder, "pytorch_model.bin.index.json", "a.bin", "b.bin")
    seen = {digest(locate(str(folder)))}
    for name in [*names, "pytorch_model.bin.index.json"]:
        with (folder / name).open("ab") as file:
            file.write(b" ")
        seen.add(digest(locate(str(folder))))
    assert len(seen) == len(names) + 2


def test_a_file_swapped_under_the_same_time_and_size_has_a_new_digest(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"one")
    other.write_bytes(b"two")
    before = file_digest(path)
    stat = path.stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)
    assert file_digest(path) != before


def test_hashing_reports_a_rising_fraction_that_ends_at_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", "config.json")
    (folder / "ckpt.pt").write_bytes(bytes(9 << 20))
    told: list[float] = []
    digest(locate(str(folder)), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) >= 4


def test_old_digests_are_forgotten_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_KEPT_DIGESTS", 2)
    names = [folder_of(tmp_path, str(n)) / str(n) for n in range(5)]
    assert [file_digest(path) for path in names] == [hashlib.sha256(path.read_bytes()).hexdigest() for path in names]
    assert file_digest(names[0]) == hashlib.sha256(b"0").hexdigest()


def test_an_unreadable_name_is_refused_in_one_sentence() -> None:
    for name in ("a\0b", "x" * 5000, "~nobody-of-this-name/x", "/dev/null", "/dev/zero"):
        with pytest.raises(CheckpointError) as caught:
            locate(name)
        assert "\n" not in str(caught.value)


def test_only_the_demo_and_paths_inside_the_roots_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = folder_of(tmp_path / "one" / "a", "ckpt.pt"), folder_of(tmp_path / "two", "ckpt.pt")
    closed = folder_of(tmp_path / "three", "ckpt.pt")
    (tmp_path / "one" / "out").symlink_to(closed)
    monkeypatch.setenv(ROOTS, f"{tmp_path / 'one'}{os.pathsep}{second}")
    for name in ("demo", str(first), str(first / "ckpt.pt"), str(second)):
        locate(name)
    here, gone = closed, tmp_path / "nothing"
    sentences: set[str] = set()
    for name in (
        here,
        gone,
        tmp_path / "one" / "out",
        tmp_path / "one" / ".." / "three",
        Path("/etc/passwd"),
        tmp_path / "two2",
    ):
        for door in (locate, server_path, closed_by_path):
            with pytest.raises(CheckpointError, match="is outside the folders that this server opens") as caught:
                door(str(name))
            sentences.add(str(caught.value).replace(str(name), "PATH"))
    assert len(sentences) == 1  # the same words whether the file is there or not
    monkeypatch.setenv(ROOTS, "")
    assert locate("demo").name == demo_names()[-1]
    with pytest.raises(CheckpointError, match="outside the folders"):
        locate(str(first))


def test_without_the_setting_every_path_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOTS, raising=False)
    assert server_path(f" {tmp_path} ") == tmp_path
    assert server_path("~") == Path.home()


def test_the_links_of_the_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    repo = tmp_path / "models--a--b"
    folder = folder_of(repo / "snapshots" / "abc", "special_tokens_map.json")
    for name in ("config.json", "model.safetensors"):
        folder_of(repo / "blobs", f"hash-of-{name}")
        (folder / name).symlink_to(Path("../../blobs") / f"hash-of-{name}")
    located = locate(str(folder))
    assert [path.name for path in located.files] == ["config.json", "model.safetensors", "special_tokens_map.json"]
    shutil.move(repo / "blobs", tmp_path / "blobs")
    (repo / "blobs").symlink_to(tmp_path / "blobs")
    with pytest.raises(CheckpointError, match="leads out of its folder"):
        locate(str(folder))


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", "step-9.pt")
    (folder / "ckpt.pt").symlink_to("step-9.pt")
    assert locate(str(folder)).weights.name == "ckpt.pt"


def test_an_upload_that_is_gone_is_named_with_its_digest() -> None:
    with pytest.raises(CheckpointError, match=r"The upload 'my-model' \(digest 0123456789ab\) is not here any more; upload it"):
        locate("upload:my-model@0123456789ab")
    assert canonical("upload:x@1") == "upload:x@1"


@given(
    st.binary(max_size=200)
    | st.text(max_size=50).map(str.encode)
    | st.sampled_from([b"[" * 9999, b'{"a":1e999}', b"\xff\xfe{}"])
)
def test_a_config_of_any_bytes_is_a_mapping_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_bytes(content)
    with suppress(CheckpointError):
        assert isinstance(read_json(path, MAX_CONFIG), dict)
