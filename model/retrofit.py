"""The network of retrofitted models: layers of a plain language model, cut into prelude, core and coda, with an adapter.

Source: McLeish et al., "Teaching Pretrained Language Models to Think Deeper with Retrofitted Recurrence",
arXiv 2511.07384, in the form of the authors' public code. Llama and OLMo differ in their layers only.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.config import choice, integer, layers, mapping, number, switch
from model.layers import Heads, Rotary, rms_norm, rope_kind, rotary_from_base
from model.skeleton import Parts, PreludeCoreCoda, layer_keys
from model.start import InitialRule


@dataclass(frozen=True)
class RetrofitConfig:
    """What the two networks are built from. ``embed_scale`` multiplies the token embeddings and the initial noise."""

    heads: Heads
    hidden: int
    context: int
    vocabulary: int
    prelude: int
    core: int
    coda: int
    eps: float
    bias: bool
    tied: bool
    rope_base: float
    rope_scaling: Mapping[str, Any] | None
    embed_scale: float


def read_retrofit(config: Mapping[str, Any]) -> RetrofitConfig:
    """The config with its fields checked. Raises ValueError naming the field that is missing, odd or not supported."""
    width, heads = integer(config, "n_embd"), integer(config, "n_heads")
    choice(config, "mlp_class_name", ("GatedMLP",), "GatedMLP")
    choice(config, "nonlin_name", ("SiLU",), "SiLU")
    choice(config, "injection_type", ("linear",), "linear")
    if switch(config, "qk_bias", default=False):
        raise ValueError("qk_bias is true; retrofitted models have none, so this config belongs to another family.")
    scaling = mapping(config, "rope_scaling")
    rope_kind(scaling)
    context = integer(config, "max_position_embeddings", config.get("block_size"))
    return RetrofitConfig(
        heads=Heads.of(
            width, heads, integer(config, "num_key_value_heads", heads), integer(config, "head_dim", width // heads)
        ),
        hidden=integer(config, "intermediate_size"),
        context=context,
        vocabulary=integer(config, "padded_vocab_size", config.get("vocab_size")),
        prelude=layers(config, "n_layers_in_prelude"),
        core=layers(config, "n_layers_in_recurrent_block", least=1),
        coda=layers(config, "n_layers_in_coda"),
        eps=number(config, "norm_eps", 1e-6),
        bias=switch(config, "bias", default=False),
        tied=switch(config, "tie_embeddings", default=False),
        rope_base=number(config, "rope_theta", 10_000.0),
        rope_scaling=scaling,
        embed_scale=number(mapping(config, "init_values") or {}, "embed_scale", 1.0),
    )


class RetrofitNetwork(PreludeCoreCoda):
    """Token embeddings, the layers of a pretrained model around and inside a loop, an adapter on [state; entry].

    ``skips_adapter``: loop 1 starts from a copy of the entry and runs without the adapter.
    """

    def __init__(
        self, config: RetrofitConfig, layer: Callable[[RetrofitConfig], nn.Module], *, skips_adapter: bool = False
    ) -> None:
        width = config.heads.width
        super().__init__(
            Parts(
                prelude=[layer(config) for _ in range(config.prelude)],
                core=[layer(config) for _ in range(config.core)],
                coda=[layer(config) for _ in range(config.coda)],
                norm=rms_norm(width, config.eps),
                width=width,
                vocabulary=config.vocabulary,
                context=config.context,
                tied=config.tied,
                name="core_block",
            )
        )
        self._config, self._skips_adapter = config, skips_adapter
        self.adapter = nn.Linear(2 * width, width, bias=config.bias)

    def rotary(self, tokens: int) -> Rotary:
        """Halves of a head are paired; the base is ``rope_theta``."""
        config = self._config
        return rotary_from_base(
            tokens,
            config.heads.head_width,
            base=config.rope_base,
            device=self.tokens.weight.device,
            scaling=config.rope_scaling,
        )

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Token embeddings times ``embed_scale``."""
        return self.tokens(ids) * self._config.embed_scale

    def inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T C"], loop: int) -> Float[Tensor, "B T C"]:
        """adapter([state; entry])."""
        if loop == 1 and self._skips_adapter:
            return state
        return self.adapter(torch.cat([state, entry], dim=-1))


_LAYER_KEYS = {
    "norm_1.weight": "norm_1.weight",
    "norm_2.weight": "norm_2.weight",
    "attn.Wqkv.weight": "attention.qkv.weight",
    "attn.proj.weight": "attention.out.weight",
    "mlp.fc.weight": "mlp.gate_up.weight",
    "mlp.proj.weight": "mlp.down.weight",
}
_BIAS_KEYS = {
    "attn.Wqkv.bias": "attention.qkv.bias",
    "attn.proj.bias": "attention.out.bias",
    "mlp.fc.bias": "mlp.gate_up.bias",
    "mlp.proj.bias": "mlp.down.bias",
}


def retrofit_keys(config: Mapping[str, Any], extra: Mapping[str, str]) -> dict[str, str | None]:
    """The authors' tensor names -> ours; ``extra`` are names of a layer that one of the two has alone."""
    read = read_retrofit(config)
    own = _LAYER_KEYS | dict(extra) | (_BIAS_KEYS if read.bias else {})
    names: dict[str, str | None] = {
        "transformer.wte.weight": "tokens.weight",
        "lm_head.weight": "tokens.weight" if read.tied else "lm_head.weight",
        "transformer.adapter.weight": "adapter.weight",
        "transformer.ln_f.weight": "norm.weight",
    }
    if read.bias:
        names["transformer.adapter.bias"] = "adapter.bias"
    parts = (("prelude", "prelude", read.prelude), ("core_block", "core.layers", read.core), ("coda", "coda", read.coda))
    for theirs, ours, count in parts:
        names |= layer_keys(f"transformer.{theirs}", ours, count, own)
    return names


def is_raven(config: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Whether config and keys are of the code base that the retrofits share with Huginn, without Huginn's sandwich layers."""
    norms = {key.rpartition(".norm_")[2] for key in keys if key.startswith("transformer.") and ".norm_" in key}
    return config.get("model_type") == "huginn_raven" and norms == {"1.weight", "2.weight"}


def noise_rule(config: Mapping[str, Any]) -> InitialRule:
    """Truncated normal of std ``init_values.std`` times ``init_values.embed_scale``, cut at 3 std."""
    values, width = mapping(config, "init_values") or {}, integer(config, "n_embd")
    std = number(values, "std", math.sqrt(2 / (5 * width))) * number(values, "embed_scale", 1.0)
    return InitialRule(std=std, from_entry=False, cut=3.0)
