"""KL to the previous readout: how much one more loop changes the prediction."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..divergence import StepwiseKL
from ..readout import Chunk, Walked


class KLPrevious(StepwiseKL):
    """KL(p_(k-1) || p_k) in nats, undefined at k = 1 (arXiv 2502.05171, section 6.1)."""

    name: ClassVar[str] = "kl_previous"
    title: ClassVar[str] = "KL(pₖ₋₁ ‖ pₖ)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 2
    again: ClassVar[bool] = False
    always: ClassVar[bool] = True

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Add one stretch."""
        self.add(chunk.softmax[:-1], chunk.to_next)

    def result(self, walked: Walked) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``kl_previous``."""
        return self.values(walked.shares[:, :-1])
