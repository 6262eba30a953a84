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
from model.config import integer, mean_loops, run_loops, switch
from model.layers import CausalAttention, Heads, PackedGatedMlp, Rotary, rms_norm, rotary_from_table
from model.raven import RavenNetwork, RavenSizes, noise_rule, raven_keys, read_sizes
from model.start import InitialRule


@dataclass(frozen=True)
class _Config:
    sizes: RavenSizes
    qk_bias: bool


def _read_config(config: Mapping[str, Any]) -> _Config:
    width, query = integer(config, "n_embd"), integer(config, "n_heads")
    heads = Heads.of(width, query, integer(config, "num_key_value_heads", query))
    qk_bias = switch(config, "qk_bias", default=True)
    if qk_bias and heads.query != heads.key:
        raise ValueError(f"qk_bias has one row for {heads.query} query and {heads.key} key heads; they must be as many.")
    sizes = read_sizes(config, heads=heads, context=integer(config, "block_size"), tied=True)
    return _Config(sizes=sizes, qk_bias=qk_bias)


class _Attention(CausalAttention):
    """Queries and keys are shifted by learned biases, then rotated."""

    def __init__(self, heads: Heads, *, bias: bool, qk_bias: bool) -> None:
        super().__init__(heads, bias=bias)
        self.qk_bias = nn.Parameter(torch.zeros(2, 1, heads.query, heads.head_width)) if qk_bias else None

    def prepare(
        self, q: Tensor, k: Tensor, v: Tensor, x: Float[Tensor, "B T C"], context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.qk_bias is not None:
            q, k = q + self.qk_bias[0], k + self.qk_bias[1]
        return super().prepare(q, k, v, x, context)


class _Layer(nn.Module):
    """x = RMS_2(attn(RMS_1(x)) + x); x = RMS_4(mlp(RMS_3(x)) + x)."""

    def __init__(self, sizes: RavenSizes, *, qk_bias: bool) -> None:
        super().__init__()
        width = sizes.heads.width
        self.norm_1, self.norm_2 = rms_norm(width, sizes.eps), rms_norm(width, sizes.eps)
        self.norm_3, self.norm_4 = rms_norm(width, sizes.eps), rms_norm(width, sizes.eps)
        self.attention = _Attention(sizes.heads, bias=sizes.bias, qk_bias=qk_bias)
        self.mlp = PackedGatedMlp(width, sizes.hidden, bias=sizes.bias)

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        x = self.norm_2(self.attention(self.norm_1(x), context) + x)
        return self.norm_4(self.mlp(self.norm_3(x)) + x)


class _Network(RavenNetwork):
    def __init__(self, config: _Config) -> None:
        sizes = config.sizes
        super().__init__(sizes, lambda sizes: _Layer(sizes, qk_bias=config.qk_bias))
        self.table = nn.Buffer(torch.zeros(1, sizes.context, 1, sizes.heads.head_width // 2, 2))

    def rotary(self, tokens: int) -> Rotary:
        return rotary_from_table(self.table, tokens)

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        return self.tokens(ids) * math.sqrt(self.width)

    def leave(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.norm(state)


_SANDWICH_KEYS = {"norm_3.weight": "norm_3.weight", "norm_4.weight": "norm_4.weight"}


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
        extra = _SANDWICH_KEYS | ({"attn.qk_bias": "attention.qk_bias"} if read.qk_bias else {})
        return raven_keys(read.sizes, extra) | {"freqs_cis": "table"}

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``mean_recurrence``."""
        return mean_loops(config, "mean_recurrence")

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``mean_recurrence``, which the authors' code runs in evaluation."""
        return run_loops(config, "mean_recurrence")

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """Truncated normal of std ``init_values.std`` times sqrt(width), cut at 3 std."""
        return noise_rule(config, scale=math.sqrt(integer(config, "n_embd")))
