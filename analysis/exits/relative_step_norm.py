"""Relative step norm rule: stop when a loop moves the state by a small part of its length."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase
from analysis.exit_rule import Family
from analysis.steps import ratio
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class RelativeStepNormExit(RuleBase):
    """Stops when ||x^(k) - x^(k-1)||_2 / ||x^(k)||_2 < threshold.

    The criterion `latent-diff` of Huginn's code (raven_modeling_minimal.py, arXiv 2502.05171), with its default 0.03.
    The code takes the mean of the quotients over positions: scope "sequence".
    """

    name: ClassVar[str] = "relative_step_norm"
    title: ClassVar[str] = "relative step norm"
    formula: ClassVar[str] = "‖Δ⁽ᵏ⁾‖ / ‖x⁽ᵏ⁾‖ < τ"
    source: ClassVar[str] = "arXiv 2502.05171, code: latent-diff"
    family: ClassVar[Family] = "step"
    holds_first_step: ClassVar[int] = 1

    threshold: float = 0.03

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The quotient, k = 1..K; NaN where the state is zero."""
        trace = trajectory.blocks[block]
        return ratio(trace.step_norm, trace.state_norm)
