"""Log-probability of the token that really comes next."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..readout import Batch, Chunk, Walked


class LogProbabilityNext:
    """log p_k(true next token) in nats, k = 1..K; undefined at the last position of the prompt."""

    name: ClassVar[str] = "log_probability_next"
    title: ClassVar[str] = "log-probability of the next token"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 1
    again: ClassVar[bool] = False
    always: ClassVar[bool] = True
    of_next_token: ClassVar[bool] = True  # left out of runs of masked language models

    def __init__(self, batch: Batch) -> None:
        self._targets = batch.targets
        shape = batch.features.shape[:2]
        self._value = torch.full(shape, torch.nan, dtype=batch.exact, device=batch.features.device)

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Pick the tokens whose next one lies in this stretch."""
        here = torch.nonzero((self._targets >= chunk.start) & (self._targets < chunk.stop)).flatten()
        self._value[:, here] = chunk.logits[:, here, self._targets[here] - chunk.start].to(self._value.dtype)

    def result(self, walked: Walked) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``log_probability_next``."""
        return {self.name: self._value - walked.log_z}
