"""Decode iterates into readouts: the vocabulary is walked in stretches, no loops x tokens x vocabulary array is made."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from .head import Head
from .registry import collect

_SHORTEST = 2048  # entries of the vocabulary that a stretch has at least, or all
_CELLS = 524_288  # loops x tokens x entries held at once: in float32 two megabytes an array, which caches hold
_WEIGHTS = 16_000_000  # numbers of the head held at once in float32, 64 MB
_ANCHORS_APART, _LARGER = 8, 8.0
_SURE = 1.1  # sum of exponentials below which the largest stands almost alone
_NEVER_SAID = -1e4  # stands for minus infinity: its probability is 0 and differences with it are finite


@dataclass(frozen=True)
class Batch:
    """A few tokens' features at every loop, and what follows them.

    Attributes:
        features: what the head reads, loops 1..K, float32. head: the output head, in any dtype; None where the
            features are logits already.
        targets: id of the true next token; -1 where there is none.
        exact: dtype of what is kept of each stretch, float64 where the device has it.
    """

    features: Float[Tensor, "loops tokens width"]
    head: Head | None
    targets: Int64[Tensor, " tokens"]
    exact: torch.dtype

    @property
    def vocabulary(self) -> int:
        """Number of entries."""
        return self.features.shape[-1] if self.head is None else self.head.vocabulary

    @property
    def work(self) -> torch.dtype:
        """Dtype of what is computed of every entry; a soft cap takes more digits where it saturates."""
        return self.exact if self.head is not None and self.head.softcap is not None else self.features.dtype

    @cached_property
    def to_next(self) -> Float[Tensor, "steps tokens width"]:
        """Change of the features from each loop to the next, taken before the head so that small ones survive."""
        return self.features[1:] - self.features[:-1]

    @cached_property
    def to_last(self) -> Float[Tensor, "loops tokens width"]:
        """Change of the features from each loop to the last."""
        return self.features[-1:] - self.features

    @cached_property
    def anchors(self) -> tuple[int, ...]:
        """Rows whose logits are a product of their own, the last one first; the others differ from them by changes.

        So the changes, which must be products of their own too, cost no second product. A row is a few changes away
        from its anchor, and adding them up rounds no more than a product does. Where something is not finite, or features
        on the way are much larger than a row's own, every row stands for itself.
        """
        loops, size = len(self.features), self.features.abs().amax(dim=-1)
        alike = bool(self.finite.all()) and not any(
            bool((size[ahead:] > _LARGER * size[:-ahead]).any()) for ahead in range(1, min(loops, _ANCHORS_APART))
        )
        return tuple(range(loops - 1, -1, -_ANCHORS_APART if alike else -1))

    @cached_property
    def walked(self) -> Float[Tensor, "rows tokens width"]:
        """What every stretch of the head is multiplied with: features of the anchors, then changes to the next loop."""
        return torch.cat([*(self.features[row : row + 1] for row in self.anchors), self.to_next])

    @cached_property
    def finite(self) -> Bool[Tensor, "loops tokens"]:
        """Where the features are numbers."""
        return self.features.isfinite().all(dim=-1)


@dataclass(frozen=True)
class Softmax:
    """Softmax over a stretch of the vocabulary: probabilities within it are weights / mass.

    Attributes:
        below: logits less the largest one of the stretch. weights: their exponentials.
        mass: sum of the weights. log_z: log of the sum of the exponentials of the logits.
    """

    below: Float[Tensor, "rows tokens entries"]
    weights: Float[Tensor, "rows tokens entries"]
    mass: Float[Tensor, "rows tokens"]
    log_z: Float[Tensor, "rows tokens"]

    def __getitem__(self, rows: slice) -> "Softmax":
        """The same of some loops."""
        return Softmax(self.below[rows], self.weights[rows], self.mass[rows], self.log_z[rows])

    def mean(self, values: Float[Tensor, "rows tokens entries"]) -> Float[Tensor, "rows tokens"]:
        """Mean of the values under the probabilities within this stretch."""
        return (values * self.weights).sum(dim=-1).to(self.mass.dtype) / self.mass


class Chunk:
    """A stretch of the vocabulary: logits of every loop and token, and on demand their softmax and changes."""

    def __init__(self, batch: Batch, start: int, stop: int) -> None:
        self._batch = batch
        self._head = None if batch.head is None else batch.head.part(start, stop)
        self.start, self.stop = start, stop

    @cached_property
    def logits(self) -> Float[Tensor, "loops tokens entries"]:
        """The logits."""
        batch, head = self._batch, self._head
        if head is None:
            return batch.features[..., self.start : self.stop].to(batch.work)
        anchors, changes = self._products
        raw = anchors.new_empty(len(batch.features), *anchors.shape[1:])
        at = dict(zip(batch.anchors, anchors, strict=True))
        for row in reversed(range(len(raw))):
            if row in at:
                raw[row] = at[row] if head.bias is None else at[row] + head.bias
            else:
                torch.sub(raw[row + 1], changes[row], out=raw[row])
        return head.capped(raw.to(batch.work))

    @cached_property
    def _products(self) -> Sequence[Float[Tensor, "rows tokens entries"]]:
        """Products of the head with the features of the anchors, and with the changes to the next loop."""
        made, anchors = _product(self._batch.walked, self._head), len(self._batch.anchors)
        return made[:anchors], made[anchors:]

    @cached_property
    def softmax(self) -> Softmax:
        """The softmax within this stretch."""
        peak = self.logits.amax(dim=-1)
        below = self.logits - peak[..., None]
        weights = below.exp()
        mass = weights.sum(dim=-1).to(self._batch.exact)
        sure = mass < _SURE  # the largest one would round off the others
        if bool(sure.any()):
            mass[sure] = weights[sure].sum(dim=-1, dtype=self._batch.exact)
        return Softmax(below, weights, mass, peak + mass.log())

    @cached_property
    def to_next(self) -> Float[Tensor, "steps tokens entries"]:
        """Change of the logits from each loop to the next."""
        before, after = self.logits[:-1], self.logits[1:]
        return after - before if self._head is None else self._head.change(self._products[1], before, after)

    @cached_property
    def to_last(self) -> Float[Tensor, "loops tokens entries"]:
        """Change of the logits from each loop to the last."""
        before, last = self.logits, self.logits[-1:]
        if self._head is None:
            return last - before
        return self._head.change(_product(self._batch.to_last, self._head), before, last)


def _product(rows: Float[Tensor, "rows tokens width"], head: Head | None) -> Float[Tensor, "rows tokens entries"]:
    assert head is not None, "logits that are given have no features"
    return rows @ head.weight.T


class Walked:
    """What a walk over the whole vocabulary leaves: how its stretches add up.

    Attributes:
        log_z: log of the sum of the exponentials of all logits. shares: how much of p lies in each stretch.
    """

    def __init__(self, log_zs: Sequence[Float[Tensor, "loops tokens"]]) -> None:
        stacked = torch.stack(list(log_zs))
        self.log_z: Tensor = torch.logsumexp(stacked, dim=0) if len(log_zs) > 1 else log_zs[0]
        self.shares: Tensor = (stacked - self.log_z).exp()


@runtime_checkable
class Readout(Protocol):
    """One decoded quantity, one file in readouts/: made per batch, fed every stretch of the vocabulary, then asked.

    Attributes:
        name: the quantity. title, unit: words for a person. first_loop: first loop at which it is defined.
        again: whether it reads every stretch a second time, knowing how all add up.
        always: whether every run has it; else it must be asked for.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]
    first_loop: ClassVar[int]
    again: ClassVar[bool]
    always: ClassVar[bool]

    def __init__(self, batch: Batch) -> None: ...

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Add one stretch of the vocabulary; ``walked`` is None the first time."""
        ...

    def result(self, walked: Walked) -> dict[str, Shaped[Tensor, "loops tokens *n"]]:
        """Arrays by quantity, row r is loop r + 1; NaN where undefined."""
        ...


if TYPE_CHECKING:
    ReadoutClass = type[Readout]
else:
    ReadoutClass = type  # a protocol with fields cannot be asked about subclasses, so run-time checks go no deeper


def readouts() -> dict[str, ReadoutClass]:
    """Every readout class by name, from the files in readouts/."""
    return collect(f"{__package__}.readouts")


@torch.inference_mode()
def decode(
    features: Float[Tensor, "loops tokens width"],
    head: Float[Tensor, "vocabulary width"] | Head,
    targets: Int64[Tensor, " tokens"],
    *,
    quantities: Sequence[ReadoutClass],
    between: Callable[[], Any] = lambda: None,
) -> dict[str, Shaped[np.ndarray, "loops tokens *n"]]:
    """All quantities of one block through one lens; float32, ids int64 (-1 where the state is not finite).

    A tensor as head is a weight without bias and soft cap. ``between`` is called between batches of tokens and
    may raise to stop.
    """
    loops, tokens, _ = features.shape
    exact = torch.float32 if features.device.type == "mps" else torch.float64
    whole = head if isinstance(head, Head) else Head(head)
    most = max(1, _CELLS // (loops * min(whole.vocabulary, _SHORTEST)))
    at_once = max(1, math.ceil(tokens / max(1, math.ceil(tokens / most))))
    parts: list[dict[str, Tensor]] = []
    for start in range(0, tokens, at_once):
        between()
        stop = min(tokens, start + at_once)
        batch = Batch(features[:, start:stop].to(torch.float32), whole, targets[start:stop], exact)
        parts.append(_decode_batch(batch, quantities))
    return _joined(parts)


@torch.no_grad()  # no inference mode: tables that their model makes lazily must serve its training too
def decode_logits(
    logits_at: Callable[[slice], Float[Tensor, "loops part vocabulary"]],
    targets: Int64[Tensor, " tokens"],
    *,
    at_once: int,
    quantities: Sequence[ReadoutClass],
) -> dict[str, Shaped[np.ndarray, "loops tokens *n"]]:
    """Like ``decode`` from logits that somebody else computes; ``logits_at`` gives those of ``at_once`` tokens.

    Changes between loops are differences of these logits, so what their dtype rounded off is lost: in float32 a KL
    below about 1e-11 is rounding, in bfloat16 one below about 1e-4. An entry of minus infinity is never said.
    """
    parts: list[dict[str, Tensor]] = []
    for start in range(0, len(targets), at_once):
        some = slice(start, min(len(targets), start + at_once))
        logits = logits_at(some)
        exact = torch.float32 if logits.device.type == "mps" else torch.float64
        given = logits.to(torch.promote_types(logits.dtype, torch.float32)).clamp(min=_NEVER_SAID)
        parts.append(_decode_batch(Batch(given, None, targets[some], exact), quantities))
    return _joined(parts)


def _joined(parts: Sequence[dict[str, Tensor]]) -> dict[str, np.ndarray]:
    return {name: _to_numpy(torch.cat([part[name] for part in parts], dim=1)) for name in parts[0]}


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.cpu().numpy() if values.dtype == torch.int64 else values.to(torch.float32).cpu().numpy()


def _decode_batch(batch: Batch, quantities: Sequence[ReadoutClass]) -> dict[str, Tensor]:
    running = [kind(batch) for kind in quantities]
    log_zs: list[Tensor] = []
    for chunk in _chunks(batch):
        log_zs.append(chunk.softmax.log_z)
        for readout in running:
            readout.take(chunk, None)
    walked = Walked(log_zs)
    again = [readout for readout in running if readout.again]
    for chunk in _chunks(batch) if again else ():
        for readout in again:
            readout.take(chunk, walked)
    results: dict[str, Tensor] = {}
    for readout in running:
        results |= readout.result(walked)
    return {name: _blank(values, batch.finite) for name, values in results.items()}


def _blank(values: Tensor, finite: Tensor) -> Tensor:
    keep = finite.reshape(finite.shape + (1,) * (values.dim() - 2))
    return torch.where(keep, values, -1 if values.dtype == torch.int64 else torch.nan)


def _chunks(batch: Batch) -> Iterator[Chunk]:
    loops, tokens, width = batch.features.shape
    entries, step = batch.vocabulary, max(_SHORTEST, min(_CELLS // max(1, loops * tokens), _WEIGHTS // width))
    for start in range(0, entries, step):
        yield Chunk(batch, start, min(entries, start + step))
