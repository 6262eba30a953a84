"""KL from the previous readout, the other way round: weighed by the newer prediction."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..divergence import StepwiseKL
from ..readout import Chunk, Walked


class KLReverse(StepwiseKL):
    """KL(p_k || p_(k-1)) in nats, undefined at k = 1."""

    name: ClassVar[str] = "kl_reverse"
    title: ClassVar[str] = "KL(pₖ ‖ pₖ₋₁)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 2
    again: ClassVar[bool] = False
    always: ClassVar[bool] = False

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Add one stretch."""
        self.add(chunk.softmax[1:], -chunk.to_next)

    def result(self, walked: Walked) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``kl_reverse``."""
        return self.values(walked.shares[:, 1:])
