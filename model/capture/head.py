"""The output head: features to logits, and the change of logits from the change of features."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Head:
    """logits = features @ weight.T + bias, then softcap * tanh(logits / softcap) where there is a soft cap.

    Raises ValueError when the soft cap is not positive; None means that there is none.
    """

    weight: Float[Tensor, "vocabulary width"]
    bias: Float[Tensor, " vocabulary"] | None = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        if self.softcap is not None and not self.softcap > 0:
            raise ValueError(f"The soft cap of the head is {self.softcap}; give a positive number, or None for no cap.")

    @property
    def vocabulary(self) -> int:
        """Number of entries."""
        return len(self.weight)

    def logits(self, features: Float[Tensor, "*shape width"]) -> Float[Tensor, "*shape vocabulary"]:
        """The logits, in the dtype of the features."""
        return self.capped(self.linear(features))

    def linear(self, features: Float[Tensor, "*shape width"]) -> Float[Tensor, "*shape vocabulary"]:
        """Weight and bias alone, before the cap."""
        raw = features @ self.weight.to(features.dtype).T
        return raw if self.bias is None else raw + self.bias.to(features.dtype)

    def capped(self, raw: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The cap alone."""
        return raw if self.softcap is None else self.softcap * torch.tanh(raw / self.softcap)

    def part(self, start: int, stop: int) -> "Head":
        """The head of a stretch of the vocabulary, in float32."""
        bias = None if self.bias is None else self.bias[start:stop].to(torch.float32)
        return Head(self.weight[start:stop].to(torch.float32), bias, self.softcap)

    def change(
        self,
        raw: Float[Tensor, "rows tokens vocabulary"],
        before: Float[Tensor, "#rows tokens vocabulary"],
        after: Float[Tensor, "#rows tokens vocabulary"],
    ) -> Float[Tensor, "rows tokens vocabulary"]:
        """Change of the logits from ``before`` to ``after``, in their dtype, for a change ``raw`` before the cap.

        That is (change of the features) @ weight.T; the bias cancels. Small changes survive, also under a cap:
        tanh b - tanh a = tanh(b - a) (1 - tanh a tanh b).
        """
        if self.softcap is None:
            return raw.to(before.dtype)
        return self.capped(raw.to(before.dtype)) * (1 - (before / self.softcap) * (after / self.softcap))
