"""What every native family must keep: its key map, what it refuses, what its hooks see, at sizes of every kind."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# (hooks and lambdas for torch, which has no types for them)

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.architecture import stored_names
from model.checkpoint import card, identify, load
from model.families import architectures
from model.locate import CheckpointError, locate
from model.request import InitialState, Prompt, Request
from model.runner import run
from model.weights import tensors
from tests.contracts import check_named
from tests.model.variants import FAMILIES, RAVEN, VARIANTS, write
from tests.model.zoo import NATIVE, Reference, named

ONE_EACH = tuple({reference.family: reference for reference in reversed(NATIVE)}.values())
each_family = pytest.mark.parametrize("reference", ONE_EACH, ids=named)

PREFIXES = ("_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod.", "model.", "model._orig_mod.", "model.model.")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting_loads_and_the_last_iterate_decodes_to_the_models_own_logits(variant: str, tmp_path: Path) -> None:
    family, config = VARIANTS[variant]
    folder = str(write(tmp_path / "made", family, config))
    assert identify(locate(folder)).architecture.name == family
    found = card(folder)
    request = Request(folder, (Prompt(ids=(3, 1, 4, 1, 5, 259)),), (4,))
    trajectory = run(request).trajectories[0]
    network = load(locate(folder), dtype="float32", device="cpu").network
    ids = torch.from_numpy(trajectory.token_ids.copy())
    with torch.inference_mode():
        plain = network(
            ids[None],
            loops=[4] * len(network.blocks),
            initial_state=lambda block, entry: torch.from_numpy(trajectory.blocks[block].states[0].copy())[None],
        )
        last = torch.from_numpy(trajectory.blocks[-1].states[-1].copy())[None]
        decoded = network.head.logits(network.features(last, ids=ids, lens="coda"))
    assert torch.equal(plain, decoded), "hooked and plain differ, or the coda lens is not the model's own path"
    assert found.state_width == trajectory.blocks[0].states.shape[-1]
    assert found.parameters == sum(p.numel() for p in network.parameters())
    for block in trajectory.blocks:
        assert block.states.shape[0] == 5
        assert np.isfinite(block.states).all()
        assert not np.array_equal(block.states[-1], block.states[-2])


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_looks_ahead(variant: str, tmp_path: Path) -> None:
    family, config = VARIANTS[variant]
    folder = str(write(tmp_path / "made", family, config))
    whole = run(Request(folder, (Prompt(ids=(3, 1, 4, 1, 5, 9)),), (3,), initial_state=InitialState("trained"))).trajectories[0]
    start = run(Request(folder, (Prompt(ids=(3, 1, 4)),), (3,))).trajectories[0]
    for a, b in zip(whole.blocks, start.blocks, strict=True):
        np.testing.assert_allclose(a.states[:, :3], b.states, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_says_what_it_is(family: str) -> None:
    check_named(type(FAMILIES[family]))
    for words in ("title", "injection", "logit_lens", "recognised_by", "verified"):
        assert getattr(FAMILIES[family], words).strip(), words


@pytest.mark.parametrize("reference", NATIVE, ids=named)
def test_the_key_map_hits_every_weight_and_inverts(reference: Reference) -> None:
    found = identify(locate(reference.path))
    family = FAMILIES[reference.family]
    assert found.architecture == family
    names = family.key_map(found.config)
    own = family.build(found.config).state_dict()
    assert set(found.headers) <= set(names)
    assert set(stored_names(names)) == set(own)
    assert len(set(stored_names(names).values())) == len(own)
    tied = [ours for ours in names.values() if list(names.values()).count(ours) > 1 and ours is not None]
    assert set(tied) <= {"tokens.weight"}


@each_family
def test_only_one_family_takes_a_checkpoint(reference: Reference) -> None:
    found = identify(locate(reference.path))
    takers = [name for name, family in architectures().items() if family.recognises(found.config, frozenset(found.headers))]
    assert takers == [reference.family]


def folder_of(
    reference: Reference, folder: Path, content: Mapping[str, Tensor], config: Mapping[str, Any] | None = None
) -> str:
    """The reference's config beside other tensors, as safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: tensor.contiguous().clone() for name, tensor in content.items()}
    save_file(kept, folder / "model.safetensors")
    whole = config if config is not None else identify(locate(reference.path)).config
    plain = {key: value for key, value in whole.items() if isinstance(value, str | int | float | list | dict | bool | None)}
    (folder / "config.json").write_text(json.dumps(plain, default=str), encoding="utf-8")
    return str(folder)


