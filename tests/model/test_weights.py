"""The same tensors come out of every format that people have on disk, under the same names."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (safetensors and torch's list of allowed names have no types)

import argparse
import io
import json
import pickle
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import torch as safetensors_torch
from torch import Tensor

from model.locate import CheckpointError, locate
from model.weights import Contents, TensorHeader, bare, headers, tensors

save_file: Callable[..., None] = safetensors_torch.save_file
A, B = torch.arange(6.0).reshape(2, 3), torch.arange(4, dtype=torch.bfloat16)
STATE = {"a.weight": A, "b": B}
ADAM = {"state": {0: {"exp_avg": torch.ones(9)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}


def opened(path: Path) -> tuple[Contents, dict[str, Tensor]]:
    """Headers and tensors, which must agree."""
    located = locate(str(path))
    contents, found = headers(located), tensors(located)
    of_tensors = {name: TensorHeader(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in found.items()}
    assert contents.tensors == of_tensors
    return contents, found


def equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def sharded(folder: Path, ending: str, save: Callable[..., None], **weight_map: str) -> None:
    save({"a.weight": A}, folder / f"one.{ending}")
    save({"b": B}, folder / f"two.{ending}")
    name = "model.safetensors" if ending == "safetensors" else "pytorch_model.bin"
    weight_map = weight_map or {"a.weight": f"one.{ending}", "b": f"two.{ending}"}
    (folder / f"{name}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


FORMATS: dict[str, Callable[[Path], None]] = {
    "model.safetensors": lambda folder: save_file(STATE, folder / "model.safetensors"),
    "another name": lambda folder: save_file(STATE, folder / "weights.safetensors"),
    "safetensors under a pickle's name": lambda folder: save_file(STATE, folder / "ckpt.pt"),
    "shards": lambda folder: sharded(folder, "safetensors", save_file),
    "shards, pickled": lambda folder: sharded(folder, "bin", torch.save),
    "older format": lambda folder: torch.save(STATE, folder / "ckpt.pt", _use_new_zipfile_serialization=False),
    "parameters": lambda folder: torch.save({n: torch.nn.Parameter(t) for n, t in STATE.items()}, folder / "ckpt.pt"),
    **{
        name: lambda folder, name=name: torch.save(STATE, folder / name)
        for name in ("pytorch_model.bin", "x.pth", "x.ckpt", "x.bin")
    },
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_tensors(tmp_path: Path, form: str) -> None:
    FORMATS[form](tmp_path)
    _, found = opened(tmp_path)
    assert equal(found, STATE)
    assert all(tensor.device.type == "cpu" for tensor in found.values())


@pytest.mark.parametrize(
    "content",
    [
        {"model": STATE, "optimizer": ADAM},
        {"state_dict": STATE, "best": torch.tensor(1.0)},
        {"module": STATE, "lr_scheduler": {"last": [torch.ones(1)]}},
        {"model_state_dict": STATE, "model": {"n_layer": 3}},
        {"model": {"state_dict": {"module": STATE}, "ema": {"a": torch.ones(1)}}},
        STATE | {"epoch": 3, "optimizer": ADAM},
        {"net": STATE, "optimizer": ADAM, "losses": torch.ones(5), "rng_state": torch.get_rng_state()},
        {"epoch": 3, "params": {"best": STATE}, "optimizer_state_dict": {"state": {"a.weight": {"exp_avg": A}}}},
        {"checkpoint": {"state": {"model": STATE, "ema": {"a.weight": A + 1}}}},
        {"student": {"model": STATE}, "teacher": {"ema": {"a.weight": A + 1}}},
        {"one": STATE, "the same": STATE},
        {"best": STATE | {"extra": {"mask": torch.ones(2)}}},
    ],
    ids=lambda content: " ".join(content)[:30],
)
def test_weights_are_found_where_trainers_put_them_and_nothing_else_is_mixed_in(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    torch.save(content, tmp_path / "ckpt.pt")
    contents, found = opened(tmp_path)
    assert equal(found, STATE)
    assert not {"optimizer", "best", "lr_scheduler"} & contents.config.keys()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            {"encoder": STATE, "ema": {"a": A}, "epoch": 3},
            r"holds 2 dicts of tensors \(encoder \(2\), ema \(1\)\) and none of them is called 'model'; save the one",
        ),
        ({"a": {"model": STATE}, "b": {"model": {"a": A}}}, r"\(a\.model \(2\), b\.model \(1\)\)"),
        ({f"net{n}": {"a": A} for n in range(9)}, r"holds 9 dicts of tensors \(net0 \(1\), .*, net3 \(1\) and more\)"),
        ({"epoch": 3, "model": {"a": [1]}}, r"holds no tensors .*; its keys are epoch \(int\), model \(dict\)\."),
        ({f"k{n}": n for n in range(9)}, r"its keys are k0 \(int\), .*k3 \(int\) and more\."),
        ({"optimizer": {"momentum": {"a.weight": A}}}, "holds no tensors"),
    ],
)
def test_weights_that_cannot_be_told_are_refused_with_what_is_there(tmp_path: Path, content: Any, sentence: str) -> None:
    torch.save(content, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match=rf"ckpt\.pt .*{sentence}") as caught:
        headers(locate(str(tmp_path)))
    assert len(str(caught.value)) < 400


def test_dicts_that_hold_each_other_come_to_an_end(tmp_path: Path) -> None:
    first: dict[str, Any] = {}
    layer = [first]
    for _ in range(8):
        layer = [{f"k{n}": inner for n, inner in enumerate(layer * 10)} for _ in range(10)]
    first["around"] = layer[0]
    torch.save({"all": {f"k{n}": inner for n, inner in enumerate(layer)}}, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match="holds no tensors"):
        headers(locate(str(tmp_path)))


def test_settings_come_from_all_dicts_on_the_way_and_the_nearest_win(tmp_path: Path) -> None:
    inner = {"model": STATE, "model_args": {"n": 2}, "step": 5}
    torch.save({"step": 4, "host": "x", "checkpoint": {"state": inner, "seed": 1}}, tmp_path / "ckpt.pt")
    contents, found = opened(tmp_path)
    assert contents.config == {"step": 5, "host": "x", "seed": 1, "model_args": {"n": 2}}
    assert equal(found, STATE)


def test_settings_beside_the_weights_are_config_and_config_json_wins(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    many = [[0] * 1000] * 1000
    args = {"n_layer": 2, "loop_groups": [[1], [2]]}
    content = {"model": STATE, "model_args": args, "config": {"a": 1}, "iter_num": 7, "endless": endless, "many": many}
    torch.save(content, tmp_path / "ckpt.pt")
    (tmp_path / "config.json").write_text(json.dumps({"iter_num": 8}))
    assert opened(tmp_path)[0].config == {"model_args": args, "config": {"a": 1}, "iter_num": 8}


def allowed_names() -> set[object]:
    """What torch would build; it lists them in any order."""
    names: list[object] = torch.serialization.get_safe_globals()  # pyright: ignore[reportAssignmentType]
    return set(names)


NUMBERS = [np.float64(0.1), np.float32(0.5), np.float16(2), np.int64(-3), np.uint8(200), np.bool_(True), np.complex64(1 + 2j)]


@pytest.mark.parametrize("number", [*NUMBERS, np.array(1.5, dtype=">f8")[()]], ids=lambda number: str(number.dtype))
def test_numpy_scalars_are_plain_numbers(tmp_path: Path, number: Any) -> None:
    before = allowed_names()
    torch.save({"model": STATE, "best_val_loss": number}, tmp_path / "ckpt.pt")
    contents, found = opened(tmp_path)
    assert contents.config == {"best_val_loss": number.item()}
    assert type(contents.config["best_val_loss"]) in (float, int, bool, complex)
    assert equal(found, STATE)
    assert allowed_names() == before


@pytest.mark.parametrize("odd", [np.str_("x"), np.datetime64("2020-01-01"), np.void(b"xy"), np.longdouble(1.5)])
def test_numpy_scalars_that_are_no_plain_numbers_are_refused(tmp_path: Path, odd: Any) -> None:
    torch.save({"model": STATE, "odd": odd}, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match=r"ckpt\.pt cannot be loaded safely: it holds a numpy value of kind '"):
        headers(locate(str(tmp_path)))


ARRAYS = [np.arange(3), np.ones((2, 2), dtype=">f4").T, np.zeros(0, dtype=bool), np.array(1.5)]


@pytest.mark.parametrize(
    "beside", [np.random.get_state(), {"losses": [ARRAYS]}, *ARRAYS], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("zipped", [True, False])
def test_numpy_arrays_beside_the_weights_are_no_obstacle_and_no_setting(tmp_path: Path, beside: Any, zipped: bool) -> None:
    content = {"model": STATE, "numpy_rng_state": beside, "model_args": {"n": 1}}
    torch.save(content, tmp_path / "ckpt.pt", _use_new_zipfile_serialization=zipped)
    contents, found = opened(tmp_path)
    assert contents.config == {"model_args": {"n": 1}}
    assert equal(found, STATE)


def test_only_what_is_not_read_is_said_to_be_imported_and_the_line_that_saves_again_is_given(tmp_path: Path) -> None:
    content = {"model": STATE, "numpy": np.arange(3), "args": argparse.Namespace(a=1)}
    torch.save(content, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError) as caught:
        headers(locate(str(tmp_path)))
    said, line = str(caught.value).split("Where you trust the file, load it and save its plain parts again: ")
    assert said == "ckpt.pt cannot be loaded safely: it wants to import argparse.Namespace. "
    names = {"torch": torch, "ckpt": content | {"model_args": {"n": 1}}}
    exec(line.removesuffix(".").replace('"clean.pt"', "path"), names | {"path": tmp_path / "ckpt.pt"})
    assert equal(opened(tmp_path)[1], STATE)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"model": {"a": np.ones(3)}}, ["numpy.", "numpy.dtype"]),
        ({"model": OrderedDict(STATE)}, ["collections.OrderedDict", "torch."]),
        ({"args": [argparse.Namespace(a=1), argparse.Namespace(a=2)], "path": Path("x")}, ["argparse.Namespace", "pathlib."]),
    ],
)
def test_a_plain_pickle_is_called_one_with_what_it_wants_to_import(
    tmp_path: Path, protocol: int, content: Any, names: list[str]
) -> None:
    (tmp_path / "ckpt.pt").write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(CheckpointError, match=r"is a plain pickle, no file of torch\.save, and wants to import ") as caught:
        headers(locate(str(tmp_path)))
    assert all(name in str(caught.value) for name in names)
    assert len(str(caught.value)) < 400


def test_a_plain_pickle_of_plain_values_and_a_long_one_are_called_so_too(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(pickle.dumps({"a": [1.5]}))
    with pytest.raises(CheckpointError, match=r"is a plain pickle, no file of torch\.save\. Where"):
        headers(locate(str(tmp_path)))
    (tmp_path / "ckpt.pt").write_bytes(pickle.dumps({"a": np.ones(1 << 18)}))
    with pytest.raises(CheckpointError, match=r"is a plain pickle.*wants to import numpy"):
        headers(locate(str(tmp_path)))


def test_files_of_numpy_and_other_archives_are_called_what_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.ones(3), b=np.ones(3))
    np.savez_compressed(tmp_path / "b.npz", a=np.zeros(300))
    np.save(tmp_path / "c.npy", np.ones(3))
    with zipfile.ZipFile(tmp_path / "d.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.safetensors", bytes(500))
    for name, words in {
        "a.npz": "numpy archive",
        "b.npz": "numpy archive",
        "c.npy": "numpy array",
        "d.pt": "zip archive that torch.save has not written",
    }.items():
        with pytest.raises(CheckpointError, match=rf"^{name} is a {words}"):
            headers(locate(str(tmp_path / name)))


def test_two_threads_that_load_at_once_both_may_read_scalars(tmp_path: Path) -> None:
    torch.save({"model": STATE, "best": np.float64(1.5)}, tmp_path / "ckpt.pt")
    located, seen = locate(str(tmp_path)), list[float]()
    workers = [
        threading.Thread(target=lambda: seen.extend(headers(located).config["best"] for _ in range(15))) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == [1.5] * 60


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn])
@pytest.mark.parametrize("save", [save_file, torch.save])
def test_stored_dtypes_are_kept_and_named_as_torch_names_them(tmp_path: Path, dtype: torch.dtype, save: Any) -> None:
    save(
        {"a": torch.zeros(3, dtype=dtype), "scalar": torch.zeros(())},
        tmp_path / "model.safetensors" if save is save_file else tmp_path / "x.pt",
    )
    assert opened(tmp_path)[1]["a"].dtype == dtype


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod.", "module.module."])
def test_names_come_without_wrappers(tmp_path: Path, prefix: str) -> None:
    save_file({prefix + name: tensor for name, tensor in STATE.items()}, tmp_path / "model.safetensors")
    assert equal(opened(tmp_path)[1], STATE)


def test_a_wrapped_layer_inside_and_the_name_model_in_front() -> None:
    assert bare("model.layers.3._orig_mod.mlp.weight") == "model.layers.3.mlp.weight"
    assert bare("a.module.weight") == "a.module.weight"
    assert bare("module") == "module"


@given(
    st.lists(st.sampled_from(["_orig_mod", "module", "model", "a", "", "_orig_", "mod"]), min_size=1).map(".".join) | st.text()
)
def test_names_are_stripped_once_and_for_all(name: str) -> None:
    once = bare(name)
    assert bare(once) == once
    assert once.split(".")[-1] == name.split(".")[-1]
    assert bare(f"module._orig_mod.{name}") == once


@pytest.mark.parametrize("save", [save_file, torch.save])
def test_two_tensors_of_one_bare_name_are_refused(tmp_path: Path, save: Any) -> None:
    save({"a": A, "module.a": A + 1}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"x\.pt holds a twice"):
        headers(locate(str(tmp_path)))


def test_a_stray_shard_is_ignored_where_the_index_is_complete_and_named_where_it_is_not(tmp_path: Path) -> None:
    sharded(tmp_path, "safetensors", save_file)
    save_file({"a.weight": A + 1, "c": A}, tmp_path / "three.safetensors")
    assert equal(opened(tmp_path)[1], STATE)
    sharded(
        tmp_path, "safetensors", save_file, **{"a.weight": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}
    )
    for read in (headers, tensors):
        with pytest.raises(
            CheckpointError, match=r"1 of its 3 .* such as c in two\.safetensors; .*also holds three\.safetensors"
        ):
            read(locate(str(tmp_path)))


def test_the_index_decides_between_two_copies_of_a_tensor(tmp_path: Path) -> None:
    sharded(tmp_path, "safetensors", save_file)
    save_file({"b": B, "a.weight": A + 1}, tmp_path / "two.safetensors")
    assert equal(opened(tmp_path)[1], STATE)


def test_tied_tensors_that_share_their_storage_load_under_both_names(tmp_path: Path) -> None:
    torch.save({"a": A, "b": A, "part": A[1]}, tmp_path / "ckpt.pt")
    _, found = opened(tmp_path)
    assert equal(found, {"a": A, "b": A, "part": A[1]})


def test_attributes_that_a_file_gives_its_tensors_are_dropped(tmp_path: Path) -> None:
    tensor: Any = torch.ones(3)
    tensor.numel, tensor.note = 5, "x"
    torch.save({"a": tensor, "b": torch.nn.Parameter(B.float())}, tmp_path / "ckpt.pt")
    _, found = opened(tmp_path)
    assert found["a"].numel() == 3
    assert not hasattr(found["a"], "note")
    assert not any(t.requires_grad or isinstance(t, torch.nn.Parameter) for t in found.values())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1], "holds a list; expected a dict"),
        ({}, "holds no tensors"),
        ({"model": {}}, "holds no tensors"),
        ({"optimizer": ADAM}, "holds no tensors"),
        ({"a": torch.eye(3).to_sparse()}, "is sparse or quantised"),
        ({"a": torch.zeros(1).expand(5000, 5000)}, r"claims shape \(5000, 5000\), more than the file"),
        (torch.nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear"),
    ],
    ids=["list", "nothing", "empty", "optimizer only", "sparse", "expanded", "module"],
)
def test_what_is_no_dict_of_tensors_is_refused(tmp_path: Path, content: Any, sentence: str) -> None:
    torch.save(content, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match=sentence):
        headers(locate(str(tmp_path)))


def test_progress_rises_to_one_over_the_shards(tmp_path: Path) -> None:
    sharded(tmp_path, "bin", torch.save)
    told: list[float] = []
    tensors(locate(str(tmp_path)), progress=told.append)
    assert told == [0.5, 1.0]


@given(st.binary(max_size=120))
def test_any_bytes_under_any_name_are_refused_with_a_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    for name in ("any.safetensors", "any.pt"):
        (folder / name).write_bytes(content + b"x")
        with pytest.raises(CheckpointError, match="any"):
            headers(locate(str(folder / name)))


def good_bytes(form: str) -> bytes:
    """A file that opens, to be damaged."""
    file = io.BytesIO()
    torch.save({"model": STATE, "best": np.float64(1.5)}, file, _use_new_zipfile_serialization=form == "zip")
    return safetensors_torch.save(STATE) if form == "safetensors" else file.getvalue()


@pytest.mark.parametrize("form", ["zip", "older", "safetensors"])
@given(data=st.data())
def test_a_file_damaged_anywhere_opens_or_is_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, form: str, data: st.DataObject
) -> None:
    content = good_bytes(form)
    start = data.draw(st.integers(0, len(content) - 1))
    stop = start + data.draw(st.integers(0, 12))
    path = tmp_path_factory.getbasetemp() / "damaged.pt"
    path.write_bytes(content[:start] + data.draw(st.binary(max_size=12)) + content[stop:] + b" ")
    try:
        opened(path)
    except CheckpointError as error:
        sentence = str(error)
    else:
        return
    assert sentence.count("\n") == 0
    assert len(sentence) < 400
