"""Acceleration over the two steps: stop when consecutive steps differ little for their size."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase
from analysis.exit_rule import Family
from analysis.steps import ratio
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class AccelerationOverStepsExit(RuleBase):
    """Stops at the second loop in a row with ||step k - step k-1|| / (||step k|| + ||step k-1||) < threshold.

    Between 0 (the same step again) and 1 (the opposite one). It says nothing about how small the steps are: at a
    linear contraction with ratio r, x^(k+1) - x* = r (x^(k) - x*), it tends to (1 - r) / (1 + r), so at a threshold
    below that it never fires however close the state is to its fixed point. A form of arXiv 2509.23314,
    equation 5; no default is published, and this one makes the bundled demo spend as many loops as the KL rule does at
    5e-4 (`python -m analysis.calibrate`), with every sixth token never exiting.
    """

    name: ClassVar[str] = "acceleration_over_steps"
    title: ClassVar[str] = "acceleration / two steps"
    formula: ClassVar[str] = "‖Δ⁽ᵏ⁾ − Δ⁽ᵏ⁻¹⁾‖ / (‖Δ⁽ᵏ⁾‖ + ‖Δ⁽ᵏ⁻¹⁾‖) < τ, twice in a row"
    source: ClassVar[str] = "arXiv 2509.23314, equation 5, normalised"
    family: ClassVar[Family] = "acceleration"
    holds_first_step: ClassVar[int] = 2
    highest: ClassVar[float] = 1.0
    first_score: ClassVar[int] = 2

    threshold: float = 0.85
    patience: int = 2

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The quotient, 0..1, defined from k = 2; NaN where both steps are zero."""
        trace = trajectory.blocks[block]
        found = np.full(trace.step_norm.shape, np.nan)
        found[1:] = ratio(trace.acceleration[1:], trace.step_norm[1:] + trace.step_norm[:-1])
        return found
