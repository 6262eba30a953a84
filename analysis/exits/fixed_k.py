"""Fixed depth: stop every token after the same number of loops, whatever they do."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase, where_finite
from analysis.exit_rule import Family, Side
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class FixedKExit(RuleBase):
    """Stops after threshold loops: the null that every other rule is held against.

    A rule is worth its name where it beats this one at the same mean number of loops. The default, 8, is what the
    bundled demo was trained for on average; no paper names one.
    """

    name: ClassVar[str] = "fixed_k"
    title: ClassVar[str] = "fixed k"
    formula: ClassVar[str] = "k ≥ τ"
    source: ClassVar[str] = "the null, no source"
    unit: ClassVar[str] = "loops"
    family: ClassVar[Family] = "reference"
    stops: ClassVar[Side] = ">="
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    lowest: ClassVar[float] = 1.0

    threshold: float = 8.0
    minimum_loops: int = 1

    def fires_from(self) -> int:
        """The loops that it counts to, as often as patience says."""
        return max(self.minimum_loops, math.ceil(self.threshold) + self.patience - 1)

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The number of the loop, where the state is finite."""
        trace = trajectory.blocks[block]
        loops, tokens = trace.state_norm.shape
        return where_finite(np.repeat(np.arange(1.0, loops + 1)[:, None], tokens, axis=1), trace)
