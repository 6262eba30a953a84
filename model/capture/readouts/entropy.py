"""Entropy of the readout: how undecided the model is after each loop."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..readout import Batch, Chunk


class Entropy:
    """-sum p log p in nats, k = 1..K."""

    name: ClassVar[str] = "entropy"
    title: ClassVar[str] = "entropy of the readout"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 1
    turns: ClassVar[int] = 1
    always: ClassVar[bool] = True

    def __init__(self, batch: Batch) -> None:
        self._sum = torch.zeros(batch.features.shape[:2], dtype=batch.exact, device=batch.features.device)

    def take(self, chunk: Chunk, turn: int) -> None:
        """Add one stretch; entries of probability zero add nothing."""
        self._sum -= torch.where(chunk.p > 0, chunk.p * chunk.log_p, 0.0).sum(dim=-1)

    def result(self) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``entropy``."""
        return {self.name: self._sum}
