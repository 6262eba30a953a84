"""What several families share: feed-forward, rotation from a base, and configs that leave something out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model.checkpoint import load
from model.layers import Activation, Mlp, PackedGatedMlp
from model.locate import locate
from model.rope import Rope
from tests.model.variants import FAMILIES, NANO, OURO, RAVEN, TWO_SCALE, VARIANTS, write

CPU = torch.device("cpu")


def cubed(x: Tensor) -> Tensor:
    return x**3


@pytest.mark.parametrize("activation", [cubed, F.silu, F.gelu])
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward_is_its_formula(activation: Activation, bias: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4)
    plain, gated = (kind(4, 6, bias=bias, activation=activation) for kind in (Mlp, PackedGatedMlp))
    assert isinstance(plain, Mlp)
    assert isinstance(gated, PackedGatedMlp)
    torch.testing.assert_close(plain(x), F.linear(activation(plain.up(x)), plain.down.weight, plain.down.bias))
    both: Tensor = gated.gate_up(x)
    torch.testing.assert_close(gated(x), gated.down(activation(both[..., :6]) * both[..., 6:]))


def test_the_rotation_of_a_base_is_its_formula() -> None:
    found = Rope(100.0).rotary(5, 4, device=CPU)
    angles = torch.arange(5.0)[:, None] * torch.tensor([1.0, 0.1])
    torch.testing.assert_close(found.cos, angles.cos())
    torch.testing.assert_close(found.sin, angles.sin())
    assert found.pairing == "halves"


def test_what_two_heads_see_of_each_other_depends_on_their_distance_alone() -> None:
    torch.manual_seed(0)
    rotary = Rope(50.0).rotary(12, 8, device=CPU)
    q, k = (torch.randn(1, 1, 1, 8).expand(1, 12, 1, 8) for _ in range(2))
    scores = rotary.turn(q)[0, :, 0] @ rotary.turn(k)[0, :, 0].T
    for distance in (0, 1, 5):
        along = scores.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert not torch.allclose(scores[0, 0], scores[0, 5])


def test_scaled_positions_are_those_of_the_transformers_library() -> None:
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    configuration = pytest.importorskip("transformers").LlamaConfig
    scaling = dict(VARIANTS["llama scaled positions"][1]["rope_scaling"])
    config = configuration(hidden_size=64, num_attention_heads=4, rope_parameters=scaling | {"rope_theta": 10000.0})
    inverse, _ = rope.ROPE_INIT_FUNCTIONS["llama3"](config, CPU)
    angles = torch.outer(torch.arange(9.0), inverse)
    ours = Rope(10000.0, scaling).rotary(9, 16, device=CPU)
    torch.testing.assert_close(ours.cos, angles.cos(), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.sin, angles.sin(), atol=1e-6, rtol=0)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ODD_SCALINGS = [
    ({"rope_type": "yarn", "factor": 2.0}, r"rope_scaling has the type 'yarn'; this version can build default, llama3"),
    ({"type": "linear"}, r"rope_scaling has the type 'linear'"),
    (LLAMA3, r"original_max_position_embeddings is missing"),
    (LLAMA3 | {"original_max_position_embeddings": 0}, r"original_max_position_embeddings is 0; a positive number"),
    (LLAMA3 | {"original_max_position_embeddings": 8, "factor": "8"}, r"factor is '8'; a finite number"),
]


@pytest.mark.parametrize(("scaling", "said"), ODD_SCALINGS)
@pytest.mark.parametrize(("family", "config"), [("ouro", OURO), ("retrofit_llama", RAVEN), ("retrofit_olmo", RAVEN)])
def test_a_rotation_that_cannot_be_built_is_one_sentence_before_anything_is_built(
    family: str, config: dict[str, Any], scaling: dict[str, Any], said: str
) -> None:
    for read in (FAMILIES[family].build, FAMILIES[family].key_map):
        with pytest.raises(ValueError, match=said):
            read(config | {"rope_scaling": scaling})


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(("family", "args"), [("nanoloop", NANO), ("latent_ttc", TWO_SCALE)])
def test_a_bias_that_the_config_leaves_out_is_read_from_the_tensor_names(
    family: str, args: dict[str, Any], nested: bool, bias: bool, tmp_path: Path
) -> None:
    told = args | {"bias": bias}
    folder = write(tmp_path / "made", family, {"model_args": told} if nested else told)
    wanted = load(locate(str(folder)), dtype="float32", device="cpu").network.state_dict()
    assert any("attention.qkv.bias" in name for name in wanted) == bias
    for silent in (args, args | {"bias": None}):
        (folder / "config.json").write_text(json.dumps({"model_args": silent} if nested else silent), encoding="utf-8")
        found = load(locate(str(folder)), dtype="float32", device="cpu").network.state_dict()
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
