"""Retrofitted OLMo: post-norm layers of a pretrained model with normed queries and keys, looped.

Source: McLeish et al., arXiv 2511.07384, in the form of the authors' public code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from model.architecture import Context, LoopedNetwork, NativeArchitecture, Space
from model.config import choice, mean_loops, run_loops
from model.layers import CausalAttention, PackedGatedMlp, rms_norm
from model.raven import RavenSizes
from model.retrofit import RetrofitNetwork, is_retrofit, read_retrofit, retrofit_keys, retrofit_noise
from model.start import InitialRule


class _Attention(CausalAttention):
    """Queries and keys are RMS-normed over all heads together before they are rotated."""

    def __init__(self, sizes: RavenSizes) -> None:
        super().__init__(sizes.heads, bias=sizes.bias)
        heads = sizes.heads
        self.q_norm = rms_norm(heads.query * heads.head_width, sizes.eps)
        self.k_norm = rms_norm(heads.key * heads.head_width, sizes.eps)

    def prepare(
        self, q: Tensor, k: Tensor, v: Tensor, x: Float[Tensor, "B T C"], context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        q = self.q_norm(q.flatten(2)).view_as(q)
        k = self.k_norm(k.flatten(2)).view_as(k)
        return super().prepare(q, k, v, x, context)


class _Layer(nn.Module):
    """x += RMS_1(attn(x)); x += RMS_2(mlp(x))."""

    def __init__(self, sizes: RavenSizes) -> None:
        super().__init__()
        width = sizes.heads.width
        self.norm_1, self.norm_2 = rms_norm(width, sizes.eps), rms_norm(width, sizes.eps)
        self.attention = _Attention(sizes)
        self.mlp = PackedGatedMlp(width, sizes.hidden, bias=sizes.bias)

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        x = x + self.norm_1(self.attention(x, context))
        return x + self.norm_2(self.mlp(x))


def _start_mode(config: Mapping[str, Any]) -> str:
    return choice(config, "initial_state_mode", ("random", "embed-init", "skip-adapter"), "random")


@dataclass(frozen=True)
class RetrofitOlmo(NativeArchitecture):
    """OLMo with retrofitted recurrence (arXiv 2511.07384)."""

    name: ClassVar[str] = "retrofit_olmo"
    title: ClassVar[str] = "Retrofitted OLMo"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "adapter([state; entry]) before every loop; not before loop 1 in mode skip-adapter"
    logit_lens: ClassVar[str] = "ln_f, head"
    recognised_by: ClassVar[str] = "`model_type` huginn_raven; `norm_1`, `norm_2` alone and `q_norm`, `k_norm`"
    verified: ClassVar[str] = "states, logits, every coda-lens logit (initial state mode random)"

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """The model type is shared with Huginn and the retrofitted Llama: normed queries decide."""
        return is_retrofit(config, keys) and any(".q_norm." in key for key in keys)

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is missing, odd or not supported."""
        return RetrofitNetwork(read_retrofit(config), _Layer, skips_adapter=_start_mode(config) == "skip-adapter")

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The authors' tensor names -> ours."""
        extra = {"attn.q_norm.weight": "attention.q_norm.weight", "attn.k_norm.weight": "attention.k_norm.weight"}
        return retrofit_keys(config, extra)

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``mean_recurrence``."""
        return mean_loops(config, "mean_recurrence")

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``mean_recurrence``, which the authors' code runs in evaluation."""
        return run_loops(config, "mean_recurrence")

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """A copy of the entry in the modes embed-init and skip-adapter, else a truncated normal."""
        if _start_mode(config) != "random":
            return InitialRule(std=0.0, from_entry=True)
        return retrofit_noise(config)
