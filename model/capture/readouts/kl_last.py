"""KL to the last readout: how far the prediction still is from the one at full depth."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..divergence import RunningKL
from ..readout import Batch, Chunk, Walked


class KLLast:
    """KL(p_k || p_K) in nats, k = 1..K, zero at K; p_K is of the same block and lens."""

    name: ClassVar[str] = "kl_last"
    title: ClassVar[str] = "KL(pₖ ‖ p_K)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 1
    again: ClassVar[bool] = False
    always: ClassVar[bool] = True

    def __init__(self, batch: Batch) -> None:
        self._kl = RunningKL()

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Add one stretch."""
        self._kl.take(chunk.softmax, chunk.to_last)

    def result(self, walked: Walked) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``kl_last``."""
        return {self.name: self._kl.value(walked.shares)}
