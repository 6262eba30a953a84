"""KL between the readout and the uniform distribution, in both directions: what loop 1 can be compared with."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..divergence import RunningEntropy
from ..readout import Batch, Chunk, Walked


class KLUniform:
    """KL(u || p_k) and, as ``kl_uniform_reverse``, KL(p_k || u) in nats, k = 1..K; u gives every entry 1/V.

    Huginn's code takes u as the readout before loop 1 (raven_modeling_minimal.py, arXiv 2502.05171).
    """

    name: ClassVar[str] = "kl_uniform"
    title: ClassVar[str] = "KL(uniform ‖ pₖ)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 1
    again: ClassVar[bool] = False
    always: ClassVar[bool] = False

    def __init__(self, batch: Batch) -> None:
        self._entries = batch.vocabulary
        self._logits = torch.zeros(batch.features.shape[:2], dtype=batch.exact, device=batch.features.device)
        self._entropy = RunningEntropy()

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Add one stretch."""
        self._logits += chunk.logits.sum(dim=-1, dtype=self._logits.dtype)
        self._entropy.take(chunk.softmax)

    def result(self, walked: Walked) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``kl_uniform`` and ``kl_uniform_reverse``; rounding never makes them negative."""
        log_v = math.log(self._entries)
        forward = walked.log_z - self._logits / self._entries - log_v
        reverse = log_v - self._entropy.value(walked.shares)
        return {self.name: forward.clamp(min=0.0), "kl_uniform_reverse": reverse.clamp(min=0.0)}
