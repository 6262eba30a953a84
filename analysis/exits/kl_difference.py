"""KL difference rule: stop when the KL summed over the prompt has become steady (a variant in public code)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from analysis.exit_base import Direction, LensChoice, RuleBase, read
from analysis.exit_rule import Family
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class KLDifferenceExit(RuleBase):
    """Stops when |S_k - S_(k-1)| < threshold nats, S_k the sum over positions of KL(p_(k-1) || p_k).

    A variant of the two-scale paper's public code (tomoqt/Latent_ttc). The paper compares the KL itself, per token, as
    Geiping et al. do; this one compares its *change*, sums it over the prompt (so it grows with the prompt's length)
    and stops all tokens together. Its diagnostics take the reverse direction, KL(p_k || p_(k-1)), through the logit
    lens. Positions that are undefined at one of the two loops are left out. In a live run a token is inside the block
    alone, so that the sum is over that token. No default is published; this one
    makes the bundled demo spend as many loops as the KL rule does at 5e-4, on prompts of 128 tokens.
    """

    name: ClassVar[str] = "kl_difference"
    title: ClassVar[str] = "change of the summed KL"
    formula: ClassVar[str] = "|Σₜ KLₖ − Σₜ KLₖ₋₁| < τ"
    source: ClassVar[str] = "code of arXiv 2509.23314, not the paper"
    unit: ClassVar[str] = "nats"
    family: ClassVar[Family] = "divergence"
    quantity: ClassVar[str] = "kl_previous"
    first_score: ClassVar[int] = 3

    threshold: float = 0.38
    lens: LensChoice = "default"
    direction: Direction = "forward"

    @property
    def asks(self) -> tuple[str, ...]:
        """What must be asked for."""
        return ("kl_reverse",) if self.direction == "reverse" else ()

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """The same value for all tokens with a finite state, defined from k = 3. Raises MissingReadout."""
        reverse = self.direction == "reverse"
        quantity, record = ("kl_reverse", "kl_reverse") if reverse else (self.quantity, "")
        kl = read(trajectory, block, quantity, lens=self.lens, record=record)
        found = np.full(kl.shape, np.nan)
        change = np.diff(kl, axis=0)
        defined = np.isfinite(change)
        total = np.abs(np.where(defined, change, 0.0).sum(axis=1, keepdims=True))
        found[1:] = np.where(defined, total, np.nan)
        return found
