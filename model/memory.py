"""How much memory a run takes, from sizes alone, and what would make it fit; no torch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.card import Card
from model.request import Record, Request, loops_per_block

BYTES_PER_WEIGHT = {"float32": 4, "bfloat16": 2, "float16": 2}
_MIB = 2**20
_NUMBERS = 4 * 8  # state norm, step norm, cosine, acceleration, in float64
_READOUTS = 4 * 4 + 10 * 12  # four float32 and ten (id, probability) pairs
_DECODING = 200 * _MIB  # stretches of the head and of the vocabulary for one batch of tokens, at most


class MemoryLimit(ValueError):
    """A run that would not fit; the message says by how much, and what would."""


@dataclass(frozen=True)
class Sizes:
    """What the estimate needs to know of a model."""

    width: int
    parameters: int
    bytes_per_weight: int


@dataclass(frozen=True)
class Estimate:
    """Bytes that a run takes.

    Attributes:
        stored: what the finished run keeps. working: what is held besides while it runs, the weights included.
        limit: what may be used. advice: ways to fit, empty where it fits.
    """

    stored_bytes: int
    working_bytes: int
    limit_bytes: int
    advice: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the run stays within the limit."""
        return self.stored_bytes + self.working_bytes <= self.limit_bytes

    def sentence(self) -> str:
        """Need against limit, with advice."""
        need, limit = _gib(self.stored_bytes + self.working_bytes), _gib(self.limit_bytes)
        said = f"This run needs about {need} of memory; the limit is {limit}."
        return said if self.fits else f"{said} To make it fit: {'; '.join(self.advice)}."


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / _MIB:.0f} MiB"


def estimate(
    sizes: Sizes, *, tokens: Sequence[int], loops: Sequence[int], lenses: int, record: Record, limit: int | None = None
) -> Estimate:
    """Estimate of a run over prompts of the given lengths; ``loops`` has one entry per block."""
    stored = sum(_stored(sizes, t, loops, lenses=lenses, record=record) for t in tokens)
    longest = max(tokens)
    all_states = sum(n + 1 for n in loops) * longest * sizes.width * 4
    states = all_states if lenses else 0
    decoding = min(_DECODING, 40 * max(loops) * longest * sizes.width * 8) if lenses else 0
    weights = sizes.parameters * sizes.bytes_per_weight
    working = weights + states + decoding + 64 * longest * sizes.width * 8
    bound = memory_limit() if limit is None else limit
    found = Estimate(stored_bytes=stored, working_bytes=working, limit_bytes=bound)
    return found if found.fits else Estimate(stored, working, bound, _advice(record, lenses=lenses, prompts=len(tokens)))


def estimate_request(request: Request, card: Card, tokens: Sequence[int]) -> Estimate:
    """Estimate of a request on a checkpoint, for prompts of the given lengths; nothing is loaded."""
    loops = loops_per_block(request.loops, len(card.block_names))
    sizes = Sizes(max(card.width, card.state_width), card.parameters, BYTES_PER_WEIGHT[request.dtype])
    return estimate(sizes, tokens=tokens, loops=loops, lenses=len(request.lenses), record=request.record)


def _stored(sizes: Sizes, tokens: int, loops: Sequence[int], *, lenses: int, record: Record) -> int:
    start, stop = record.positions or (0, tokens)
    kept_tokens = max(0, min(stop, tokens) - start)
    total = 0
    for n in loops:
        kept = len(record.kept_loops(n))
        total += (kept + 1) * kept_tokens * sizes.width * 4 + n * tokens * (_NUMBERS + _READOUTS * lenses)
    return total


def _advice(record: Record, *, lenses: int, prompts: int) -> tuple[str, ...]:
    ways = ["ask for fewer loops", f"store every {max(4, record.every * 2)}-th state", "store a token range"]
    if record.states:
        ways.append("record statistics only")
    if lenses:
        ways.append("record no lens, so that no iterate is held for decoding")
    if prompts > 1:
        ways.append("run fewer prompts at once")
    return tuple(ways)


def memory_limit() -> int:
    """Bytes a run may take: LOOPSCOPE_MEMORY_GIB where it is set, else half of what is free now."""
    asked = os.environ.get("LOOPSCOPE_MEMORY_GIB")
    if asked:
        try:
            return int(float(asked) * 2**30)
        except ValueError as error:
            raise MemoryLimit(f"LOOPSCOPE_MEMORY_GIB is {asked!r}; give a number of GiB.") from error
    return _free() // 2


def _free() -> int:
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
