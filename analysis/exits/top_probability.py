"""Confidence rule: stop when the likeliest token is likely enough."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import LensChoice, RuleBase, read
from analysis.exit_rule import Family, Side
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class TopProbabilityExit(RuleBase):
    """Stops when max p_k >= threshold: the confidence of multi-scale dense networks (Huang et al., arXiv 1703.09844).

    It looks at one loop alone, so a model that is sure too early stops too early. The default, 0.9, is a common round
    number; the paper calibrates it on data.
    """

    name: ClassVar[str] = "top_probability"
    title: ClassVar[str] = "largest probability"
    formula: ClassVar[str] = "max pₖ ≥ τ"
    source: ClassVar[str] = "arXiv 1703.09844"
    family: ClassVar[Family] = "confidence"
    stops: ClassVar[Side] = ">="
    quantity: ClassVar[str] = "top10_probability"
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    highest: ClassVar[float] = 1.0

    threshold: float = 0.9
    minimum_loops: int = 1
    lens: LensChoice = "default"

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The probability of the likeliest token. Raises MissingReadout when the run recorded no readout."""
        return read(trajectory, block, self.quantity, lens=self.lens)[..., 0]
