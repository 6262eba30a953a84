"""Networks of the transformers library, hooked in place: golden iterates, counts that take, refusals, no foreign code."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (the library is met without types)

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from model import library, opened, runner
from model.checkpoint import card, load
from model.locate import CheckpointError, locate
from model.request import InitialState, Prompt, Request, RequestError

DATA = Path(__file__).parent.parent / "data"
FOLDERS = ("albert-tiny", "dory-tiny")
TITLES = {"albert-tiny": "ALBERT", "dory-tiny": "Dory"}


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def _no_model_stays() -> Any:
    yield
    opened._loaded.clear()  # pyright: ignore[reportPrivateUsage]


def golden(folder: str) -> dict[str, np.ndarray]:
    with np.load(DATA / folder / "golden.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def prompt(folder: str) -> Prompt:
    return Prompt(ids=tuple(int(i) for i in golden(folder)["input_ids"]))


def copied(
    folder: str,
    target: Path,
    *,
    tensors: Callable[[dict[str, torch.Tensor]], object] = lambda tensors: None,
    **fields: Any,
) -> str:
    """A copy of a folder with fields of its config replaced and its tensors changed in place."""
    target.mkdir(parents=True, exist_ok=True)
    config: Mapping[str, Any] = json.loads((DATA / folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **fields}))
    shutil.copy(DATA / folder / "tokenizer.json", target)
    stored = load_file(DATA / folder / "model.safetensors")
    tensors(stored)
    save_file(stored, target / "model.safetensors")
    return str(target)


def never(block: int, entry: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a block that starts from its own input asked for another start")


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-4, rtol=0)


def test_states_entries_and_readouts_of_a_run_are_golden(folder: str) -> None:
    wanted = golden(folder)
    found = runner.run(Request(str(DATA / folder), (prompt(folder),), (6,))).trajectories[0]
    (block,) = found.blocks
    close(block.states, wanted["states_0"])
    close(block.states[0], wanted["initial_state_0"])
    close(block.entry, wanted["entry_0"])
    log_p = torch.from_numpy(wanted["coda_logits"]).double().log_softmax(-1)
    close(block.readouts["coda", "entropy"], -(log_p.exp() * log_p).sum(-1).numpy())
    assert (block.readouts["coda", "top10_id"][..., 0] == log_p.argmax(-1).numpy()).all()
    assert found.provenance.initial_state == "the block's own input"
    assert ("coda", "log_probability_next") in block.readouts or folder == "albert-tiny"
    assert bool(found.left_out) == (folder == "albert-tiny")


def test_logits_and_the_coda_lens_of_every_iterate_are_golden(folder: str) -> None:
    wanted = golden(folder)
    network = load(locate(str(DATA / folder)), dtype="float32", device="cpu").network
    ids = torch.from_numpy(wanted["input_ids"])
    with torch.inference_mode():
        coda = network.features(torch.from_numpy(wanted["states_0"][1:]), ids=ids, lens="coda")
        glance = network.features(torch.from_numpy(wanted["states_0"][1:]), ids=ids, lens="logit")
        close(network.head.logits(coda), wanted["coda_logits"])
        for loops in (6, 3, 1):
            logits = network(ids[None], loops=[loops], initial_state=never)
            close(logits[0], wanted["coda_logits"][loops - 1])
    assert torch.equal(glance, coda) == (folder == "albert-tiny")


def test_a_card_reads_no_weight_and_names_what_runs(folder: str) -> None:
    wanted = golden(folder)
    found = card(str(DATA / folder))
    assert (found.architecture, found.title) == (folder.removesuffix("-tiny"), TITLES[folder])
    assert (found.width, found.vocabulary) == (64, 256)
    assert found.fixed_start
    assert found.config_loops == ((6,) if folder == "albert-tiny" else (4,))
    stored = load_file(DATA / folder / "model.safetensors")
    assert found.parameters == sum(tensor.numel() for tensor in stored.values())
    assert found.objective == ("masked token" if folder == "albert-tiny" else "next token")
    assert len(wanted["states_0"]) == 7


def test_the_count_is_the_one_asked_for_and_the_config_is_put_back(folder: str) -> None:
    network = load(locate(str(DATA / folder)), dtype="float32", device="cpu").network
    inner: Any = network
    field = "num_hidden_layers" if folder == "albert-tiny" else "n_recurrent_loops"
    before = getattr(inner.model.config, field)
    loops = before + 5
    for asked in (loops, 1):
        found = runner.run(Request(str(DATA / folder), (prompt(folder),), (asked,), lenses=())).trajectories[0]
        assert found.blocks[0].states.shape[0] == asked + 1
    with torch.inference_mode():
        network(torch.tensor([[1, 2]]), loops=[loops], initial_state=never)
    assert getattr(inner.model.config, field) == before


def test_half_precision_files_run_in_the_dtype_asked_for(folder: str) -> None:
    wanted = golden(folder)
    for dtype in ("bfloat16", "float16"):
        request = Request(str(DATA / folder), (prompt(folder),), (3,), dtype=dtype, lenses=("logit", "coda"))
        block = runner.run(request).trajectories[0].blocks[0]
        error = np.abs(block.states - wanted["states_0"][:4]).max()
        assert 0 < error < 0.1 * np.abs(wanted["states_0"]).max()
        assert np.isfinite(block.readouts["coda", "entropy"]).all()


@pytest.mark.parametrize("kind", ["zeros", "normal"])
def test_other_starts_are_refused(folder: str, kind: Any) -> None:
    state = InitialState(kind, std=1.0 if kind == "normal" else None)
    with pytest.raises(RequestError, match="takes no other"):
        runner.run(Request(str(DATA / folder), (prompt(folder),), (2,), initial_state=state))


def test_prefixes_shards_and_pickled_weights_give_the_same_logits(folder: str, tmp_path: Path) -> None:
    ids = torch.from_numpy(golden(folder)["input_ids"])[None]
    stored = load_file(DATA / folder / "model.safetensors")
    halves = [dict(list(stored.items())[half::2]) for half in (0, 1)]
    for name, content in {
        "module": {f"module._orig_mod.{key}": tensor for key, tensor in stored.items()},
        "model": {f"model.{key}": tensor for key, tensor in stored.items()},
    }.items():
        copied(folder, tmp_path / name, tensors=lambda tensors, content=content: (tensors.clear(), tensors.update(content)))
    copied(folder, tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save(stored, tmp_path / "pickled" / "pytorch_model.bin")
    copied(folder, tmp_path / "shards")
    (tmp_path / "shards" / "model.safetensors").unlink()
    for half, tensors in enumerate(halves):
        save_file(tensors, tmp_path / "shards" / f"model-{half}.safetensors")
    weight_map = {key: f"model-{half}.safetensors" for half, tensors in enumerate(halves) for key in tensors}
    (tmp_path / "shards" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for name in ("module", "model", "pickled", "shards"):
        network = load(locate(str(tmp_path / name)), dtype="float32", device="cpu").network
        with torch.inference_mode():
            close(network(ids, loops=[6], initial_state=never)[0], golden(folder)["logits_final"])


def spoilt(folder: str) -> dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]]:
    """What was done to the tensors -> the sentence that names it."""
    one = {"albert-tiny": "predictions.dense.weight", "dory-tiny": "backbone.layers.2.mlp.down_proj.weight"}[folder]
    said = one.replace("backbone", "model")
    return {
        "missing": (lambda tensors: tensors.pop(one), rf"lacks 1 tensors that \w+ needs: {said}"),
        "unexpected": (lambda tensors: tensors.update(foo=torch.ones(2)), r"holds 1 tensors that \w+ does not know: foo"),
        "shape": (lambda tensors: tensors.update({one: torch.ones(3, 3)}), rf"another shape .*{said} \(\(3, 3\), not \("),
    }


@pytest.mark.parametrize("spoil", ["missing", "unexpected", "shape"])
def test_weights_that_do_not_fit_are_refused_by_name(folder: str, spoil: str, tmp_path: Path) -> None:
    change, said = spoilt(folder)[spoil]
    path = copied(folder, tmp_path, tensors=change)
    with pytest.raises(CheckpointError, match=said):
        load(locate(path), dtype="float32", device="cpu")


def test_old_settings_heads_of_other_tasks_and_tied_copies_are_no_strangers(tmp_path: Path) -> None:
    def more(tensors: dict[str, torch.Tensor]) -> None:
        tensors["albert.pooler.weight"], tensors["albert.pooler.bias"] = torch.ones(64, 64), torch.ones(64)
        tensors["sop_classifier.classifier.weight"] = torch.ones(2, 64)
        tensors["predictions.decoder.weight"] = tensors["albert.embeddings.word_embeddings.weight"].clone()
        tensors["predictions.decoder.bias"] = tensors["predictions.bias"].clone()

    old: dict[str, Any] = {
        "net_structure_type": 0,
        "gap_size": 0,
        "num_memory_blocks": 0,
        "down_scale_factor": 1,
        "position_embedding_type": "absolute",
    }
    path = copied("albert-tiny", tmp_path, tensors=more, transformers_version="4.9.0", **old)
    network = load(locate(path), dtype="float32", device="cpu").network
    ids = torch.from_numpy(golden("albert-tiny")["input_ids"])[None]
    with torch.inference_mode():
        close(network(ids, loops=[6], initial_state=never)[0], golden("albert-tiny")["logits_final"])


def test_an_untied_head_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = copied("albert-tiny", tmp_path, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"predictions\.decoder\.weight"):
        load(locate(path), dtype="float32", device="cpu")


BAD_FIELDS: dict[str, dict[str, Any]] = {
    "albert-tiny": {
        "num_hidden_layers": 10**9,
        "num_hidden_groups": 10**9,
        "inner_group_num": -1,
        "hidden_size": 2**40,
        "vocab_size": "many",
        "hidden_act": "no such activation",
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    },
    "dory-tiny": {
        "num_hidden_layers": 10**9,
        "n_recurrent_layers": 0,
        "n_output_layers": 4,
        "n_recurrent_loops": 0,
        "rope_parameters": 7,
        "layer_types": ["no such attention"] * 12,
        "sliding_window": [4],
    },
}


@pytest.mark.parametrize(("folder_name", "field"), [(name, field) for name in FOLDERS for field in BAD_FIELDS[name]])
def test_absurd_configs_are_one_sentence_before_anything_is_built(folder_name: str, field: str, tmp_path: Path) -> None:
    path = copied(folder_name, tmp_path, **{field: BAD_FIELDS[folder_name][field]})
    for door in (card, lambda path: load(locate(path), dtype="float32", device="cpu")):
        with pytest.raises(CheckpointError, match=rf"({TITLES[folder_name]}\)|loaded as)"):
            door(path)


def test_code_beside_the_weights_is_never_imported_and_nothing_is_fetched(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    names = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoModelForCausalLM": "evil.Model"}
    path = copied(
        folder,
        tmp_path / "model",
        auto_map=names | {"AutoModelForMaskedLM": "evil.Model"},
        attn_implementation="some/kernel",
        _attn_implementation="some/kernel",
        use_kernels=True,
        _name_or_path="some/model",
        transformers_weights="https://example.org/weights.bin",
    )
    for name in ("evil.py", "modeling_albert.py", "configuration_dory.py"):
        (tmp_path / "model" / name).write_text(f"open({str(canary)!r}, 'w').close()")

    def refuse(*arguments: Any) -> None:
        raise AssertionError("something was asked of the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    found = runner.run(Request(path, (prompt(folder),), (6,), lenses=("coda",))).trajectories[0]
    close(found.blocks[0].states, golden(folder)["states_0"])
    assert not canary.exists()
    assert "evil" not in sys.modules
    assert card(path).architecture == folder.removesuffix("-tiny")
    assert any("it was not run: the network is the transformers library's" in note for note in card(path).notes)


def test_the_library_is_left_as_it_was(folder: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = library.transformers("A test")
    logs, hub = found.utils.logging, sys.modules["huggingface_hub.constants"]
    before = (logs.get_verbosity(), logs.is_progress_bar_enabled(), vars(hub)["HF_HUB_OFFLINE"])
    load(locate(str(DATA / folder)), dtype="float32", device="cpu")
    assert (logs.get_verbosity(), logs.is_progress_bar_enabled(), vars(hub)["HF_HUB_OFFLINE"]) == before
    assert capfd.readouterr() == ("", "")


def test_several_threads_leave_the_library_as_it_was() -> None:
    found = library.transformers("A test")
    logs, hub = found.utils.logging, sys.modules["huggingface_hub.constants"]
    before = (logs.get_verbosity(), logs.is_progress_bar_enabled(), vars(hub)["HF_HUB_OFFLINE"])
    with ThreadPoolExecutor(4) as pool:
        cards = list(pool.map(lambda number: card(str(DATA / FOLDERS[number % 2])), range(8)))
    assert [one.architecture for one in cards] == ["albert", "dory"] * 4
    assert (logs.get_verbosity(), logs.is_progress_bar_enabled(), vars(hub)["HF_HUB_OFFLINE"]) == before


def test_listing_and_recognising_families_does_not_import_the_library() -> None:
    code = (
        "import sys; from model.checkpoint import identify; from model.locate import locate; "
        "from model.families import architectures; architectures(); "
        f"print(identify(locate({str(DATA / 'dory-tiny')!r})).architecture.name, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=DATA.parent.parent)
    assert done.stdout.split() == ["dory", "False"]


def test_without_the_library_the_family_is_recognised_and_says_what_to_install(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise library.PackageNotFoundError(name)

    monkeypatch.setattr(library, "version", absent)
    for door in (card, lambda path: load(locate(path), dtype="float32", device="cpu")):
        with pytest.raises(CheckpointError) as refused:
            door(str(DATA / folder))
        assert str(refused.value) == f"{TITLES[folder]} needs the transformers library; install loopscope[hf]."


@pytest.mark.parametrize("found", ["4.57.1", "5.23.9", "5.25.0", "5.100.0", "6.0.0.dev0"])
def test_versions_that_were_not_tested_are_refused(folder: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "version", lambda name: found)
    with pytest.raises(CheckpointError, match=rf"{TITLES[folder]} needs transformers 5\.24\.0 to 5\.24\.x, found {found}"):
        card(str(DATA / folder))


def two_groups(target: Path, *, applications: int = 6) -> str:
    """ALBERT with a second group of two layers whose weights are other ones."""

    def grow(tensors: dict[str, torch.Tensor]) -> None:
        head = "albert.encoder.albert_layer_groups."
        first = {name: tensor for name, tensor in tensors.items() if name.startswith(head)}
        generator = torch.Generator().manual_seed(0)
        for name in first:
            rest = name.removeprefix(f"{head}0.albert_layers.0.")
            for g, layer in ((0, 1), (1, 0), (1, 1)):
                noise = torch.randn(first[name].shape, generator=generator)
                tensors[f"{head}{g}.albert_layers.{layer}.{rest}"] = first[name] + 0.1 * noise

    return copied("albert-tiny", target, tensors=grow, num_hidden_groups=2, inner_group_num=2, num_hidden_layers=applications)


def test_groups_are_looped_blocks_in_sequence_that_run_equally_often(tmp_path: Path) -> None:
    path = two_groups(tmp_path)
    request = Request(path, (prompt("albert-tiny"),), (3,))
    first, second = runner.run(request).trajectories[0].blocks
    assert (first.layers, second.layers) == ((0, 1), (2, 3))
    assert np.array_equal(first.states[-1], second.states[0])
    assert np.array_equal(second.entry, second.states[0])
    assert not np.allclose(first.states[-1], second.states[1], atol=0.1)
    assert card(path).config_loops == (3, 3)
    network = load(locate(path), dtype="float32", device="cpu").network
    ids = torch.from_numpy(golden("albert-tiny")["input_ids"])
    with torch.inference_mode():
        plain = network(ids[None], loops=[3, 3], initial_state=never)
        read = network.features(torch.from_numpy(second.states[-1:].copy()), ids=ids, lens="coda")
        close(network.head.logits(read), plain)
    with pytest.raises(RequestError, match="2, 3 loops were asked for; ALBERT runs its 2 layer groups equally often"):
        runner.run(Request(path, (prompt("albert-tiny"),), (2, 3)))


def test_groups_that_the_library_would_run_unequally_have_no_default(tmp_path: Path) -> None:
    assert card(two_groups(tmp_path, applications=5)).config_loops is None


def test_a_dory_without_input_layers_starts_from_its_embeddings(tmp_path: Path) -> None:
    path = copied("dory-tiny", tmp_path, n_input_layers=0, n_recurrent_layers=6, n_output_layers=6)
    block = runner.run(Request(path, (prompt("dory-tiny"),), (2,))).trajectories[0].blocks[0]
    stored = load_file(DATA / "dory-tiny" / "model.safetensors")["backbone.embeddings.weight"].float()
    close(block.states[0], stored[torch.from_numpy(golden("dory-tiny")["input_ids"])].numpy())
    assert block.layers == (0, 1, 2)


def test_the_layout_of_released_dory_files_is_read(tmp_path: Path) -> None:
    """Attention and MLP blocks are numbered in turn there, each with its own rate."""
    numbered = re.compile(r"backbone\.layers\.(\d+)\.(self_attn|mlp|lambda_1|lambda_2)")
    names = {
        "self_attn": "backbone.layers.{even}.mixer",
        "mlp": "backbone.layers.{odd}.mixer",
        "lambda_1": "backbone.layers.{even}.attn_alpha",
        "lambda_2": "backbone.layers.{odd}.mlp_alpha",
    }

    def renamed(found: re.Match[str]) -> str:
        return names[found[2]].format(even=2 * int(found[1]), odd=2 * int(found[1]) + 1)

    def release(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensors[numbered.sub(renamed, name)] = tensors.pop(name)

    path = copied("dory-tiny", tmp_path, tensors=release)
    block = runner.run(Request(path, (prompt("dory-tiny"),), (6,))).trajectories[0].blocks[0]
    close(block.states, golden("dory-tiny")["states_0"])


def test_a_config_of_a_much_larger_model_is_refused_before_its_weights_are_made_up(folder: str, tmp_path: Path) -> None:
    path = copied(folder, tmp_path, intermediate_size=2**22)
    with pytest.raises(CheckpointError, match=r"asks for \d+ weights and model\.safetensors holds \d+"):
        load(locate(path), dtype="float32", device="cpu")


def test_a_count_that_does_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = load(locate(str(DATA / "dory-tiny")), dtype="float32", device="cpu").network
    monkeypatch.setattr(type(network), "counts", lambda self, loops: {})
    with pytest.raises(RequestError, match=r"ran \[4\] loops of its blocks and \[2\] were asked for"), torch.inference_mode():
        network(torch.tensor([[1, 2, 3]]), loops=[2], initial_state=never)


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("loops", [1, 2, 70])
def test_short_prompts_and_few_or_many_loops_keep_all_axes(folder: str, tokens: int, loops: int) -> None:
    found = runner.run(Request(str(DATA / folder), (Prompt(ids=(7,) * tokens),), (loops,))).trajectories[0]
    (block,) = found.blocks
    assert block.states.shape == (loops + 1, tokens, 64)
    assert block.step_norm.shape == block.readouts["coda", "entropy"].shape == (loops, tokens)
    network = load(locate(str(DATA / folder)), dtype="float32", device="cpu").network
    ids = torch.tensor([[7] * tokens])
    with torch.inference_mode():
        plain = network(ids, loops=[loops], initial_state=never)[0].double().log_softmax(-1)
    close(block.readouts["coda", "entropy"][-1], -(plain.exp() * plain).sum(-1).numpy())