def logits_of(folder: str) -> Tensor:
    network = load(locate(folder), dtype="float32", device="cpu").network
    zeros = network.state_width
    with torch.inference_mode():
        return network(
            torch.arange(7)[None],
            loops=[3] * len(network.blocks),
            initial_state=lambda block, entry: torch.zeros(*entry.shape[:2], zeros),
        )


@each_family
def test_missing_and_unknown_tensors_are_refused_by_name(reference: Reference, tmp_path: Path) -> None:
    whole = tensors(locate(reference.path))
    core = next(name for name in whole if any(part in name for part in (".core_block.", ".recur.", ".layers.", ".h.2.")))
    end = core.split(".")[-1]

    def loaded(content: Mapping[str, Tensor]) -> object:
        return load(locate(folder_of(reference, tmp_path / "made", content)), dtype="float32", device="cpu")

    with pytest.raises(CheckpointError, match=rf"missing: .*{end}"):
        loaded({name: tensor for name, tensor in whole.items() if name != core})
    with pytest.raises(CheckpointError, match=r"1 tensors that .* does not know: surprise"):
        loaded(whole | {"surprise.weight": torch.ones(2)})
    with pytest.raises(CheckpointError, match=rf"{end}.* has shape \(3, 5\); the config asks for \("):
        loaded(whole | {core: torch.zeros(3, 5)})
    with pytest.raises(CheckpointError, match=r"0 of \d+ tensors matched"):
        loaded({f"foo.{name}": tensor for name, tensor in whole.items()})


@each_family
@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_change_nothing(reference: Reference, prefix: str, tmp_path: Path) -> None:
    whole = tensors(locate(reference.path))
    folder = folder_of(reference, tmp_path / "renamed", {prefix + name: tensor for name, tensor in whole.items()})
    assert torch.equal(logits_of(folder), logits_of(reference.path))


@each_family
def test_tied_weights_may_be_stored_under_either_name(reference: Reference, tmp_path: Path) -> None:
    found = identify(locate(reference.path))
    family, whole = FAMILIES[reference.family], tensors(locate(reference.path))
    names = family.key_map(found.config)
    shared = [theirs for theirs, ours in names.items() if ours == "tokens.weight"]
    if len(shared) == 1:
        head = next(theirs for theirs, ours in names.items() if ours == "lm_head.weight")
        without = {name: tensor for name, tensor in whole.items() if name != head}
        with pytest.raises(CheckpointError, match="missing: lm_head"):
            card(folder_of(reference, tmp_path / "none", without))
        return
    weight = next(whole[name] for name in shared if name in whole)
    rest = {name: tensor for name, tensor in whole.items() if name not in shared}
    wanted = logits_of(reference.path)
    for number, kept in enumerate((shared, shared[:1], shared[1:])):
        folder = folder_of(reference, tmp_path / str(number), rest | dict.fromkeys(kept, weight))
        assert torch.equal(logits_of(folder), wanted)
    with pytest.raises(CheckpointError, match=r"missing: .* or "):
        card(folder_of(reference, tmp_path / "neither", rest))
    apart = rest | {shared[0]: weight, shared[1]: weight + 1}
    with pytest.raises(CheckpointError, match="tied by the config and differ"):
        load(locate(folder_of(reference, tmp_path / "apart", apart)), dtype="float32", device="cpu")


