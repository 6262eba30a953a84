"""Decode iterates into readouts: the vocabulary is walked in chunks, no loops x tokens x vocabulary array is made."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from .head import Head
from .registry import collect

VOCABULARY_CHUNK = 4096
_CELLS = 4_000_000  # loops x tokens x vocabulary entries held at once, in float64 about 32 MB an array
_NEVER_SAID = -1e4  # stands for minus infinity: its probability is 0 and differences with it are finite


@dataclass(frozen=True)
class Batch:
    """A few tokens' features at every loop, and what follows them.

    Attributes:
        features: what the head reads, loops 1..K, float32. head: the output head, in any dtype; None where the
            features are logits already.
        targets: id of the true next token; -1 where there is none.
        exact: dtype of the reductions, float64 where the device has it.
    """

    features: Float[Tensor, "loops tokens width"]
    head: Head | None
    targets: Int64[Tensor, " tokens"]
    exact: torch.dtype

    @property
    def vocabulary(self) -> int:
        """Number of entries."""
        return self.features.shape[-1] if self.head is None else self.head.vocabulary

    @cached_property
    def to_next(self) -> Float[Tensor, "steps tokens width"]:
        """Change of the features from each loop to the next, taken before the head so that small ones survive."""
        return self.features[1:] - self.features[:-1]

    @cached_property
    def to_last(self) -> Float[Tensor, "loops tokens width"]:
        """Change of the features from each loop to the last."""
        return self.features[-1:] - self.features


class Chunk:
    """A stretch of the vocabulary: log-probabilities of every loop and token, and the logit changes on demand."""

    def __init__(self, batch: Batch, start: int, stop: int) -> None:
        self._batch = batch
        self._head = None if batch.head is None else batch.head.part(start, stop)
        self.start, self.stop = start, stop
        self.logits: Tensor = self._given() if self._head is None else self._made(self._head)
        self.log_p: Tensor = self.logits

    def _given(self) -> Tensor:
        return self._batch.features[..., self.start : self.stop].to(self._batch.exact)

    def _made(self, head: Head) -> Tensor:
        return head.capped(head.linear(self._batch.features).to(self._batch.exact))

    def normalise(self, log_z: Float[Tensor, "loops tokens"]) -> None:
        """Turn logits into log-probabilities, given the log of the sum over the whole vocabulary."""
        self.log_p = self.logits - log_z[..., None]

    @cached_property
    def p(self) -> Float[Tensor, "loops tokens entries"]:
        """Probabilities."""
        return self.log_p.exp()

    @cached_property
    def to_next(self) -> Float[Tensor, "steps tokens entries"]:
        """Change of the logits from each loop to the next."""
        before, after = self.logits[:-1], self.logits[1:]
        return after - before if self._head is None else self._head.change(self._batch.to_next, before, after)

    @cached_property
    def to_last(self) -> Float[Tensor, "loops tokens entries"]:
        """Change of the logits from each loop to the last."""
        before, last = self.logits, self.logits[-1:]
        return last - before if self._head is None else self._head.change(self._batch.to_last, before, last)


@runtime_checkable
class Readout(Protocol):
    """One decoded quantity, one file in readouts/: made per batch, fed every chunk ``turns`` times, then asked.

    Attributes:
        name: the quantity. title, unit: words for a person. first_loop: first loop at which it is defined.
        turns: how often it walks the vocabulary. always: whether every run has it; else it must be asked for.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]
    first_loop: ClassVar[int]
    turns: ClassVar[int]
    always: ClassVar[bool]

    def __init__(self, batch: Batch) -> None: ...

    def take(self, chunk: Chunk, turn: int) -> None:
        """Add one stretch of the vocabulary; ``turn`` counts from 0."""
        ...

    def result(self) -> dict[str, Shaped[Tensor, "loops tokens *n"]]:
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
    at_once = max(1, _CELLS // (loops * min(whole.vocabulary, VOCABULARY_CHUNK)))
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
    # A vocabulary of one chunk is multiplied once, a larger one anew in every turn: memory before time.
    walk = list(_chunks(batch)) if batch.vocabulary <= VOCABULARY_CHUNK else None
    log_z = _log_normaliser(walk or _chunks(batch))
    running = [kind(batch) for kind in quantities]
    for turn in range(max(readout.turns for readout in running)):
        for chunk in walk or _chunks(batch):
            chunk.normalise(log_z)
            for readout in running:
                if turn < readout.turns:
                    readout.take(chunk, turn)
    results: dict[str, Tensor] = {}
    for readout in running:
        results |= readout.result()
    finite = batch.features.isfinite().all(dim=-1)
    return {name: _blank(values, finite) for name, values in results.items()}


def _blank(values: Tensor, finite: Tensor) -> Tensor:
    keep = finite.reshape(finite.shape + (1,) * (values.dim() - 2))
    return torch.where(keep, values, -1 if values.dtype == torch.int64 else torch.nan)


def _chunks(batch: Batch) -> Iterator[Chunk]:
    entries = batch.vocabulary
    for start in range(0, entries, VOCABULARY_CHUNK):
        yield Chunk(batch, start, min(entries, start + VOCABULARY_CHUNK))


def _log_normaliser(chunks: Iterable[Chunk]) -> Float[Tensor, "loops tokens"]:
    parts = [torch.logsumexp(chunk.logits, dim=-1) for chunk in chunks]
    return torch.logsumexp(torch.stack(parts), dim=0)


class RunningKL:
    """KL(p || q) in nats where the logits of q are those of p plus d: log(1 + E_p[expm1(x) - x]), x = d - E_p[d].

    Exact for tiny divergences, where subtracting log-probabilities leaves rounding only; never negative. The vocabulary
    is walked once: each stretch is centred by its own mean, and its sum of expm1(x) - x moved to the common mean
    when it is added. With S the sum of p and sum p x = 0, a move of the centre by t turns the sum A into
    e^t A + S (expm1(t) - t), two terms that are never negative.
    """

    def __init__(self) -> None:
        self._weight: Tensor | None = None
        self._mean: Tensor | None = None
        self._excess: Tensor | None = None

    def take(self, p: Float[Tensor, "rows tokens entries"], d: Float[Tensor, "rows tokens entries"]) -> None:
        """Add a stretch of the vocabulary: probabilities under p, and logit changes from p to q."""
        weight = p.sum(dim=-1)
        mean = torch.where(weight > 0, (p * d).sum(dim=-1) / weight, 0.0)
        excess = (p * _expm1_excess(d - mean[..., None])).sum(dim=-1)
        if self._weight is None or self._mean is None or self._excess is None:
            self._weight, self._mean, self._excess = weight, mean, excess
            return
        whole = self._weight + weight
        common = torch.where(whole > 0, (self._weight * self._mean + weight * mean) / whole, 0.0)
        self._excess = _moved(self._excess, self._weight, self._mean - common) + _moved(excess, weight, mean - common)
        self._weight, self._mean = whole, common

    def value(self) -> Float[Tensor, "rows tokens"]:
        """The divergence."""
        assert self._weight is not None, "nothing was taken"
        assert self._excess is not None, "nothing was taken"
        return torch.log1p(self._excess / self._weight)


class StepwiseKL:
    """What the two divergences between successive readouts share: undefined at k = 1, and nothing to add for one loop."""

    name: ClassVar[str]

    def __init__(self, batch: Batch) -> None:
        self._kl = RunningKL()
        self._undefined = torch.full_like(batch.features[:1, :, 0], torch.nan, dtype=batch.exact)
        self._steps = len(batch.features) - 1

    def add(self, p: Float[Tensor, "steps tokens entries"], d: Float[Tensor, "steps tokens entries"]) -> None:
        """Add a stretch: probabilities, and what the logits change by to those of the other distribution."""
        if self._steps:
            self._kl.take(p, d)

    def result(self) -> dict[str, Float[Tensor, "loops tokens"]]:
        """Under the quantity's name."""
        return {self.name: torch.cat([self._undefined, self._kl.value()]) if self._steps else self._undefined}


def _moved(excess: Tensor, weight: Tensor, by: Tensor) -> Tensor:
    """The sum of p (expm1(x) - x) over entries of total ``weight`` after all x have grown ``by`` as much."""
    return torch.where(weight > 0, excess * by.exp() + weight * _expm1_excess(by), 0.0)


def _expm1_excess(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """expm1(x) - x >= 0, by its series where the subtraction would cancel."""
    series = x * x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x / 720))))
    return torch.where(x.abs() < 0.03, series, torch.expm1(x) - x)
