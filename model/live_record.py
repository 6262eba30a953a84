"""The record of a live run while it grows: one column per token, NaN in every loop that a token did not run."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int64

from model.capture.trajectory import BlockTrace, ReadoutKey
from model.request import Record
from model.running import Running


class BlockRecord:
    """Takes what a block did to some tokens; gives the trace of all that were taken."""

    def __init__(self, block: Running, *, capacity: int, record: Record) -> None:
        self._block, self._capacity, self._loops = block, capacity, block.loops
        self._keep = record.kept_loops(block.loops)
        start, stop = record.positions or (0, capacity)
        self._kept = slice(start, min(stop, capacity)) if record.states else slice(0, 0)
        self._numbers = np.full((4, block.loops, capacity), np.nan)
        self._drift_in = np.full(capacity, np.nan)
        self._loops_run = np.zeros(capacity, dtype=np.int64)
        self._nonfinite_from = np.zeros(capacity, dtype=np.int64)
        kept = max(0, self._kept.stop - self._kept.start)
        self._states = np.full((len(self._keep), kept, block.states.shape[-1]), np.nan, dtype=np.float32)
        self._entry: np.ndarray | None = None
        self._readouts: dict[ReadoutKey, np.ndarray] = {}

    def take(self, block: Running, first: int, readouts: Mapping[ReadoutKey, np.ndarray]) -> None:
        """Copy the columns of tokens from ``first`` on; ``readouts`` has a row for every loop that they ran."""
        here = slice(first, first + block.tokens)
        numbers = (block.state_norm, block.step_norm, block.step_cosine, block.acceleration)
        for own, column in zip(self._numbers, numbers, strict=True):
            own[:, here] = column
        self._drift_in[here], self._loops_run[here] = block.drift_in, block.loop
        self._nonfinite_from[here] = block.nonfinite_from
        if self._entry is None:
            self._entry = np.full((self._states.shape[1], block.entry.shape[-1]), np.nan, dtype=np.float32)
        chosen = np.arange(max(first, self._kept.start), min(first + block.tokens, self._kept.stop))
        if len(chosen):
            self._states[:, chosen - self._kept.start] = block.states[self._keep][:, chosen - first]
            self._entry[chosen - self._kept.start] = block.entry[chosen - first]
        for key, array in readouts.items():
            own = self._readouts.get(key)
            if own is None:
                blank = -1 if array.dtype.kind == "i" else np.nan
                own = np.full((self._loops, self._capacity, *array.shape[2:]), blank, dtype=array.dtype)
                self._readouts[key] = own
            own[: len(array), here] = array

    def seen_ids(self, tokens: int) -> Int64[np.ndarray, " ids"]:
        """Token ids that occur in a readout."""
        found = [np.unique(array[:, :tokens]) for (_, quantity), array in self._readouts.items() if quantity == "top10_id"]
        ids = np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
        return ids[ids >= 0]

    def trace(self, tokens: int) -> BlockTrace:
        """The record of the first ``tokens`` tokens."""
        assert self._entry is not None, "take() comes first"
        kept: Sequence[int] = range(self._kept.start, min(self._kept.stop, tokens))
        return BlockTrace(
            name=self._block.name,
            layers=self._block.layers,
            loops=self._loops,
            loops_run=self._loops_run[:tokens].copy(),
            nonfinite_from=self._nonfinite_from[:tokens].copy(),
            state_norm=self._numbers[0, :, :tokens].copy(),
            step_norm=self._numbers[1, :, :tokens].copy(),
            step_cosine=self._numbers[2, :, :tokens].copy(),
            acceleration=self._numbers[3, :, :tokens].copy(),
            drift_in=self._drift_in[:tokens].copy(),
            loop_index=np.array(self._keep, dtype=np.int64),
            positions=np.array(kept, dtype=np.int64),
            states=self._states[:, : len(kept)].copy(),
            entry=self._entry[: len(kept)].copy(),
            readouts={key: array[:, :tokens].copy() for key, array in self._readouts.items()},
        )
