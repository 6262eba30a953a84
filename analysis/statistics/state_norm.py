"""State norm: how long the iterate is."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class StateNorm:
    """||x^(k)||_2 per token, k = 1..K (arXiv 2509.23314, section 3)."""

    name: ClassVar[str] = "state_norm"
    title: ClassVar[str] = "state norm ‖x⁽ᵏ⁾‖"
    unit: ClassVar[str] = ""
    level: ClassVar[Literal["loop", "handoff"]] = "loop"
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    first_loop: ClassVar[int] = 1
    holds_first_step: ClassVar[int] = 0

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Shape ``loops tokens``."""
        return trajectory.blocks[block].state_norm
