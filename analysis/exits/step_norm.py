"""Step norm rule: stop when a loop hardly moves the state."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class StepNormExit(RuleBase):
    """Stops when ||x^(k) - x^(k-1)||_2 < threshold: the naive first-order rule of arXiv 2509.23314, section 4.

    The literature names no default for the raw norm. This one makes the bundled demo spend as many loops on
    calibrate.txt as the KL rule does at 5e-4 (`python -m analysis.calibrate`); another model needs its own.
    """

    name: ClassVar[str] = "step_norm"
    title: ClassVar[str] = "step norm"
    formula: ClassVar[str] = "‖Δ⁽ᵏ⁾‖ < τ"
    source: ClassVar[str] = "arXiv 2509.23314, section 4"
    family: ClassVar[Family] = "step"
    default_on: ClassVar[bool] = True
    holds_first_step: ClassVar[int] = 1

    threshold: float = 0.87

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The step norm, k = 1..K."""
        return trajectory.blocks[block].step_norm
