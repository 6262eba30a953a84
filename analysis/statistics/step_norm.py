"""Step norm: how far one loop moves the state."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class StepNorm:
    """||x^(k) - x^(k-1)||_2 per token, k = 1..K (arXiv 2509.23314, section 3)."""

    name: ClassVar[str] = "step_norm"
    title: ClassVar[str] = "step norm ‖Δ⁽ᵏ⁾‖"
    unit: ClassVar[str] = ""
    level: ClassVar[Literal["loop", "handoff"]] = "loop"
    scale: ClassVar[Literal["linear", "log"]] = "log"
    first_loop: ClassVar[int] = 1
    holds_first_step: ClassVar[int] = 1

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Shape ``loops tokens``."""
        return trajectory.blocks[block].step_norm
