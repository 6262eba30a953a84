"""Blocks that a person names in a model of the transformers library: golden states, wrong names, what a request keeps."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (the library is met without types)

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model import library, opened, runner
from model.capture.errors import CaptureError
from model.capture.trajectory import Trajectory
from model.checkpoint import card, load
from model.locate import CheckpointError, locate
from model.named_block import NamedBlock
from model.request import Prompt, Request, RequestError

DATA = Path(__file__).parent.parent / "data"
ALBERT = NamedBlock(
    block="albert.encoder.albert_layer_groups.0",
    count="num_hidden_layers",
    norm="predictions.dense, predictions.activation, predictions.LayerNorm",
    head="predictions.decoder",
)
DORY = NamedBlock(block="model.layers.2:5", count="n_recurrent_loops")
GPT = NamedBlock(block="transformer.h", norm="transformer.ln_f", head="lm_head")
IDS = (3, 1, 4, 1, 5)


@pytest.fixture(autouse=True)
def _no_model_stays() -> Any:
    yield
    opened._loaded.clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random GPT-2 of four layers, saved as the library saves."""
    transformers = library.transformers("A test")
    config = transformers.GPT2Config(
        n_layer=4, n_embd=16, n_head=2, vocab_size=40, n_positions=32, n_inner=32, bos_token_id=None, eos_token_id=None
    )
    return saved(config, transformers.GPT2LMHeadModel, tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Llama of two layers whose head is the token embedding, so that every tensor's name begins with model."""
    transformers = library.transformers("A test")
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=40,
        max_position_embeddings=32,
        tie_word_embeddings=True,
    )
    return saved(config, transformers.LlamaForCausalLM, tmp_path_factory.mktemp("llama"))


def saved(config: Any, kind: Any, folder: Path) -> str:
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    with library.contained(library.transformers("A test")):
        model.save_pretrained(folder)
    return str(folder)


