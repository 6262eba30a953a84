"""Stable argmax rule: stop when the likeliest token has stayed the same for some loops."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import LensChoice, RuleBase, argmax
from analysis.exit_rule import Family, Side
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class ArgmaxStableExit(RuleBase):
    """Stops when at least threshold loops in a row have left the argmax of the readout as it was.

    The criterion `argmax-stability` of Huginn's code (raven_modeling_minimal.py, arXiv 2502.05171), with its default 5:
    the first loop counts 0, so five unchanged loops are over after loop 6 at the earliest.
    """

    name: ClassVar[str] = "argmax_stable"
    title: ClassVar[str] = "argmax stable"
    formula: ClassVar[str] = "loops in a row with argmax pₖ = argmax pₖ₋₁ ≥ τ"
    source: ClassVar[str] = "arXiv 2502.05171, code: argmax-stability"
    unit: ClassVar[str] = "loops"
    family: ClassVar[Family] = "prediction"
    stops: ClassVar[Side] = ">="
    quantity: ClassVar[str] = "top10_id"
    scale: ClassVar[Literal["linear", "log"]] = "linear"

    threshold: float = 5.0
    lens: LensChoice = "default"

    def fires_from(self) -> int:
        """One loop more than it counts to, as the first counts 0."""
        return max(self.minimum_loops, math.ceil(self.threshold) + self.patience)

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Loops in a row without a change, 0 at the first. Raises MissingReadout when the run recorded no readout."""
        ids = argmax(trajectory, block, lens=self.lens)
        found = np.full(ids.shape, np.nan)
        count = np.zeros(ids.shape[1])
        for row in range(len(ids)):
            same = (ids[row] == ids[row - 1]) if row else np.zeros(len(count), dtype=bool)
            count = np.where(same, count + 1, 0.0)
            found[row] = np.where(ids[row] >= 0, count, np.nan)
        return found
