"""What looped forks of nanoGPT have in common: tensor names of a layer, and a config that may leave out ``bias``."""

from collections.abc import Mapping
from typing import Any

from model.config import section

_LAYER_KEYS = {
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.out",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.down",
}


def nanogpt_keys(*, bias: bool) -> dict[str, str]:
    """NanoGPT's names of the matrices of a layer, and of their biases, -> ours. Norms are each fork's own."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{theirs}.{kind}": f"{ours}.{kind}" for theirs, ours in _LAYER_KEYS.items() for kind in kinds}


def with_bias(config: Mapping[str, Any], keys: frozenset[str]) -> Mapping[str, Any]:
    """The config, in which a missing ``bias`` is read from the tensor names."""
    args = section(config, "model_args")
    if args.get("bias") is not None:
        return config
    filled = {**args, "bias": any(key.endswith("attn.c_attn.bias") for key in keys)}
    return {**config, "model_args": filled} if "model_args" in config else filled
