"""Entropy change rule: stop when one more loop hardly changes how undecided the model is."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import LensChoice, RuleBase, changes, read
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class EntropyChangeExit(RuleBase):
    """Stops when |H(p_k) - H(p_(k-1))| < threshold nats: two different predictions of one entropy count as settled.

    The criterion `entropy-diff` of Huginn's code (raven_modeling_minimal.py, arXiv 2502.05171), with its default
    1e-3. At the first loop the code compares with 100, which never fires; here it is undefined.
    """

    name: ClassVar[str] = "entropy_change"
    title: ClassVar[str] = "change of entropy"
    formula: ClassVar[str] = "|H(pₖ) − H(pₖ₋₁)| < τ"
    source: ClassVar[str] = "arXiv 2502.05171, code: entropy-diff"
    unit: ClassVar[str] = "nats"
    family: ClassVar[Family] = "prediction"
    quantity: ClassVar[str] = "entropy"
    first_score: ClassVar[int] = 2

    threshold: float = 1e-3
    lens: LensChoice = "default"

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The change in nats, defined from k = 2. Raises MissingReadout when the run recorded no readout."""
        return changes(read(trajectory, block, self.quantity, lens=self.lens))
