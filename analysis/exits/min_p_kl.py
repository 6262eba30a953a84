"""Min-p KL rule: stop when one more loop hardly changes the likely part of the prediction."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import FirstLoop, LensChoice, RuleBase, read
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class MinPKLExit(RuleBase):
    """Stops when KL(q_(k-1) || q_k) < threshold nats, q being the readout whose unlikely entries were made alike.

    Entries with a probability below 0.1 of the largest are set to 1/V (V the size of the vocabulary), and all are
    renormalised. The criterion `minp-kl` of Huginn's code (raven_modeling_minimal.py, arXiv 2502.05171), with its
    default 1e-5. ``first_loop`` = ``uniform`` compares loop 1 with the uniform distribution, as the code does.
    """

    name: ClassVar[str] = "min_p_kl"
    title: ClassVar[str] = "min-p KL"
    formula: ClassVar[str] = "KL(qₖ₋₁ ‖ qₖ) < τ, q: p below 0.1 max p set to 1/V"
    source: ClassVar[str] = "arXiv 2502.05171, code: minp-kl"
    unit: ClassVar[str] = "nats"
    family: ClassVar[Family] = "divergence"
    quantity: ClassVar[str] = "min_p_kl"
    first_score: ClassVar[int] = 2

    threshold: float = 1e-5
    lens: LensChoice = "default"
    first_loop: FirstLoop = "undefined"

    @property
    def asks(self) -> tuple[str, ...]:
        """What must be asked for."""
        return ("min_p_kl",)

    def defined_from(self) -> int:
        """Loop 1 where that is compared with the uniform distribution."""
        return 1 if self.first_loop == "uniform" else self.first_score

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The divergence in nats. Raises MissingReadout when the run did not record it."""
        found = read(trajectory, block, self.quantity, lens=self.lens, record="min_p_kl")
        if self.first_loop == "uniform":
            found[:1] = read(trajectory, block, "min_p_kl_uniform", lens=self.lens, record="min_p_kl")[:1]
        return found
