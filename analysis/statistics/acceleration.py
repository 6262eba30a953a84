"""Acceleration: the second-order difference of the iterates."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class Acceleration:
    """||step k - step k-1||_2 per token, k = 2..K (arXiv 2509.23314, section 4)."""

    name: ClassVar[str] = "acceleration"
    title: ClassVar[str] = "acceleration ‖Δ⁽ᵏ⁾ − Δ⁽ᵏ⁻¹⁾‖"
    unit: ClassVar[str] = ""
    level: ClassVar[Literal["loop", "handoff"]] = "loop"
    scale: ClassVar[Literal["linear", "log"]] = "log"
    first_loop: ClassVar[int] = 2
    holds_first_step: ClassVar[int] = 2

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Shape ``loops tokens``."""
        return trajectory.blocks[block].acceleration
