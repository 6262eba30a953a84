"""Relative step norm: how far one loop moves the state, in units of the state."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.steps import ratio
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class RelativeStepNorm:
    """||x^(k) - x^(k-1)|| / ||x^(k)|| per token, k = 1..K; NaN where the state is zero."""

    name: ClassVar[str] = "relative_step_norm"
    title: ClassVar[str] = "relative step norm ‖Δ⁽ᵏ⁾‖ / ‖x⁽ᵏ⁾‖"
    unit: ClassVar[str] = ""
    level: ClassVar[Literal["loop", "handoff"]] = "loop"
    scale: ClassVar[Literal["linear", "log"]] = "log"
    first_loop: ClassVar[int] = 1
    holds_first_step: ClassVar[int] = 1

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Shape ``loops tokens``."""
        return ratio(trajectory.blocks[block].step_norm, trajectory.blocks[block].state_norm)
