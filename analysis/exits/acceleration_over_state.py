"""Acceleration over state norm: stop when the change of the step is a small part of the state."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase
from analysis.exit_rule import Family
from analysis.steps import ratio
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class AccelerationOverStateExit(RuleBase):
    """Stops at the second loop in a row with ||step k - step k-1||_2 / ||x^(k)||_2 < threshold.

    The paper's acceleration (arXiv 2509.23314, equation 5) in units of the state, so that one threshold can serve
    several models. The default, 0.03, is borrowed from the relative step norm of Huginn's code; the paper names none.
    """

    name: ClassVar[str] = "acceleration_over_state"
    title: ClassVar[str] = "acceleration / state norm"
    formula: ClassVar[str] = "‖Δ⁽ᵏ⁾ − Δ⁽ᵏ⁻¹⁾‖ / ‖x⁽ᵏ⁾‖ < τ, twice in a row"
    source: ClassVar[str] = "arXiv 2509.23314, equation 5, normalised"
    family: ClassVar[Family] = "acceleration"
    holds_first_step: ClassVar[int] = 2
    first_score: ClassVar[int] = 2

    threshold: float = 0.03
    patience: int = 2

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The quotient, defined from k = 2; NaN where the state is zero."""
        trace = trajectory.blocks[block]
        return ratio(trace.acceleration, trace.state_norm)
