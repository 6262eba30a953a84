"""KL from the previous readout, the other way round: weighed by the newer prediction."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..readout import Batch, Chunk, RunningKL


class KLReverse:
    """KL(p_k || p_(k-1)) in nats, undefined at k = 1."""

    name: ClassVar[str] = "kl_reverse"
    title: ClassVar[str] = "KL(pₖ ‖ pₖ₋₁)"
    unit: ClassVar[str] = "nats"
    first_loop: ClassVar[int] = 2
    turns: ClassVar[int] = 1
    always: ClassVar[bool] = False

    def __init__(self, batch: Batch) -> None:
        self._kl = RunningKL()
        self._undefined = torch.full_like(batch.features[:1, :, 0], torch.nan, dtype=batch.exact)
        self._steps = len(batch.features) - 1

    def take(self, chunk: Chunk, turn: int) -> None:
        """Add one stretch; needs two loops."""
        if self._steps:
            self._kl.take(chunk.p[1:], -chunk.to_next)

    def result(self) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under ``kl_reverse``."""
        return {self.name: torch.cat([self._undefined, self._kl.value()]) if self._steps else self._undefined}
