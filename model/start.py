"""How a family starts its blocks, as a value; no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InitialRule:
    """How a family starts a block: Gaussian noise of ``std``, on top of the entry or alone; std 0 is no noise.

    Attributes:
        cut: the noise is a truncated normal, cut at this many ``std``; None where it is not.
        standardised: each token's noise is shifted and scaled to mean 0 and standard deviation 1.
    """

    std: float
    from_entry: bool
    cut: float | None = None
    standardised: bool = False

    def words(self) -> str:
        """The rule in words, for a chart or a card."""
        noise = f"Gaussian noise of std {self.std:.4g}"
        if self.cut is not None:
            noise += f", cut at {self.cut:g} std"
        if self.standardised:
            noise += ", each token's standardised"
        if self.std == 0:
            return "the block's entry" if self.from_entry else "zeros"
        return f"the block's entry plus {noise}" if self.from_entry else noise
