"""KL rule: stop when one more loop hardly changes the predicted distribution."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import Direction, FirstLoop, LensChoice, RuleBase, read
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class KLExit(RuleBase):
    """Stops when KL(p_(k-1) || p_k) < threshold nats (arXiv 2502.05171, section 6.1, with 5e-4; its code has 1e-3).

    direction: ``forward`` is KL(p_(k-1) || p_k), the paper's code; ``reverse`` is KL(p_k || p_(k-1)).
    first_loop: ``undefined`` gives loop 1 no score; ``uniform`` compares it with the uniform distribution, as the
    code does. Reverse and uniform read quantities that a run has only where they were asked for.
    """

    name: ClassVar[str] = "kl"
    title: ClassVar[str] = "KL of successive readouts"
    formula: ClassVar[str] = "KL(pₖ₋₁ ‖ pₖ) < τ; reverse: KL(pₖ ‖ pₖ₋₁) < τ"
    source: ClassVar[str] = "arXiv 2502.05171, section 6.1"
    unit: ClassVar[str] = "nats"
    family: ClassVar[Family] = "divergence"
    default_on: ClassVar[bool] = True
    quantity: ClassVar[str] = "kl_previous"
    first_score: ClassVar[int] = 2

    threshold: float = 5e-4
    lens: LensChoice = "default"
    direction: Direction = "forward"
    first_loop: FirstLoop = "undefined"

    @property
    def asks(self) -> tuple[str, ...]:
        """What must be asked for."""
        asked = {"kl_reverse": self.direction == "reverse", "kl_uniform": self.first_loop == "uniform"}
        return tuple(quantity for quantity, wanted in asked.items() if wanted)

    def defined_from(self) -> int:
        """Loop 1 where that is compared with the uniform distribution."""
        return 1 if self.first_loop == "uniform" else self.first_score

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The divergence in nats. Raises MissingReadout when the run did not record it."""
        reverse = self.direction == "reverse"
        quantity, record = ("kl_reverse", "kl_reverse") if reverse else (self.quantity, "")
        found = read(trajectory, block, quantity, lens=self.lens, record=record)
        if self.first_loop == "uniform":
            uniform = "kl_uniform_reverse" if reverse else "kl_uniform"
            found[:1] = read(trajectory, block, uniform, lens=self.lens, record="kl_uniform")[:1]
        return found
