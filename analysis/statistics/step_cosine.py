"""Step cosine: whether two consecutive loops push in the same direction."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class StepCosine:
    """cos(step k, step k-1) per token, k = 2..K (arXiv 2509.23314, section 3); NaN next to a step of length zero."""

    name: ClassVar[str] = "step_cosine"
    title: ClassVar[str] = "step cosine cos(Δ⁽ᵏ⁾, Δ⁽ᵏ⁻¹⁾)"
    unit: ClassVar[str] = ""
    level: ClassVar[Literal["loop", "handoff"]] = "loop"
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    first_loop: ClassVar[int] = 2
    holds_first_step: ClassVar[int] = 2

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Shape ``loops tokens``."""
        return trajectory.blocks[block].step_cosine
