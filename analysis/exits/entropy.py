"""Entropy rule: stop when the model is decided enough."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import LensChoice, RuleBase, read
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class EntropyExit(RuleBase):
    """Stops when H(p_k) < threshold nats: the rule of BranchyNet (Teerapittayanon et al., arXiv 1709.01686).

    It looks at one loop alone, unlike the change of entropy. The default, 0.5 nats, is a round number; the paper tunes
    it for each exit.
    """

    name: ClassVar[str] = "entropy"
    title: ClassVar[str] = "entropy"
    formula: ClassVar[str] = "H(pₖ) < τ"
    source: ClassVar[str] = "arXiv 1709.01686"
    unit: ClassVar[str] = "nats"
    family: ClassVar[Family] = "confidence"
    quantity: ClassVar[str] = "entropy"

    threshold: float = 0.5
    minimum_loops: int = 1
    lens: LensChoice = "default"

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The entropy in nats. Raises MissingReadout when the run recorded no readout."""
        return np.maximum(read(trajectory, block, self.quantity, lens=self.lens), 0.0)  # rounding can leave a hair less
