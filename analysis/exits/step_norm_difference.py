"""Step norm difference rule: stop when steps have become equally long (a variant in public code)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase, adapted, changes
from analysis.exit_rule import Family, sequence_mean
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class StepNormDifferenceExit(RuleBase):
    """Stops when | ||step k|| - ||step k-1|| | < threshold.

    A variant of the two-scale paper's public code (tomoqt/Latent_ttc, `automatic_loop_exit`, default 0.01). The paper's
    acceleration is the norm of the *difference of the steps*, so it sees a turn; this one is the difference of their
    *norms* and does not: it is never larger. The code measures a step from the block's adapted input (measured_from =
    ``adapted_input``) where the paper has the previous state, takes the mean of the norms over positions before it
    compares (scope ``sequence``), and asks for one hit.
    """

    name: ClassVar[str] = "step_norm_difference"
    title: ClassVar[str] = "change of step norm"
    formula: ClassVar[str] = "|‖Δ⁽ᵏ⁾‖ − ‖Δ⁽ᵏ⁻¹⁾‖| < τ"
    source: ClassVar[str] = "code of arXiv 2509.23314, not the paper"
    family: ClassVar[Family] = "step"
    holds_first_step: ClassVar[int] = 2
    first_score: ClassVar[int] = 2

    threshold: float = 0.01
    measured_from: Literal["previous_state", "adapted_input"] = "previous_state"

    @property
    def asks(self) -> tuple[str, ...]:
        """What must be asked for."""
        return ("adapted_input",) if self.measured_from == "adapted_input" else ()

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The change, defined from k = 2. Raises MissingReadout when the run did not record the adapted input."""
        trace = trajectory.blocks[block]
        from_input = self.measured_from == "adapted_input"
        norms = adapted(trajectory, block, "adapted_step_norm") if from_input else trace.step_norm
        return changes(norms if self.scope == "token" else sequence_mean(norms, trace))
