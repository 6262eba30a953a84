"""What is known of the tokens inside a looped block while it runs, loop by loop: the facts that a live exit is decided on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from model.capture.trajectory import ReadoutKey


class Running:
    """One block and the tokens in it. The arrays are made once and filled anew for the next tokens: views of them stay good.

    Rows of ``loops`` arrays are loops 1..K; those that have not run are NaN, and so is what is undefined or not finite.

    Attributes:
        index, name, layers: which block. loops: K. loop: the loop that ran last.
        state_norm, step_norm, step_cosine, acceleration: ``loops tokens``, float64, as a trajectory has them.
        drift_in: jump at the hand-off into this block. states: x^(0)..x^(K) in float32. entry: what entered the block.
        nonfinite_from: first loop after which a token's state was not finite; 0 where it always was.
        readouts: what can be decoded of the iterates; ``read`` brings an array up to the present loop.
    """

    def __init__(
        self,
        index: int,
        name: str,
        layers: tuple[int, ...],
        *,
        loops: int,
        tokens: int,
        width: int,
        readouts: Mapping[ReadoutKey, np.ndarray] | None = None,
        read: Callable[[ReadoutKey], None] = lambda key: None,
    ) -> None:
        self.index, self.name, self.layers, self.loops, self.tokens = index, name, layers, loops, tokens
        self._numbers = np.full((4, loops, tokens), np.nan)
        self.state_norm, self.step_norm, self.step_cosine, self.acceleration = self._numbers
        self.drift_in = np.full(tokens, np.nan)
        self.states = np.full((loops + 1, tokens, width), np.nan, dtype=np.float32)
        self.nonfinite_from = np.zeros(tokens, dtype=np.int64)
        self.entry = np.zeros((tokens, width), dtype=np.float32)
        self.readouts, self.read = dict(readouts or {}), read
        self.loop = 0
        self._before = self._step = np.zeros((tokens, width))

    @property
    def last(self) -> Float[np.ndarray, "tokens width"]:
        """The iterate after the last loop that ran."""
        return self.states[self.loop]

    def start(self, entry: Float[np.ndarray, "tokens entry_width"], state: Float[np.ndarray, "tokens width"]) -> None:
        """Take the entry and the initial state of the next tokens."""
        self._numbers.fill(np.nan)
        self.states[1:].fill(np.nan)
        for array in self.readouts.values():
            array.fill(-1 if array.dtype.kind == "i" else np.nan)
        self.drift_in.fill(np.nan)
        self.nonfinite_from.fill(0)
        self.loop, self.entry = 0, entry
        self.states[0] = state
        self._before = self.states[0].astype(np.float64)

    def add(self, state: Float[np.ndarray, "tokens width"], *, handed: Float[np.ndarray, "tokens width"] | None) -> None:
        """Take the iterate after the next loop; ``handed`` is the last one of the block before, for the drift."""
        self.loop += 1
        row = self.loop - 1
        self.states[self.loop] = state
        now = self.states[self.loop].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            step = now - self._before
            self.state_norm[row], self.step_norm[row] = _lengths(now), _lengths(step)
            if row:
                cosine = np.einsum("tc,tc->t", step, self._step) / (self.step_norm[row] * self.step_norm[row - 1])
                self.step_cosine[row] = np.clip(cosine, -1.0, 1.0)
                self.acceleration[row] = _lengths(step - self._step)
            elif handed is not None:
                self.drift_in[:] = _lengths(now - handed.astype(np.float64))
        self._before, self._step = now, step
        if not np.isfinite(self.state_norm[row]).all():
            self._blank(row)

    def _blank(self, row: int) -> None:
        bad = ~np.isfinite(self.state_norm[row])
        self.nonfinite_from[bad & (self.nonfinite_from == 0)] = row + 1
        self._numbers[:, row][~np.isfinite(self._numbers[:, row])] = np.nan
        self.drift_in[~np.isfinite(self.drift_in)] = np.nan


def _lengths(vectors: Float64[np.ndarray, "tokens width"]) -> Float64[np.ndarray, " tokens"]:
    return np.sqrt(np.einsum("tc,tc->t", vectors, vectors))


@dataclass(frozen=True, eq=False)
class Moment:
    """A token that has just run a loop and may leave its block.

    Attributes:
        position: which token. loop: the loop that has just run.
        block: the facts, up to this loop. earlier: the blocks below, as the token left them.
    """

    position: int
    loop: int
    block: Running
    earlier: tuple[Running, ...]


Leaves = Callable[[Moment], bool]
"""Whether the token leaves its block now; asked after every loop but the last."""
