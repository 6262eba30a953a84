"""KL between the readout and the uniform distribution, in both directions: what loop 1 can be compared with."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..readout import Batch, Chunk


class KLUniform:
    """KL(u || p_k) and, as ``kl_uniform_reverse``, KL(p_k || u) in nats, k = 1..K; u gives every entry 1/V.

    Huginn's code takes u as the readout before loop 1 (raven_modeling_minimal.py, arXiv 2502.05171).
    """

    name: ClassVar[str] = "kl_uniform"
    title: ClassVar[str] = "KL(uniform ‖ pₖ)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 1
    turns: ClassVar[int] = 1
    always: ClassVar[bool] = False

    def __init__(self, batch: Batch) -> None:
        self._entries = batch.vocabulary
        zeros = torch.zeros(batch.features.shape[:2], dtype=batch.exact, device=batch.features.device)
        self._log_p, self._entropy = zeros, zeros.clone()

    def take(self, chunk: Chunk, turn: int) -> None:
        """Add one stretch."""
        self._log_p += chunk.log_p.sum(dim=-1)
        self._entropy -= torch.where(chunk.p > 0, chunk.p * chunk.log_p, 0.0).sum(dim=-1)

    def result(self) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``kl_uniform`` and ``kl_uniform_reverse``; rounding never makes them negative."""
        log_v = math.log(self._entries)
        forward, reverse = -log_v - self._log_p / self._entries, log_v - self._entropy
        return {self.name: forward.clamp(min=0.0), "kl_uniform_reverse": reverse.clamp(min=0.0)}
