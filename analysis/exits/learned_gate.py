"""Learned gate rule: stop when the model's own gate has let out enough probability."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import RuleBase, gate_probability
from analysis.exit_rule import Family, Side
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class LearnedGateExit(RuleBase):
    """Stops when the cumulative exit probability after k loops, 1 - prod_{j<=k} (1 - p_j), is >= threshold.

    The rule of Ouro (arXiv 2510.25741), summed in float32 in the order of its code, with a threshold rounded to
    float32. The code lets the last loop take what is left, so that it stops there at any threshold; here such a token
    never exits. No default is published for the threshold (its config has 1: run all loops); 0.9 is a round number.
    """

    name: ClassVar[str] = "learned_gate"
    title: ClassVar[str] = "learned gate"
    formula: ClassVar[str] = "Σⱼ≤ₖ P(exit at j) ≥ τ"
    source: ClassVar[str] = "arXiv 2510.25741"
    family: ClassVar[Family] = "gate"
    stops: ClassVar[Side] = ">="
    quantity: ClassVar[str] = "gate_probability"
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    lens: ClassVar[str] = "gate"
    highest: ClassVar[float] = 1.0

    threshold: float = 0.9
    minimum_loops: int = 1

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The cumulative probability, 0..1. Raises MissingReadout where the model has no gate."""
        probability = gate_probability(trajectory, block)
        left = np.cumprod(1 - probability, axis=0, dtype=np.float32)
        before = np.concatenate([np.ones_like(left[:1]), left[:-1]])
        cumulative = np.cumsum(probability * before, axis=0, dtype=np.float32)
        met = cumulative == np.float32(self.threshold)
        return np.where(met, self.threshold, cumulative.astype(np.float64))
