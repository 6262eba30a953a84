"""Acceleration over its peak: stop when it has fallen to a small part of the largest so far."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase
from analysis.exit_rule import Family
from analysis.steps import ratio
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class AccelerationOverPeakExit(RuleBase):
    """Stops at the second loop in a row with a^(k) / max(a^(2), ..., a^(k)) < threshold, a^(k) = ||step k - step k-1||_2.

    Each token is its own yardstick, so one threshold serves tokens and models of any scale. The peak is that *so far*:
    one taken over all loops would look ahead. It is often a^(2), which contains the step away from the initial state.
    A form of arXiv 2509.23314, equation 5; no default is published; this one makes the bundled demo spend as many
    loops as the KL rule does at 5e-4 (`python -m analysis.calibrate`).
    """

    name: ClassVar[str] = "acceleration_over_peak"
    title: ClassVar[str] = "acceleration / largest so far"
    formula: ClassVar[str] = "a⁽ᵏ⁾ / max(a⁽²⁾ … a⁽ᵏ⁾) < τ, twice in a row"
    source: ClassVar[str] = "arXiv 2509.23314, equation 5, normalised"
    family: ClassVar[Family] = "acceleration"
    holds_first_step: ClassVar[int] = 2
    highest: ClassVar[float] = 1.0
    first_score: ClassVar[int] = 2

    threshold: float = 0.15
    patience: int = 2

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The quotient, 0..1, defined from k = 2; NaN where nothing has accelerated yet."""
        acceleration = trajectory.blocks[block].acceleration
        return ratio(acceleration, np.fmax.accumulate(acceleration, axis=0))
