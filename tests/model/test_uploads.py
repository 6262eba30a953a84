"""Uploads: private, capped, under harmless names, and gone when nobody holds them."""

import io
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.locate import CheckpointError, digest, locate
from model.uploads import MAX_FILES, keep, remove, upload_folder

CAP = 1 << 20


def sent(*names: str, content: bytes = b"content of ") -> list[tuple[str, BinaryIO]]:
    return [(name, io.BytesIO(content + name.encode(errors="replace"))) for name in names]


def kept_folders() -> set[Path]:
    probe = keep(sent("probe.pt"), limit_bytes=CAP)
    base = probe.folder.parent
    remove(probe.name)
    return set(base.iterdir())


def test_a_folder_is_kept_without_its_top_and_found_by_its_name() -> None:
    upload = keep(sent("my run/config.json", "my run/ckpt.pt"), limit_bytes=CAP)
    assert upload.name.startswith("upload:my-run@")
    assert len(upload.name.rpartition("@")[2]) == 12
    assert sorted(path.name for path in upload.folder.iterdir()) == ["ckpt.pt", "config.json"]
    assert upload.size == sum(path.stat().st_size for path in upload.folder.iterdir())
    located = locate(upload.name)
    assert (located.name, located.weights) == (upload.name, upload.folder / "ckpt.pt")
    assert len(digest(located)) == 64
    remove(upload.name)
    assert not upload.folder.exists()
    with pytest.raises(CheckpointError, match=r"'my-run' .* is not here any more"):
        locate(upload.name)
    remove(upload.name)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_nobody_else_can_read_an_upload() -> None:
    upload = keep(sent("ckpt.pt"), limit_bytes=CAP)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (upload.folder, upload.folder.parent)}
    assert modes == {0o700}
    assert stat.S_IMODE((upload.folder / "ckpt.pt").stat().st_mode) == 0o600
    remove(upload.name)


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (["a/x.json", "a/y.pt"], "a"),
        (["weights v2 (best).pt"], "weights-v2-best"),
        (["a/x.json", "b/y.pt"], "x"),
        (["é/x.pt"], "checkpoint"),
        (["@/x.pt"], "checkpoint"),
        ([f"{'n' * 99}.pt"], "n" * 40),
        (["a/b/x.pt"], "a"),
    ],
)
def test_labels_are_harmless(names: list[str], label: str) -> None:
    upload = keep(sent(*names), limit_bytes=CAP)
    remove(upload.name)
    assert upload.name.removeprefix("upload:").rpartition("@")[0] == label


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["../x.pt"], "expected a plain file name"),
        (["a/../../x.pt"], "expected a plain file name"),
        (["/etc/x.pt"], "expected a plain file name"),
        (["a\\x.pt"], "expected a plain file name"),
        (["x\n.pt"], "expected a plain file name"),
        (["x\0.pt"], "expected a plain file name"),
        (["\u202etp.x"], "expected a plain file name"),
        ([".."], "expected a plain file name"),
        (["."], "expected a plain file name"),
        ([""], "expected a plain file name"),
        (["n" * 300], "expected a plain file name"),
        (["a/x.pt", "b/x.pt"], "two files named 'x.pt'"),
        (["X.pt", "x.pt"], "two files named 'X.pt'"),
        ([], "holds no file"),
        ([f"{n}.pt" for n in range(MAX_FILES + 1)], f"at most {MAX_FILES} files"),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused_and_nothing_is_left(names: list[str], sentence: str) -> None:
    before = kept_folders()
    with pytest.raises(CheckpointError, match=sentence) as caught:
        keep(sent("fine.pt", *names) if len(names) == 1 else sent(*names), limit_bytes=CAP)
    assert "\n" not in str(caught.value)
    assert kept_folders() == before


@given(st.lists(st.text(max_size=12) | st.sampled_from(["a/b", "../..", "c:d", "~", "a//b"]), min_size=1, max_size=4))
def test_no_name_leads_out_of_the_folder(names: list[str]) -> None:
    try:
        upload = keep(sent(*names), limit_bytes=CAP)
    except CheckpointError:
        return
    assert sorted(path.stat().st_size for path in upload.folder.iterdir() if path.is_file())
    assert len(list(upload.folder.iterdir())) == len(names)
    remove(upload.name)


def test_past_the_cap_everything_is_removed() -> None:
    before = kept_folders()
    files = sent("a.pt", "b.pt", content=bytes(600 << 10))
    with pytest.raises(CheckpointError, match=r"larger than this server's cap of 1 MiB; put the files on the server"):
        keep(files, limit_bytes=CAP)
    assert kept_folders() == before


def test_a_stream_that_breaks_leaves_nothing() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    before = kept_folders()
    with pytest.raises(CheckpointError, match=r"b\.pt could not be kept on the server \(Input/output error\)"):
        keep([*sent("a.pt"), ("b.pt", Broken())], limit_bytes=CAP)
    assert kept_folders() == before


def test_two_sessions_with_the_same_files_do_not_disturb_each_other() -> None:
    first, second = (keep(sent("a.pt"), limit_bytes=CAP) for _ in range(2))
    assert first == second
    other = keep(sent("a.pt", content=b"other "), limit_bytes=CAP)
    assert other.name != first.name
    remove(first.name)
    assert (second.folder / "a.pt").exists()
    remove(second.name)
    assert not second.folder.exists()
    assert upload_folder(other.name) == other.folder
    remove(other.name)


def test_the_same_files_under_two_labels_are_two_uploads() -> None:
    a, b = (keep([(f"{top}/x.pt", io.BytesIO(b"same"))], limit_bytes=CAP) for top in "ab")
    remove(a.name)
    assert a.name.rpartition("@")[2] == b.name.rpartition("@")[2]
    assert b.folder.exists()
    remove(b.name)


def test_a_stream_that_was_read_before_is_kept_whole() -> None:
    file = io.BytesIO(b"all of it")
    file.read()
    upload = keep([("x.pt", file)], limit_bytes=CAP)
    assert (upload.folder / "x.pt").read_bytes() == b"all of it"
    remove(upload.name)


LEAVE = """
import io, os, sys
from model.uploads import keep
folder = keep([("x.pt", io.BytesIO(b"x"))], limit_bytes=9).folder
child = os.fork()
if child == 0:
    sys.exit()  # runs the exit handlers that it inherited
os.waitpid(child, 0)
print(folder, folder.exists())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_uploads_go_when_the_process_ends_and_not_when_a_child_does() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", LEAVE], cwd=root, capture_output=True, text=True, check=True, timeout=60)
    folder, there = done.stdout.split()
    assert there == "True"
    assert not Path(folder).exists()
    assert not Path(folder).parent.exists()