def golden(folder: str) -> dict[str, np.ndarray]:
    with np.load(DATA / folder / "golden.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def run(path: str, named: NamedBlock, *, loops: tuple[int, ...], ids: tuple[int, ...] = IDS) -> Trajectory:
    return runner.run(Request(path, (Prompt(ids=ids),), loops, named=named)).trajectories[0]


def never(block: int, entry: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a block that starts from its own input asked for another start")


def test_a_named_albert_gives_golden_states_and_readouts() -> None:
    wanted = golden("albert-tiny")
    found = run(str(DATA / "albert-tiny"), ALBERT, loops=(6,), ids=tuple(int(i) for i in wanted["input_ids"]))
    (block,) = found.blocks
    np.testing.assert_allclose(block.states, wanted["states_0"], atol=1e-4, rtol=0)
    np.testing.assert_allclose(block.entry, wanted["entry_0"], atol=1e-4, rtol=0)
    log_p = torch.from_numpy(wanted["coda_logits"]).double().log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1).numpy()
    for lens in ("logit", "coda"):
        np.testing.assert_allclose(block.readouts[lens, "entropy"], entropy, atol=1e-4)
    assert ("coda", "log_probability_next") not in block.readouts
    assert "masked" in found.left_out[0]
    assert (found.provenance.architecture, block.name) == ("named", ALBERT.block)


def test_a_named_part_of_a_list_gives_golden_iterates_and_no_readouts_without_a_head() -> None:
    wanted = golden("dory-tiny")
    found = run(str(DATA / "dory-tiny"), DORY, loops=(6,), ids=tuple(int(i) for i in wanted["input_ids"]))
    (block,) = found.blocks
    np.testing.assert_allclose(block.states[1:], wanted["states_0"][1:], atol=1e-4, rtol=0)
    np.testing.assert_allclose(block.states[0], wanted["block_input_0"][0], atol=1e-4, rtol=0)
    assert block.layers == (2, 3, 4)
    assert block.readouts == {}
    assert found.left_out == ("everything decoded: no head was named, so iterates cannot be read",)


def test_a_head_that_the_model_scales_is_refused() -> None:
    named = replace(DORY, norm="model.norm", head="lm_head")
    with pytest.raises(CheckpointError, match=r"lm_head alone gives other logits than the model .* scales or caps"):
        run(str(DATA / "dory-tiny"), named, loops=(2,))


@pytest.mark.parametrize("part", ["transformer.h", "transformer.h.1:3", "transformer.h.3"])
def test_a_plain_stack_is_one_loop_and_its_coda_is_the_rest_of_the_model(gpt: str, part: str) -> None:
    named = replace(GPT, block=part)
    network = load(locate(gpt), dtype="float32", device="cpu", named=named).network
    inner: Any = network
    ids = torch.tensor([IDS])
    (block,) = run(gpt, named, loops=(1,)).blocks
    with torch.inference_mode():
        plain = inner.model(input_ids=ids, output_hidden_states=True)
        state = torch.from_numpy(block.states[1:].copy())
        assert torch.equal(network(ids, loops=[1], initial_state=never), plain.logits)
        coda = network.head.logits(network.features(state, ids=ids[0], lens="coda"))
        several = network.features(torch.cat([state, state.roll(1, dims=-1)]), ids=ids[0], lens="coda")
    np.testing.assert_allclose(coda, plain.logits, atol=1e-4)
    assert not torch.allclose(several[0], several[1], atol=1e-2)
    first = {"transformer.h": 0, "transformer.h.1:3": 1, "transformer.h.3": 3}[part]
    np.testing.assert_allclose(block.states[0], plain.hidden_states[first][0], atol=1e-6)


def test_several_blocks_run_in_order_and_hand_over(gpt: str) -> None:
    named = replace(GPT, block="transformer.h.0:1, transformer.h.2:4")
    first, second = run(gpt, named, loops=(1,)).blocks
    assert (first.name, second.name) == ("transformer.h.0:1", "transformer.h.2:4")
    assert (first.layers, second.layers) == ((0,), (2, 3))
    assert {lens for lens, _ in first.readouts} == {"logit"}
    assert {lens for lens, _ in second.readouts} == {"logit", "coda"}


def test_tied_embeddings_and_names_that_begin_with_model(llama: str) -> None:
    named = NamedBlock("model.layers", norm="model.norm", head="lm_head")
    (block,) = run(llama, named, loops=(1,)).blocks
    for quantity in ("entropy", "top10_probability"):
        np.testing.assert_allclose(block.readouts["logit", quantity], block.readouts["coda", quantity], atol=1e-5)
    found = card(llama, named=named)
    assert (found.architecture, found.width, found.vocabulary, found.context) == ("named", 16, 40, 32)
    assert found.block_names == ("model.layers",)
    assert found.fixed_start


def test_half_precision_passes_the_check_of_the_head(gpt: str) -> None:
    request = Request(gpt, (Prompt(ids=IDS),), (1,), named=GPT, dtype="bfloat16")
    assert np.isfinite(runner.run(request).trajectories[0].blocks[0].readouts["coda", "entropy"]).all()


def test_loops_that_the_model_does_not_run_are_refused_with_both_numbers(gpt: str) -> None:
    with pytest.raises(RequestError, match=r"transformer\.h ran 1 loops and 6 were asked for\. Ask for 1, or name the config"):
        run(gpt, GPT, loops=(6,))
    with pytest.raises(RequestError, match=r"ran 1 loops and 2 were asked for: n_inner does not set their number"):
        run(str(gpt), replace(GPT, count="n_inner"), loops=(2,))
    with pytest.raises(RequestError, match="2, 3 loops were asked for and n_inner sets one number"):
        run(gpt, replace(GPT, block="transformer.h.0:1,transformer.h.2:3", count="n_inner"), loops=(2, 3))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block": "transformer.hh"}, r"GPT2LMHeadModel has no module 'transformer\.hh'; near names: transformer\.h"),
        ({"block": "h"}, r"no module 'h'; near names: transformer\.h"),
        ({"block": "transformer.h.9"}, r"no module 'transformer\.h\.9'"),
        ({"block": "transformer.h.2:9"}, r"names the layers 2 to 8, and transformer\.h has 4, counted from 0"),
        ({"block": "transformer.ln_f.0:1"}, r"transformer\.ln_f is a LayerNorm and no list; name it without \.0:1"),
        ({"block": " , "}, "No looped block was named"),
        ({"block": "transformer.h, transformer.h.3"}, "end in the same module"),
        ({"count": "num_hidden_layer"}, "no field 'num_hidden_layer'; near names: .*layer"),
        ({"count": "activation_function"}, "activation_function is 'gelu_new'; a field that holds the number of loops"),
        ({"count": "n_layer,n_layer"}, "2 count fields were named for 1 blocks"),
        ({"norm": "transformer.lnf"}, r"no module 'transformer\.lnf'; near names: transformer\.ln_f"),
        ({"norm": "transformer.h.0.mlp.c_proj"}, "does not take a state of width 16"),
        ({"norm": "transformer.h.0.mlp.c_fc"}, "gives 32 numbers per token and lm_head takes 16"),
        ({"head": "transformer.ln_f"}, r"head transformer\.ln_f is a LayerNorm; a linear module was expected"),
        ({"head": "lm_heads"}, "near names: lm_head"),
        ({"head": "transformer.wpe"}, r"transformer\.wpe is not what gives this model's logits"),
    ],
)
def test_names_that_lead_nowhere_are_one_sentence_with_near_names(gpt: str, changes: dict[str, str], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        run(gpt, replace(GPT, **changes), loops=(1,))


@pytest.mark.parametrize("block", ["lm_head", "transformer.h.0.mlp.c_fc"])
def test_a_block_that_gives_no_state_of_the_shape_that_it_takes_is_refused(gpt: str, block: str) -> None:
    with pytest.raises(CaptureError, match=r"returned shape .*Name another block"):
        run(gpt, NamedBlock(block), loops=(1,))


def test_a_block_that_takes_no_state_is_refused(gpt: str) -> None:
    with pytest.raises(CaptureError, match=r"transformer\.wte was handed a tensor of shape \(1, 5\)"):
        run(gpt, NamedBlock("transformer.wte"), loops=(1,))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "own_model"}, "model_type is 'own_model', which the transformers library does not know"),
        ({"model_type": None}, "model_type is None"),
        ({"model_type": "vit"}, "no language model for model_type 'vit'"),
        ({"n_layer": 10**9}, "n_layer is 1000000000; at most 4096"),
        ({"n_inner": 10**7}, r"asks for \d+ weights and model\.safetensors holds \d+"),
    ],
)
def test_configs_that_cannot_be_used(gpt: str, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    config = json.loads((Path(gpt) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    (tmp_path / "model.safetensors").write_bytes((Path(gpt) / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=said):
        load(locate(str(tmp_path)), dtype="float32", device="cpu", named=GPT)


def test_a_transformers_model_of_no_family_is_told_of_the_names(gpt: str) -> None:
    with pytest.raises(CheckpointError, match=r"of no family known here .*'gpt2'.* or name the looped block .*\(--block\)\.$"):
        load(locate(gpt), dtype="float32", device="cpu")


def test_one_model_under_two_names_is_two_models(gpt: str) -> None:
    assert run(gpt, GPT, loops=(1,)).blocks[0].layers == (0, 1, 2, 3)
    assert run(gpt, replace(GPT, block="transformer.h.1:3"), loops=(1,)).blocks[0].layers == (1, 2)


def test_without_the_library_it_says_what_to_install(gpt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "version", lambda name: "4.57.1")
    with pytest.raises(CheckpointError, match=r"A named block needs transformers 5\.24\.0 to 5\.24\.x, found 4\.57\.1"):
        run(gpt, GPT, loops=(1,))


def test_a_request_keeps_the_names_and_one_without_them_is_as_it_was() -> None:
    plain = Request("demo", (Prompt("Hi"),), (2,))
    named = replace(plain, named=GPT)
    assert "named" not in plain.to_json()
    assert Request.from_json(json.loads(json.dumps(named.to_json()))) == named
    assert Request.from_json(plain.to_json()) == plain
    assert len({plain.key(), named.key(), replace(plain, named=ALBERT).key()}) == 3
    for odd in ({"block": 7}, {"block": "h", "shape": "round"}, {}, "h", [1]):
        with pytest.raises(RequestError, match="cannot be read"):
            Request.from_json({**plain.to_json(), "named": odd})
