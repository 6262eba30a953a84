"""Retrofitted Llama and TinyLlama: pre-norm layers of a pretrained model, looped.

Source: McLeish et al., arXiv 2511.07384, in the form of the authors' public code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model.architecture import LoopedNetwork, NativeArchitecture, Space
from model.config import mean_loops, run_loops
from model.layers import CausalAttention, PackedGatedMlp, PreNormLayer
from model.raven import RavenSizes
from model.retrofit import RetrofitNetwork, is_retrofit, read_retrofit, retrofit_keys, retrofit_noise
from model.start import InitialRule


def _layer(sizes: RavenSizes) -> PreNormLayer:
    attention = CausalAttention(sizes.heads, bias=sizes.bias)
    return PreNormLayer(attention, PackedGatedMlp(sizes.heads.width, sizes.hidden, bias=sizes.bias), eps=sizes.eps)


@dataclass(frozen=True)
class RetrofitLlama(NativeArchitecture):
    """Llama or TinyLlama with retrofitted recurrence (arXiv 2511.07384)."""

    name: ClassVar[str] = "retrofit_llama"
    title: ClassVar[str] = "Retrofitted Llama"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "adapter([state; entry]) before every loop"
    logit_lens: ClassVar[str] = "ln_f, head"
    recognised_by: ClassVar[str] = "`model_type` huginn_raven; `norm_1`, `norm_2` alone and no `q_norm`"
    verified: ClassVar[str] = "states, logits, every coda-lens logit"

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """The model type is shared with Huginn and the retrofitted OLMo: the norms of a layer decide."""
        return is_retrofit(config, keys) and not any(".q_norm." in key for key in keys)

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is missing, odd or not supported."""
        return RetrofitNetwork(read_retrofit(config), _layer)

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The authors' tensor names -> ours."""
        return retrofit_keys(config, {})

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``mean_recurrence``."""
        return mean_loops(config, "mean_recurrence")

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``mean_recurrence``, which the authors' code runs in evaluation."""
        return run_loops(config, "mean_recurrence")

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """Truncated normal of std ``init_values.std`` times ``embed_scale``; ``initial_state_mode`` is not read here."""
        return retrofit_noise(config)
