"""Entropy of the readout: how undecided the model is after each loop."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..divergence import RunningEntropy
from ..readout import Batch, Chunk, Walked


class Entropy:
    """-sum p log p in nats, k = 1..K."""

    name: ClassVar[str] = "entropy"
    title: ClassVar[str] = "entropy of the readout"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 1
    again: ClassVar[bool] = False
    always: ClassVar[bool] = True

    def __init__(self, batch: Batch) -> None:
        self._entropy = RunningEntropy()

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Add one stretch."""
        self._entropy.take(chunk.softmax)

    def result(self, walked: Walked) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``entropy``."""
        return {self.name: self._entropy.value(walked.shares)}
