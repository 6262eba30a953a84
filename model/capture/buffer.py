"""The iterates of one block while they arrive: preallocated, copied at once, measured loop by loop in float64."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .trajectory import BlockTrace, ReadoutKey

_CELLS = 32_768  # numbers handled at once, in float64 a quarter of a megabyte


@dataclass
class BlockBuffer:
    """Takes one block's initial state and iterates, in order; gives the finished trace.

    Statistics are computed from the float32 copies in float64 as each iterate arrives, so they do not depend
    on which states are stored. ``keep_working`` keeps all iterates until the readouts are made.
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
        stored_at = range(self.loops + 1) if self.keep_working else self.keep
        self._row_of = {loop: row for row, loop in enumerate(stored_at)}
        self._states = self._empty(len(self._row_of))
        self._views = {loop: self._states[row] for loop, row in self._row_of.items()}
        # Where states are thinned, the last three are kept aside: the statistics need no more.
        self._recent = self._empty(0 if len(self._views) > self.loops else 3)
        self._numbers = torch.full((4, self.loops, self.tokens), torch.nan, dtype=self.exact, device=self.device)
        self._entry: Tensor | None = None
        self._drift_in: Tensor | None = None
        self.last = 0

    def _empty(self, rows: int) -> Float[Tensor, "rows tokens width"]:
        return torch.empty((rows, self.tokens, self.width), dtype=torch.float32, device=self.device)

    def _at(self, loop: int) -> Float[Tensor, "tokens width"]:
        """The float32 copy of a state; of thinned runs only the last three are there."""
        return self._recent[loop % 3] if len(self._recent) else self._views[loop]

    def _keep(self, loop: int, state: Float[Tensor, "tokens width"]) -> None:
        self._at(loop).copy_(state)
        if len(self._recent) and loop in self._views:
            self._views[loop].copy_(state)

    def start(self, entry: Float[Tensor, "tokens entry_width"], state: Float[Tensor, "tokens width"]) -> None:
        """Take the entry and the initial state."""
        self._entry = entry.detach().to(torch.float32, copy=True)
        self._keep(0, state)

    def add(self, loop: int, state: Float[Tensor, "tokens width"], *, before: "BlockBuffer | None") -> None:
        """Take the iterate after ``loop`` loops; ``before`` is the previous block's buffer, for the drift."""
        if loop > self.loops:
            return  # counted by the hook; the runner refuses the mismatch
        self._keep(loop, state)
        if loop == 1 and before is not None:
            handed = before._at(before.last).to(self.exact)
            self._drift_in = (self._at(1).to(self.exact) - handed).norm(dim=-1)
        at_once = max(1, _CELLS // self.width)
        for first in range(0, self.tokens, at_once):
            self._measure(loop, slice(first, first + at_once))
        self.last = loop

    def _measure(self, loop: int, some: slice) -> None:
        """Statistics of a few tokens: short enough for the cache, and no second copy of the states is made."""
        row = loop - 1
        now, before = self._at(loop)[some].to(self.exact), self._at(loop - 1)[some].to(self.exact)
        step = now - before
        self._numbers[0, row, some] = now.norm(dim=-1)
        self._numbers[1, row, some] = step.norm(dim=-1)
        if loop > 1:
            earlier = before - self._at(loop - 2)[some].to(self.exact)
            lengths = self._numbers[1, row, some] * self._numbers[1, row - 1, some]
            self._numbers[2, row, some] = (torch.einsum("tc,tc->t", step, earlier) / lengths).clamp(-1.0, 1.0)
            self._numbers[3, row, some] = (step - earlier).norm(dim=-1)

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
        drift = np.full(self.tokens, np.nan) if self._drift_in is None else self._drift_in.double().cpu().numpy()
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
