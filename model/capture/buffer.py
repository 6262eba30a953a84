"""The iterates of one block while they arrive: preallocated, copied at once, measured loop by loop in float64."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .trajectory import BlockTrace, ReadoutKey


def kept_loops(loops: int, *, every: int, states: bool) -> list[int]:
    """Loop numbers of the states to store: 0, 1, every n-th and the last; none for statistics only."""
    if not states:
        return []
    return sorted({0, 1, loops, *range(0, loops + 1, every)})


@dataclass
class BlockBuffer:
    """Takes one block's initial state and iterates, in order; gives the finished trace.

    Statistics are computed from the float32 copies in float64 as each iterate arrives, so they do not depend
    on which states are stored. ``working`` keeps all iterates until the readouts are made.
    """

    name: str
    layers: tuple[int, ...]
    loops: int
    tokens: int
    width: int
    device: torch.device
    keep: Sequence[int]
    keep_working: bool
    kept: slice = field(default_factory=lambda: slice(None))

    def __post_init__(self) -> None:
        self.exact = torch.float32 if self.device.type == "mps" else torch.float64  # MPS has no float64
        rows = self.loops + 1
        self._stored_at = list(range(rows)) if self.keep_working else list(self.keep)
        self._row_of = {loop: row for row, loop in enumerate(self._stored_at)}
        shape = (len(self._stored_at), self.tokens, self.width)
        self._states = torch.empty(shape, dtype=torch.float32, device=self.device)
        self._views = {loop: self._states[row] for loop, row in self._row_of.items()}
        self._numbers = torch.full((4, self.loops, self.tokens), torch.nan, dtype=self.exact, device=self.device)
        self._entry: Tensor | None = None
        self._before: Tensor | None = None
        self._step: Tensor | None = None
        self._step_norm: Tensor | None = None
        self.drift_in: Tensor | None = None
        self.last = 0

    def start(self, entry: Float[Tensor, "tokens width"], state: Float[Tensor, "tokens width"]) -> None:
        """Take the entry and the initial state."""
        self._entry = entry.detach().to(torch.float32, copy=True)
        if 0 in self._views:
            self._views[0].copy_(state)
        self._before = state.detach().to(torch.float32).to(self.exact, copy=True)

    def add(self, loop: int, state: Float[Tensor, "tokens width"], *, before: "BlockBuffer | None") -> None:
        """Take the iterate after ``loop`` loops; ``before`` is the previous block's buffer, for the drift."""
        if loop > self.loops:
            return  # counted by the hook; the runner refuses the mismatch
        if loop in self._views:
            self._views[loop].copy_(state)
        now = state.detach().to(torch.float32).to(self.exact, copy=True)
        if loop == 1 and before is not None and before._before is not None:
            self.drift_in = (now - before._before).norm(dim=-1)
        self._measure(loop, now)
        self.last = loop

    def _measure(self, loop: int, now: Float[Tensor, "tokens width"]) -> None:
        assert self._before is not None, "start() comes first"
        row = loop - 1
        step = now - self._before
        norm: Tensor = step.norm(dim=-1)  # pyright: ignore[reportUnknownVariableType]
        self._numbers[0, row] = now.norm(dim=-1)
        self._numbers[1, row] = norm
        if self._step is not None and self._step_norm is not None:
            products = torch.einsum("tc,tc->t", step, self._step)
            self._numbers[2, row] = (products / (norm * self._step_norm)).clamp(-1.0, 1.0)
            self._numbers[3, row] = (step - self._step).norm(dim=-1)
        self._before, self._step, self._step_norm = now, step, norm

    @property
    def working(self) -> Float[Tensor, "stored tokens width"]:
        """All iterates, initial state first; only with ``keep_working``."""
        return self._states

    def trace(self, readouts: dict[ReadoutKey, np.ndarray]) -> BlockTrace:
        """The finished record. Values that are not finite become NaN; ``nonfinite_from`` says since which loop."""
        assert self._entry is not None, "start() comes first"
        numbers = self._numbers.double().cpu().numpy()
        bad = ~np.isfinite(numbers[0])
        nonfinite_from = np.where(bad.any(axis=0), bad.argmax(axis=0) + 1, 0).astype(np.int64)
        numbers[~np.isfinite(numbers)] = np.nan
        rows = [self._row_of[loop] for loop in self.keep]
        stored = self._states if len(rows) == len(self._states) else self._states[rows]
        drift = np.full(self.tokens, np.nan) if self.drift_in is None else self.drift_in.double().cpu().numpy()
        kept = self.kept if self.keep else slice(0, 0)
        return BlockTrace(
            name=self.name,
            layers=self.layers,
            loops=self.loops,
            loops_run=np.full(self.tokens, self.last, dtype=np.int64),
            nonfinite_from=nonfinite_from,
            state_norm=numbers[0],
            step_norm=numbers[1],
            step_cosine=numbers[2],
            acceleration=numbers[3],
            drift_in=np.where(np.isfinite(drift), drift, np.nan),
            loop_index=np.array(self.keep, dtype=np.int64),
            positions=np.arange(self.tokens, dtype=np.int64)[kept],
            states=np.ascontiguousarray(stored[:, kept].cpu().numpy()),
            entry=np.ascontiguousarray(self._entry[kept].cpu().numpy()),
            readouts=readouts,
        )
