"""Huginn: one sandwich-normed block, looped on [state; entry] from a truncated normal start.

Source: Geiping et al., "Scaling up Test-Time Compute with Latent Reasoning", arXiv 2502.05171, section 3,
in the form of the authors' public inference code.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import Context, LoopedNetwork, NativeArchitecture, Space
from model.config import choice, integer, layers, mapping, mean_loops, number, run_loops, switch
from model.layers import CausalAttention, Heads, PackedGatedMlp, Rotary, rms_norm, rotary_from_table
from model.skeleton import Parts, PreludeCoreCoda, layer_keys
from model.start import InitialRule


@dataclass(frozen=True)
class _Config:
    heads: Heads
    hidden: int
    context: int
    vocabulary: int
    prelude: int
    core: int
    coda: int
    eps: float
    bias: bool
    qk_bias: bool
    tied: bool


def _read_config(config: Mapping[str, Any]) -> _Config:
    width, heads = integer(config, "n_embd"), integer(config, "n_heads")
    choice(config, "mlp_class_name", ("GatedMLP",), "GatedMLP")
    choice(config, "nonlin_name", ("SiLU",), "SiLU")
    choice(config, "injection_type", ("linear",), "linear")
    read = _Config(
        heads=Heads.of(width, heads, integer(config, "num_key_value_heads", heads)),
        hidden=integer(config, "intermediate_size"),
        context=integer(config, "block_size"),
        vocabulary=integer(config, "padded_vocab_size", config.get("vocab_size")),
        prelude=layers(config, "n_layers_in_prelude"),
        core=layers(config, "n_layers_in_recurrent_block", least=1),
        coda=layers(config, "n_layers_in_coda"),
        eps=number(config, "norm_eps", 1e-6),
        bias=switch(config, "bias", default=False),
        qk_bias=switch(config, "qk_bias", default=True),
        tied=switch(config, "tie_embeddings", default=True),
    )
    if read.qk_bias and read.heads.query != read.heads.key:
        raise ValueError(
            f"qk_bias has one row for {read.heads.query} query and {read.heads.key} key heads; they must be as many."
        )
    return read


class _Attention(CausalAttention):
    """Queries and keys are shifted by learned biases, then rotated."""

    def __init__(self, config: _Config) -> None:
        super().__init__(config.heads, bias=config.bias)
        shape = (2, 1, config.heads.query, config.heads.head_width)
        self.qk_bias = nn.Parameter(torch.zeros(shape)) if config.qk_bias else None

    def prepare(
        self, q: Tensor, k: Tensor, v: Tensor, x: Float[Tensor, "B T C"], context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.qk_bias is not None:
            q, k = q + self.qk_bias[0], k + self.qk_bias[1]
        return super().prepare(q, k, v, x, context)


class _Layer(nn.Module):
    """x = RMS_2(attn(RMS_1(x)) + x); x = RMS_4(mlp(RMS_3(x)) + x)."""

    def __init__(self, config: _Config) -> None:
        super().__init__()
        width = config.heads.width
        self.norm_1, self.norm_2 = rms_norm(width, config.eps), rms_norm(width, config.eps)
        self.norm_3, self.norm_4 = rms_norm(width, config.eps), rms_norm(width, config.eps)
        self.attention = _Attention(config)
        self.mlp = PackedGatedMlp(width, config.hidden, bias=config.bias)

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        x = self.norm_2(self.attention(self.norm_1(x), context) + x)
        return self.norm_4(self.mlp(self.norm_3(x)) + x)


class _Network(PreludeCoreCoda):
    def __init__(self, config: _Config) -> None:
        width = config.heads.width
        super().__init__(
            Parts(
                prelude=[_Layer(config) for _ in range(config.prelude)],
                core=[_Layer(config) for _ in range(config.core)],
                coda=[_Layer(config) for _ in range(config.coda)],
                norm=rms_norm(width, config.eps),
                width=width,
                vocabulary=config.vocabulary,
                context=config.context,
                tied=config.tied,
                name="core_block",
            )
        )
        self.adapter = nn.Linear(2 * width, width, bias=config.bias)
        self.table = nn.Buffer(torch.zeros(1, config.context, 1, config.heads.head_width // 2, 2))

    def rotary(self, tokens: int) -> Rotary:
        return rotary_from_table(self.table, tokens)

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        return self.tokens(ids) * math.sqrt(self.width)

    def inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T C"], loop: int) -> Float[Tensor, "B T C"]:
        return self.adapter(torch.cat([state, entry], dim=-1))

    def leave(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.norm(state)


_LAYER_KEYS = {
    "norm_1.weight": "norm_1.weight",
    "norm_2.weight": "norm_2.weight",
    "norm_3.weight": "norm_3.weight",
    "norm_4.weight": "norm_4.weight",
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


@dataclass(frozen=True)
class Huginn(NativeArchitecture):
    """Huginn, the recurrent-depth transformer of arXiv 2502.05171."""

    name: ClassVar[str] = "huginn"
    title: ClassVar[str] = "Huginn (Raven)"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "adapter([state; entry]) before every loop"
    logit_lens: ClassVar[str] = "ln_f, head"
    recognised_by: ClassVar[str] = "`model_type` huginn_raven; `norm_3`, `norm_4` in every layer and a `freqs_cis` table"
    verified: ClassVar[str] = (
        "states, logits, every coda-lens logit; cross-entropy at ten depths and a greedy continuation of a trained one"
    )

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """The model type is shared with the retrofits: the four norms of a sandwich layer decide."""
        return (
            config.get("model_type") == "huginn_raven"
            and "freqs_cis" in keys
            and any(k.startswith("transformer.") and k.endswith(".norm_4.weight") for k in keys)
        )

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is missing, odd or not supported."""
        return _Network(_read_config(config))

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The authors' tensor names -> ours; the head shares the embedding where the config ties them."""
        read = _read_config(config)
        own = dict(_LAYER_KEYS) | (_BIAS_KEYS if read.bias else {})
        if read.qk_bias:
            own["attn.qk_bias"] = "attention.qk_bias"
        names: dict[str, str | None] = {
            "transformer.wte.weight": "tokens.weight",
            "lm_head.weight": "tokens.weight" if read.tied else "lm_head.weight",
            "transformer.adapter.weight": "adapter.weight",
            "transformer.ln_f.weight": "norm.weight",
            "freqs_cis": "table",
        }
        if read.bias:
            names["transformer.adapter.bias"] = "adapter.bias"
        for theirs, ours, count in (
            ("prelude", "prelude", read.prelude),
            ("core_block", "core.layers", read.core),
            ("coda", "coda", read.coda),
        ):
            names |= layer_keys(f"transformer.{theirs}", ours, count, own)
        return names

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``mean_recurrence``."""
        return mean_loops(config, "mean_recurrence")

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``mean_recurrence``, which the authors' code runs in evaluation."""
        return run_loops(config, "mean_recurrence")

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """Truncated normal of std ``init_values.std`` times sqrt(width), cut at 3 std."""
        width = integer(config, "n_embd")
        std = number(mapping(config, "init_values") or {}, "std", math.sqrt(2 / (5 * width)))
        return InitialRule(std=std * math.sqrt(width), from_entry=False, cut=3.0)
