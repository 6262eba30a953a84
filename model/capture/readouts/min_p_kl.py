"""KL to the previous readout after the unlikely entries of both were made alike."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..readout import Batch, Chunk, Walked

_SHARE = 0.1


class MinPKL:
    """KL(q_(k-1) || q_k) in nats, undefined at k = 1; ``min_p_kl_uniform`` is KL(u || q_k), u uniform.

    q is p with every probability below 0.1 of the largest set to 1/V, renormalised: the criterion ``minp-kl`` of
    Huginn's code (raven_modeling_minimal.py, arXiv 2502.05171). Below about 1e-9 it is rounding.
    """

    name: ClassVar[str] = "min_p_kl"
    title: ClassVar[str] = "KL(qₖ₋₁ ‖ qₖ), min-p"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 2
    again: ClassVar[bool] = True
    always: ClassVar[bool] = False

    def __init__(self, batch: Batch) -> None:
        self._entries = batch.vocabulary
        shape = batch.features.shape[:2]
        zeros = torch.zeros(shape, dtype=batch.exact, device=batch.features.device)
        self._top = torch.full_like(zeros, -torch.inf)
        self._mass, self._log_sum = zeros, zeros.clone()
        self._cross = zeros[1:].clone()

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """First the largest logit, then the sums of what is left of each entry."""
        logits = chunk.logits.to(self._top.dtype)
        if walked is None:
            self._top = torch.maximum(self._top, logits.amax(dim=-1))
            return
        unlikely = logits < self._top[..., None] + math.log(_SHARE)
        log_q = torch.where(unlikely, -math.log(self._entries), logits - walked.log_z[..., None])
        q = log_q.exp()
        self._mass += q.sum(dim=-1)
        self._log_sum += log_q.sum(dim=-1)
        self._cross += (q[:-1] * (log_q[:-1] - log_q[1:])).sum(dim=-1)

    def result(self, walked: Walked) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``min_p_kl`` and ``min_p_kl_uniform``; rounding never makes them negative."""
        log_mass = self._mass.log()
        found = torch.full_like(self._mass, torch.nan)
        found[1:] = (self._cross / self._mass[:-1] - log_mass[:-1] + log_mass[1:]).clamp(min=0.0)
        uniform = -math.log(self._entries) - self._log_sum / self._entries + log_mass
        return {self.name: found, "min_p_kl_uniform": uniform.clamp(min=0.0)}
