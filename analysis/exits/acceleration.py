"""Acceleration rule: stop when consecutive steps have become alike, twice in a row."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class AccelerationExit(RuleBase):
    """Stops at the second loop in a row with ||step k - step k-1||_2 < threshold (arXiv 2509.23314, equation 5).

    The two hits in a row are the paper's algorithm 1. It gives no default for the raw norm; this one makes the
    bundled demo spend as many loops on calibrate.txt as the KL rule does at 5e-4 (`python -m
    analysis.calibrate`), and another model needs its own.
    """

    name: ClassVar[str] = "acceleration"
    title: ClassVar[str] = "acceleration"
    formula: ClassVar[str] = "‖Δ⁽ᵏ⁾ − Δ⁽ᵏ⁻¹⁾‖ < τ, twice in a row"
    source: ClassVar[str] = "arXiv 2509.23314, equation 5 and algorithm 1"
    family: ClassVar[Family] = "acceleration"
    default_on: ClassVar[bool] = True
    holds_first_step: ClassVar[int] = 2
    first_score: ClassVar[int] = 2

    threshold: float = 5.1
    patience: int = 2

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The acceleration, defined from k = 2."""
        return trajectory.blocks[block].acceleration
