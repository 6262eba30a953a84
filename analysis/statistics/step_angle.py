"""Step angle: by how much the direction turns from one loop to the next."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.steps import angles
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class StepAngle:
    """arccos of the step cosine in degrees, k = 2..K."""

    name: ClassVar[str] = "step_angle"
    title: ClassVar[str] = "angle between Δ⁽ᵏ⁾ and Δ⁽ᵏ⁻¹⁾"
    unit: ClassVar[str] = "degrees"
    level: ClassVar[Literal["loop", "handoff"]] = "loop"
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    first_loop: ClassVar[int] = 2
    holds_first_step: ClassVar[int] = 2

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Shape ``loops tokens``."""
        return angles(trajectory.blocks[block].step_cosine)
