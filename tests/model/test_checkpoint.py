"""Finding and loading checkpoints: what is refused, and in which words."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (hooks and lambdas for torch, which has no types for them)

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import card, identify, load
from model.families import architectures
from model.locate import CheckpointError, canonical, demo_names, digest, locate
from model.named_block import NamedBlock
from model.tokenizer import load_tokenizer
from tests.model.toy_networks import TINY, write_tiny
from tests.model.zoo import DATA


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny")


def loaded(path: Path) -> torch.Tensor:
    network = load(locate(str(path)), dtype="float32", device="cpu").network
    ids = torch.arange(5)[None]
    with torch.inference_mode():
        return network(ids, loops=(2, 2), initial_state=lambda block, entry: torch.zeros_like(entry))


def test_card_tells_sizes_without_weights(tiny: Path) -> None:
    found = card(str(tiny))
    assert (found.width, found.vocabulary, found.context) == (16, 256, 12)
    assert found.block_names == ("h[1]", "h[2,3]")
    assert (found.loops_trained, found.step) == (4.0, 7)
    assert found.dtype == "float32"
    assert found.parameters == sum(tensor.numel() for tensor in load_file(tiny / "model.safetensors").values())
    assert "noise of std" in found.initial_state_rule


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod."])
def test_prefixes_of_compilers_and_wrappers_change_nothing(tiny: Path, prefix: str) -> None:
    wanted = loaded(tiny)
    tensors = load_file(tiny / "model.safetensors")
    save_file({prefix + name: tensor for name, tensor in tensors.items()}, tiny / "model.safetensors")
    assert torch.equal(loaded(tiny), wanted)


def test_a_pickled_checkpoint_loads_like_safetensors(tiny: Path) -> None:
    wanted = loaded(tiny)
    tensors = load_file(tiny / "model.safetensors")
    (tiny / "model.safetensors").unlink()
    (tiny / "config.json").unlink()
    torch.save({"model": tensors, "model_args": TINY}, tiny / "ckpt.pt")
    assert torch.equal(loaded(tiny), wanted)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("missing", "50 of 61 tensors matched"),
        ("unknown", "1 tensors that Two-scale looped GPT does not know: surprise"),
        ("shape", r"has shape \(16, 3\); the config asks for \(16, 16\)"),
        ("renamed", "could be that of Two-scale looped GPT, but 0 of 61 tensors matched"),
        ("empty", "is empty"),
        ("pointer", "Git LFS pointer"),
        ("half", "no safetensors file that can be read"),
        ("config", "width 16 is no multiple of the 3 heads"),
        ("no groups", "is of no family known here"),
        ("json", "no JSON that can be read"),
        ("list", "expected one JSON object"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(tiny: Path, damage: str, sentence: str) -> None:
    file, config = tiny / "model.safetensors", tiny / "config.json"
    tensors = load_file(file)
    key = "transformer.h.0.attn.c_proj.weight"
    values = json.loads(config.read_text())
    match damage:
        case "missing":
            save_file({name: t for name, t in tensors.items() if ".h.1." not in name}, file)
        case "unknown":
            save_file(tensors | {"surprise": torch.zeros(1)}, file)
        case "shape":
            save_file(tensors | {key: torch.zeros(16, 3)}, file)
        case "renamed":
            save_file({"foo." + name.split(".", 1)[1].replace("rms", "r"): t for name, t in tensors.items()}, file)
        case "empty":
            file.write_bytes(b"")
        case "pointer":
            file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
        case "half":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "config":
            config.write_text(json.dumps(values | {"model_args": values["model_args"] | {"n_head": 3}}))
        case "no groups":
            config.write_text(json.dumps({"model_args": {"n_layer": 5}}))
        case "json":
            config.write_text("{")
        case _:
            config.write_text("[]")
    with pytest.raises(CheckpointError, match=sentence):
        load(locate(str(tiny)), dtype="float32", device="cpu")


def test_a_file_that_would_run_code_is_refused_and_never_runs_it(tiny: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (canary,))

    (tiny / "model.safetensors").unlink()
    torch.save({"model": Evil(), "model_args": TINY}, tiny / "ckpt.pt")
    with pytest.raises(CheckpointError, match="wants to import"):
        identify(locate(str(tiny)))
    torch.save({"model": {}, "config": argparse.Namespace(a=1)}, tiny / "ckpt.pt")
    with pytest.raises(CheckpointError, match=r"argparse\.Namespace"):
        identify(locate(str(tiny)))
    assert not canary.exists()


def test_odd_pickles_are_refused(tiny: Path) -> None:
    (tiny / "model.safetensors").unlink()
    for content, sentence in (([1], "expected a dict"), ({"model": {}}, "holds no tensors")):
        torch.save(content, tiny / "ckpt.pt")
        with pytest.raises(CheckpointError, match=sentence):
            identify(locate(str(tiny)))
    (tiny / "ckpt.pt").write_bytes(b"no checkpoint at all")
    with pytest.raises(CheckpointError, match="damaged or no checkpoint at all"):
        identify(locate(str(tiny)))


def test_names_and_paths() -> None:
    assert canonical("demo") == demo_names()[-1]
    for name, sentence in (("", "No checkpoint"), ("demo@7", "has steps 0"), ("/no/such", "no file or folder")):
        with pytest.raises(CheckpointError, match=sentence):
            locate(name)


def test_a_folder_without_weights_and_a_missing_device_are_named(tiny: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no weights itself; give the path of a folder in it that does: tiny"):
        locate(str(tiny.parent))
    if not torch.cuda.is_available():
        with pytest.raises(CheckpointError, match="'cuda' is not available"):
            load(locate(str(tiny)), dtype="float32", device="cuda")


def test_the_digest_follows_the_content(tiny: Path) -> None:
    before = digest(locate(str(tiny)))
    (tiny / "config.json").write_text((tiny / "config.json").read_text() + " ")
    assert digest(locate(str(tiny))) != before


@pytest.mark.parametrize(
    "groups", [[], [[1], [1]], [[9]], [[1, 3]], [[3], [1]], [[-1]]], ids=["none", "twice", "past", "gap", "order", "negative"]
)
def test_impossible_groups_are_refused(tiny: Path, groups: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="loop_groups"):
        architectures()["latent_ttc"].build({"model_args": TINY | {"loop_groups": groups}})


def test_tokenizer_labels_show_whitespace_and_bytes() -> None:
    located = locate("demo")
    tokenizer = load_tokenizer(located, 2048)
    ids = tokenizer.encode("The Queen's élan\n\tx")
    shown = [tokenizer.label(token) for token in ids]
    assert "".join(shown).replace("·", " ").startswith("The Queen's ")
    assert "\\xc3" in shown
    assert "⏎" in "".join(shown)
    assert tokenizer.label(999_999) == "⟨unused 999999⟩"
    assert "byte-level BPE" in tokenizer.title


def test_bytes_stand_in_for_a_missing_tokenizer_only_at_256(tiny: Path) -> None:
    tokenizer = load_tokenizer(locate(str(tiny)), 256)
    assert tokenizer.encode("é") == (0xC3, 0xA9)
    assert tokenizer.label(0xC3) == "\\xc3"
    assert tokenizer.label(32) == "·"
    with pytest.raises(CheckpointError, match="vocabulary of 300"):
        load_tokenizer(locate(str(tiny)), 300)
    (tiny / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no tokenizer that can be read"):
        load_tokenizer(locate(str(tiny)), 256)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn])
def test_weights_that_are_no_plain_numbers_are_refused(tiny: Path, dtype: torch.dtype) -> None:
    tensors = load_file(tiny / "model.safetensors")
    name = "transformer.h.1.mlp.c_fc.weight"
    save_file(tensors | {name: tensors[name].to(dtype)}, tiny / "model.safetensors")
    for read in (card, lambda path: load(locate(path), dtype="float32", device="cpu")):
        with pytest.raises(CheckpointError, match=rf"{name} in model.safetensors is stored as .*unquantised"):
            read(str(tiny))


def test_doubles_are_read(tiny: Path) -> None:
    wanted = loaded(tiny)
    tensors = load_file(tiny / "model.safetensors")
    save_file({name: tensor.double() for name, tensor in tensors.items()}, tiny / "model.safetensors")
    assert torch.equal(loaded(tiny), wanted)


def test_what_is_odd_about_a_stranger_is_named(tiny: Path) -> None:
    values = json.loads((tiny / "config.json").read_text())
    for config, sentence in (
        (None, r"there is no config.json with settings beside it; put the config.json"),
        ({"model_type": "llama", "transformers_version": "5.0"}, r"its config says 'llama'.*or name the looped block"),
        ({"architecture": "x", "model_type": "mine"}, r"of no family known here .*its config says 'mine'"),
    ):
        (tiny / "config.json").unlink(missing_ok=True)
        if config is not None:
            (tiny / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=sentence):
            identify(locate(str(tiny)))
    (tiny / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"Loopscope knows this family \(Two-scale looped GPT\): leave out --block"):
        identify(locate(str(tiny)), NamedBlock("transformer.h"))


def test_a_config_of_another_type_is_told_what_its_tensors_are(tmp_path: Path) -> None:
    shutil.copytree(DATA / "huginn-tiny", tmp_path / "made")
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    (tmp_path / "made" / "config.json").write_text(json.dumps(config | {"model_type": "something"}))
    with pytest.raises(CheckpointError, match=r"those of Huginn.*its config says 'something'.*recognised by .*huginn_raven"):
        identify(locate(str(tmp_path / "made")))


def test_a_renamed_tensor_is_named_beside_the_missing_one(tiny: Path) -> None:
    tensors = load_file(tiny / "model.safetensors")
    tensors["transformer.h.1.foo.weight"] = tensors.pop("transformer.h.1.mlp.c_fc.weight")
    save_file(tensors, tiny / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"missing: .*c_fc.weight; it holds 1 tensors that .*h.1.foo.weight"):
        card(str(tiny))
