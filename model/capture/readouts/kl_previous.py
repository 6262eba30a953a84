"""KL to the previous readout: how much one more loop changes the prediction."""

from typing import ClassVar

from ..readout import Chunk, StepwiseKL


class KLPrevious(StepwiseKL):
    """KL(p_(k-1) || p_k) in nats, undefined at k = 1 (arXiv 2502.05171, section 6.1)."""

    name: ClassVar[str] = "kl_previous"
    title: ClassVar[str] = "KL(pₖ₋₁ ‖ pₖ)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 2
    turns: ClassVar[int] = 1
    always: ClassVar[bool] = True

    def take(self, chunk: Chunk, turn: int) -> None:
        """Add one stretch."""
        self.add(chunk.p[:-1], chunk.to_next)
