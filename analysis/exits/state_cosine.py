"""State cosine rule: stop when a loop hardly turns the state."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase
from analysis.exit_rule import Family
from analysis.steps import ratio
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class StateCosineExit(RuleBase):
    """Stops when 1 - cos(x^(k), x^(k-1)) < threshold: blind to a state that only grows or shrinks.

    The criterion `cosine` of Huginn's code (raven_modeling_minimal.py, arXiv 2502.05171), with its default 1e-3. The
    code takes the mean over positions: scope "sequence". Computed from recorded norms, so that no state needs to be
    stored: (d^2 - (n - m)^2) / (2 n m) with d the step norm and n, m the norms of the two states. Undefined at k = 1,
    because the norm of the initial state is not recorded.
    """

    name: ClassVar[str] = "state_cosine"
    title: ClassVar[str] = "cosine of states"
    formula: ClassVar[str] = "1 − cos(x⁽ᵏ⁾, x⁽ᵏ⁻¹⁾) < τ"
    source: ClassVar[str] = "arXiv 2502.05171, code: cosine"
    family: ClassVar[Family] = "step"
    holds_first_step: ClassVar[int] = 0
    highest: ClassVar[float] = 2.0
    first_score: ClassVar[int] = 2

    threshold: float = 1e-3

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """1 - cos, 0..2, defined from k = 2; NaN where a state is zero."""
        trace = trajectory.blocks[block]
        now, before = trace.state_norm[1:], trace.state_norm[:-1]
        found = np.full(trace.state_norm.shape, np.nan)
        found[1:] = np.clip(ratio(trace.step_norm[1:] ** 2 - (now - before) ** 2, 2 * now * before), 0.0, 2.0)
        return found
