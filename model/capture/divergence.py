"""Divergences and entropies, exact where they are tiny: gathered in one walk over the vocabulary, stretch by stretch."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from .readout import Batch, Softmax

_TERMS = (2, 3, 7)
_REACHES = (2e-3, 0.05, 0.5, 30.0)
"""Largest |x| of a loop up to which so many terms of the series do in float32, and up to which float32 does at all."""


class RunningEntropy:
    """-sum p log p in nats: what is undecided within the stretches and between them, terms that are never negative."""

    def __init__(self) -> None:
        self._within: list[Tensor] = []

    def take(self, softmax: Softmax) -> None:
        """Add a stretch of the vocabulary."""
        self._within.append(softmax.mass.log() - softmax.mean(softmax.below))

    def value(self, shares: Float[Tensor, "stretches rows tokens"]) -> Float[Tensor, "rows tokens"]:
        """The entropy, given how much of p lies in each stretch."""
        return (shares * torch.stack(self._within) - torch.xlogy(shares, shares)).sum(dim=0)


class RunningKL:
    """KL(p || q) in nats where the logits of q are those of p plus d: log(1 + E_p[expm1(x) - x]), x = d - E_p[d].

    Exact for tiny divergences, where subtracting log-probabilities leaves rounding only; never negative. The vocabulary
    is walked once: each stretch is centred by its own mean, and A = E_p[expm1(x) - x] of a stretch moved to the common
    mean at the end: where all x grow by t, A turns into e^t A + (expm1(t) - t), two terms that are never negative.
    The mean need not be exact: A depends on it in second order only.
    """

    def __init__(self) -> None:
        self._means: list[Tensor] = []
        self._excesses: list[Tensor] = []

    def take(self, softmax: Softmax, d: Float[Tensor, "rows tokens entries"]) -> None:
        """Add a stretch of the vocabulary: p within it, and logit changes from p to q."""
        mean = softmax.mean(d)
        x = d - mean.to(d.dtype)[..., None]
        self._means.append(mean)
        parts = [_excess(softmax[rows], x[rows], reach) for rows, reach in _alike(x)]
        self._excesses.append(parts[0] if len(parts) == 1 else torch.cat(parts))

    def value(self, shares: Float[Tensor, "stretches rows tokens"]) -> Float[Tensor, "rows tokens"]:
        """The divergence, given how much of p lies in each stretch."""
        if len(self._means) == 1:
            return torch.log1p(self._excesses[0])
        means, excesses = torch.stack(self._means), torch.stack(self._excesses)
        by = means - (shares * means).sum(dim=0)
        moved = excesses * by.exp() + _expm1_excess(by, below=0.03, terms=5)
        return torch.log1p(torch.where(shares > 0, shares * moved, 0.0).sum(dim=0))


class StepwiseKL:
    """What the two divergences between successive readouts share: undefined at k = 1, and nothing to add for one loop."""

    name: ClassVar[str]

    def __init__(self, batch: Batch) -> None:
        self._kl = RunningKL()
        self._undefined = torch.full_like(batch.features[:1, :, 0], torch.nan, dtype=batch.exact)
        self._steps = len(batch.features) - 1

    def add(self, softmax: Softmax, d: Float[Tensor, "steps tokens entries"]) -> None:
        """Add a stretch: probabilities, and what the logits change by to those of the other distribution."""
        if self._steps:
            self._kl.take(softmax, d)

    def values(self, shares: Float[Tensor, "stretches steps tokens"]) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under the quantity's name; ``shares`` are those of the probabilities that were added."""
        return {self.name: torch.cat([self._undefined, self._kl.value(shares)]) if self._steps else self._undefined}


def _alike(x: Float[Tensor, "rows tokens entries"]) -> Iterator[tuple[slice, int]]:
    """Runs of rows that one way of computing serves: how far x reaches there, as an index into _REACHES and beyond."""
    low, high = x.amin(dim=(1, 2)), x.amax(dim=(1, 2))
    reaches = cast("list[float]", torch.maximum(high, -low).tolist())
    classes = [sum(not reach <= limit for limit in _REACHES) for reach in reaches]  # a NaN is beyond all
    start = 0
    for reach, same in groupby(classes):
        stop = start + len(list(same))
        yield slice(start, stop), reach
        start = stop


def _excess(softmax: Softmax, x: Float[Tensor, "rows tokens entries"], reach: int) -> Float[Tensor, "rows tokens"]:
    """Mean of expm1(x) - x, where x reaches as far as ``_alike`` says."""
    exact = softmax.log_z.dtype
    if reach == len(_REACHES) or x.dtype == torch.float64:
        below = softmax.below.to(exact)
        return replace(softmax, weights=below.exp()).mean(_expm1_excess(x.to(exact), below=0.03, terms=5))
    if reach == len(_REACHES) - 1:
        return softmax.mean(_expm1_excess(x, below=0.5, terms=7))
    return softmax.mean(_series(x, _TERMS[reach]))


def _expm1_excess(x: Float[Tensor, "*shape"], *, below: float, terms: int) -> Float[Tensor, "*shape"]:
    """expm1(x) - x >= 0, by its series where the subtraction would cancel."""
    return torch.where(x.abs() < below, _series(x, terms), torch.expm1(x) - x)


_FACTORIALS = (2.0, 6.0, 24.0, 120.0, 720.0, 5040.0, 40320.0)


def _series(x: Float[Tensor, "*shape"], terms: int) -> Float[Tensor, "*shape"]:
    """The first terms of expm1(x) - x = x^2 / 2! + x^3 / 3! + ..., never negative for |x| <= 0.5."""
    found = (x / _FACTORIALS[terms - 1]).add_(1 / _FACTORIALS[terms - 2])
    for factorial in reversed(_FACTORIALS[: terms - 2]):
        found.mul_(x).add_(1 / factorial)
    return found.mul_(x).mul_(x)
