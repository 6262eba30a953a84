"""Margin rule: stop when the likeliest token leads the second by enough."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import LensChoice, RuleBase, read
from analysis.exit_rule import Family, Side
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class TopMarginExit(RuleBase):
    """Stops when p_k(first) - p_k(second) >= threshold: the softmax response of CALM (Schuster et al., arXiv 2207.07061).

    The default, 0.8, is a round number; the paper calibrates it on data.
    """

    name: ClassVar[str] = "top_margin"
    title: ClassVar[str] = "margin of the first"
    formula: ClassVar[str] = "pₖ(1st) − pₖ(2nd) ≥ τ"
    source: ClassVar[str] = "arXiv 2207.07061"
    family: ClassVar[Family] = "confidence"
    stops: ClassVar[Side] = ">="
    quantity: ClassVar[str] = "top10_probability"
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    highest: ClassVar[float] = 1.0

    threshold: float = 0.8
    minimum_loops: int = 1
    lens: LensChoice = "default"

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The lead of the likeliest token. Raises MissingReadout when the run recorded no readout."""
        top = read(trajectory, block, self.quantity, lens=self.lens)
        return top[..., 0] - (top[..., 1] if top.shape[-1] > 1 else 0.0)
