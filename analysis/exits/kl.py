"""KL rule: stop when one more loop hardly changes the predicted distribution."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.exit_rule import Side, check_common_fields, recorded_lens
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class KLExit:
    """Stops when KL(p_(k-1) || p_k) < threshold nats (arXiv 2502.05171, section 6.1, with 5e-4).

    Undefined at k = 1. The lens is the coda's where it was recorded, else the logit lens, unless one is named.
    """

    name: ClassVar[str] = "kl"
    title: ClassVar[str] = "KL of successive readouts"
    formula: ClassVar[str] = "KL(pₖ₋₁ ‖ pₖ) < τ"
    source: ClassVar[str] = "arXiv 2502.05171, section 6.1"
    unit: ClassVar[str] = "nats"
    stops: ClassVar[Side] = "<"
    causal: ClassVar[bool] = True
    quantity: ClassVar[str] = "kl_previous"
    scale: ClassVar[Literal["linear", "log"]] = "log"
    holds_first_step: ClassVar[int] = 0

    threshold: float = 5e-4
    patience: int = 1
    minimum_loops: int = 2
    lens: Literal["default", "logit", "coda"] = "default"

    def __post_init__(self) -> None:
        check_common_fields(self)

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """KL to the previous readout in nats. Raises MissingReadout when the run recorded none."""
        lens = recorded_lens(trajectory, block, self.quantity, wanted=self.lens)
        return trajectory.blocks[block].readouts[lens, self.quantity].astype(np.float64)
