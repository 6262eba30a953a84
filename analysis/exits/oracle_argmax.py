"""Oracle of the argmax: the first loop from which the prediction is the final one and stays it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import LensChoice, RuleBase, argmax
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class OracleArgmaxExit(RuleBase):
    """Stops when fewer than threshold loops from k on have another argmax than the last loop; by default none has.

    Not causal: it looks at all loops, so it bounds what any rule can save without changing the prediction, and never
    runs live.
    """

    name: ClassVar[str] = "oracle_argmax"
    title: ClassVar[str] = "oracle: final argmax"
    formula: ClassVar[str] = "#{j ≥ k: argmax pⱼ ≠ argmax p_K} < τ"
    source: ClassVar[str] = "an oracle, no source"
    unit: ClassVar[str] = "loops"
    family: ClassVar[Family] = "reference"
    causal: ClassVar[bool] = False
    quantity: ClassVar[str] = "top10_id"
    scale: ClassVar[Literal["linear", "log"]] = "linear"

    threshold: float = 1.0
    minimum_loops: int = 1
    lens: LensChoice = "default"

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Loops still to come, this one included, whose argmax is not the final one. Raises MissingReadout."""
        ids = argmax(trajectory, block, lens=self.lens)
        wrong = (ids != ids[-1:]).astype(np.float64)
        remaining = np.cumsum(wrong[::-1], axis=0)[::-1]
        return np.where((ids >= 0) & (ids[-1:] >= 0), remaining, np.nan)
