"""Oracle of the cross-entropy: the loop at which the true next token is likeliest."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import LensChoice, RuleBase, read
from analysis.exit_rule import Family, Side
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class OracleCrossEntropyExit(RuleBase):
    """Stops at the first loop whose cross-entropy is within threshold nats of the lowest over all loops; by default at it.

    Not causal, and it knows the next token: it bounds the quality that any rule can reach, and never runs live. A token
    whose best loop is not the last shows that more loops made it worse.
    """

    name: ClassVar[str] = "oracle_cross_entropy"
    title: ClassVar[str] = "oracle: lowest cross-entropy"
    formula: ClassVar[str] = "CEₖ − minⱼ CEⱼ ≤ τ"
    source: ClassVar[str] = "an oracle, no source"
    unit: ClassVar[str] = "nats"
    family: ClassVar[Family] = "reference"
    stops: ClassVar[Side] = "<="
    causal: ClassVar[bool] = False
    quantity: ClassVar[str] = "log_probability_next"
    scale: ClassVar[Literal["linear", "log"]] = "linear"

    threshold: float = 0.0
    minimum_loops: int = 1
    lens: LensChoice = "default"

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Nats above the lowest; undefined at the last position. Raises MissingReadout."""
        loss = -read(trajectory, block, self.quantity, lens=self.lens)
        return loss - np.fmin.reduce(loss, axis=0)
