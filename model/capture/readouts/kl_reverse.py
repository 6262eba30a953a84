"""KL from the previous readout, the other way round: weighed by the newer prediction."""

from typing import ClassVar

from ..readout import Chunk, StepwiseKL


class KLReverse(StepwiseKL):
    """KL(p_k || p_(k-1)) in nats, undefined at k = 1."""

    name: ClassVar[str] = "kl_reverse"
    title: ClassVar[str] = "KL(pₖ ‖ pₖ₋₁)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 2
    turns: ClassVar[int] = 1
    always: ClassVar[bool] = False

    def take(self, chunk: Chunk, turn: int) -> None:
        """Add one stretch."""
        self.add(chunk.p[1:], -chunk.to_next)
