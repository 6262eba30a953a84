"""Drift: the jump from one looped block to the next."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class Drift:
    """||x_(g+1)^(1) - x_g^(K_g)||_2 per token, the hand-off out of block g; NaN for the last block.

    The paper (arXiv 2509.23314, section 3) writes x_(g+1)^(0); its authors' code takes the output of the
    first loop, and so does this: with adjacent blocks the former would be zero.
    """

    name: ClassVar[str] = "drift"
    title: ClassVar[str] = "drift to the next block"
    unit: ClassVar[str] = ""
    level: ClassVar[Literal["loop", "handoff"]] = "handoff"
    scale: ClassVar[Literal["linear", "log"]] = "log"
    first_loop: ClassVar[int] = 1
    holds_first_step: ClassVar[int] = 0

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, " tokens"]:
        """Shape ``tokens``."""
        if block + 1 == len(trajectory.blocks):
            return np.full(trajectory.tokens, np.nan)
        return trajectory.blocks[block + 1].drift_in