def test_another_looped_model_that_calls_itself_plain_llama_is_refused(tmp_path: Path) -> None:
    reference = next(r for r in NATIVE if r.folder == "ouro-tiny")
    config = dict(identify(locate(reference.path)).config) | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    with pytest.raises(CheckpointError, match=r"'llama'|could be"):
        identify(locate(folder_of(reference, tmp_path / "made", tensors(locate(reference.path)), config)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@each_family
def test_half_precision_runs_and_keeps_its_tables_in_float32(reference: Reference, dtype: str) -> None:
    loaded = load(locate(reference.path), dtype=dtype, device="cpu")
    assert {p.dtype for p in loaded.network.parameters()} == {getattr(torch, dtype)}
    assert all(table.dtype == torch.float32 for table in loaded.network.buffers())
    found = run(Request(reference.path, (Prompt(ids=(1, 2, 3)),), (2,), dtype=dtype)).trajectories[0]  # type: ignore[arg-type]
    assert found.provenance.dtype == dtype
    assert np.isfinite(found.blocks[-1].states).all()


@pytest.mark.parametrize("family", ["huginn", "retrofit_llama", "retrofit_olmo"])
@pytest.mark.parametrize("values", [[1], "0.02", 7])
def test_initial_values_that_are_no_mapping_are_one_sentence(family: str, values: object) -> None:
    with pytest.raises(ValueError, match=r"init_values is .*; a mapping of fields was expected"):
        FAMILIES[family].initial_rule(RAVEN | {"init_values": values})


# What a config may hold where a number, a switch, a word or a list was expected.
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-3, 10**9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_config_of_any_kind_gives_a_network_or_a_sentence(family: str, data: st.DataObject) -> None:
    base = next(config for name, config in VARIANTS.values() if name == family)
    inner = dict(base.get("model_args", base))
    for field in data.draw(st.lists(st.sampled_from(sorted(inner)), min_size=1, max_size=3)):
        inner[field] = data.draw(ODD)
    config = {"model_args": inner} if "model_args" in base else inner
    architecture = FAMILIES[family]
    complaints = [
        _complaint(lambda: architecture.settled(config, frozenset())),
        _complaint(lambda: architecture.key_map(config)),
        _complaint(lambda: architecture.initial_rule(config)),
        _complaint(lambda: architecture.loops_trained(config)),
        _complaint(lambda: architecture.config_loops(config)),
    ]
    assert all(said is None or said.strip() for said in complaints)


def _complaint(read: Callable[[], object]) -> str | None:
    """What a ValueError says; any other exception is a failure."""
    try:
        read()
    except ValueError as error:
        return str(error)
    return None


@each_family
def test_a_billion_layers_are_refused_before_anything_is_built(reference: Reference, tmp_path: Path) -> None:
    config = json.loads(json.dumps(dict(identify(locate(reference.path)).config), default=str))
    inner = config.get("model_args", config)
    field = next(name for name in inner if name in ("num_hidden_layers", "n_layers_in_recurrent_block", "n_block", "n_layer"))
    inner[field] = 10**9
    folder = folder_of(reference, tmp_path / "huge", tensors(locate(reference.path)), config)
    with pytest.raises(CheckpointError, match=f"{field} is 1000000000"):
        card(folder)


def test_padding_of_the_vocabulary_is_part_of_the_model_and_labelled_unused(tmp_path: Path) -> None:
    folder = str(write(tmp_path / "padded", "huginn", RAVEN | {"vocab_size": 250, "padded_vocab_size": 320}))
    assert card(folder).vocabulary == 320
    assert load_file(Path(folder) / "model.safetensors")["transformer.wte.weight"].shape[0] == 320
    tokenizer = json.loads((Path(NATIVE[2].path) / "tokenizer.json").read_text())
    (Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer))
    found = run(Request(folder, (Prompt(ids=(65, 319)),), (2,))).trajectories[0]
    assert found.labels[1] == "⟨unused 319⟩"
