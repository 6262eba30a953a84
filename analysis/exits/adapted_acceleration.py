"""Acceleration from the adapted input: steps measured inside the loop (a variant in public code)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase, adapted
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class AdaptedAccelerationExit(RuleBase):
    """Stops at the second loop in a row with ||(x^(k) - u^(k)) - (x^(k-1) - u^(k-1))||_2 < threshold.

    u^(k) is the block's adapted input of loop k: what its first layer reads, after the entry was injected. A variant
    of the two-scale paper's public code (tomoqt/Latent_ttc). The paper's equation 5 has the previous state x^(k-1) in
    its place; the two agree where nothing is injected. With injection x^(k) - u^(k) does not go to zero at a fixed
    point, but its change does. No default is published; this one makes the
    bundled demo spend as many loops as the KL rule does at 5e-4 (`python -m analysis.calibrate`).
    """

    name: ClassVar[str] = "adapted_acceleration"
    title: ClassVar[str] = "adapted acceleration"
    formula: ClassVar[str] = "‖(x⁽ᵏ⁾ − u⁽ᵏ⁾) − (x⁽ᵏ⁻¹⁾ − u⁽ᵏ⁻¹⁾)‖ < τ, twice in a row"
    source: ClassVar[str] = "code of arXiv 2509.23314, not the paper"
    family: ClassVar[Family] = "acceleration"
    quantity: ClassVar[str] = "adapted_acceleration"
    holds_first_step: ClassVar[int] = 2
    lens: ClassVar[str] = "block"
    first_score: ClassVar[int] = 2

    threshold: float = 0.56
    patience: int = 2

    @property
    def asks(self) -> tuple[str, ...]:
        """What must be asked for."""
        return ("adapted_input",)

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Defined from k = 2. Raises MissingReadout when the run did not record the adapted input."""
        return adapted(trajectory, block, self.quantity)
