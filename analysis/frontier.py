"""The best quality for a budget of loops: the lower envelope of a rule's thresholds, and the oracle that bounds every rule."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

_AT_ONCE = 2_000_000  # resamples x segments held at once


@dataclass(frozen=True)
class Oracle:
    """The lowest mean cross-entropy for every budget of mean loops, each token's number of loops chosen with hindsight.

    It starts with every token at one loop. Each segment moves one token on to the next corner of its own lower convex
    envelope; taken in order of nats saved per loop, they give the lowest mean that any choice of loops per token can have at
    that budget (budgets between two segments: by chance between them). So no rule is below it.

    Attributes:
        token: whose segment it is. loops, change: its length, and what it changes in nats (below 0). All in that order.
        start: cross-entropy of each token after one loop.
    """

    token: Int64[np.ndarray, " segments"]
    loops: Int64[np.ndarray, " segments"]
    change: Float64[np.ndarray, " segments"]
    start: Float64[np.ndarray, " tokens"]
    depth: int

    def curve(self) -> tuple[Float64[np.ndarray, " corners"], Float64[np.ndarray, " corners"]]:
        """Mean loops and cross-entropy of its corners, from one loop to K."""
        tokens = len(self.start)
        loops = 1 + np.concatenate([[0.0], np.cumsum(self.loops) / tokens])
        loss = self.start.mean() + np.concatenate([[0.0], np.cumsum(self.change) / tokens])
        return np.append(loops, float(self.depth)), np.append(loss, loss[-1])

    def area(
        self, prompt: Int64[np.ndarray, " tokens"], weights: Float64[np.ndarray, "resamples prompts"]
    ) -> Float64[np.ndarray, " resamples"]:
        """Nats times loops under the curve from one loop to K, each prompt's tokens counted as often as its weight says."""
        step = max(1, _AT_ONCE // max(1, len(self.token)))
        parts = [self._area(prompt, weights[at : at + step]) for at in range(0, len(weights), step)]
        return np.concatenate(parts)

    def _area(self, prompt: np.ndarray, weights: np.ndarray) -> np.ndarray:
        each = weights[:, prompt]
        tokens = each.sum(axis=1, keepdims=True)
        share = each[:, self.token] / tokens
        loops, change = share * self.loops, share * self.change
        start = (each @ self.start)[:, None] / tokens
        after = start + np.cumsum(change, axis=1)
        under = (loops * (after - change / 2)).sum(axis=1)
        left = self.depth - 1 - loops.sum(axis=1)
        last = after[:, -1] if after.shape[1] else start[:, 0]
        return under + left * last


def oracle(loss: Float64[np.ndarray, "loops tokens"]) -> Oracle:
    """The oracle of a text from the cross-entropy of every token after every loop; all must be finite."""
    depth, tokens = loss.shape
    x = np.broadcast_to(np.arange(1.0, depth + 1), (tokens, depth))
    rows: list[np.ndarray] = []
    loops: list[np.ndarray] = []
    change: list[np.ndarray] = []
    for row, here, there in _corners(x, loss.T):
        rows.append(row)
        loops.append(there - here)
        change.append(loss[there, row] - loss[here, row])
    if not rows:
        none = np.zeros(0, dtype=np.int64)
        return Oracle(token=none, loops=none, change=np.zeros(0), start=loss[0].copy(), depth=depth)
    token, length, saved = np.concatenate(rows), np.concatenate(loops), np.concatenate(change)
    order = np.argsort(saved / length, kind="stable")
    return Oracle(token=token[order], loops=length[order], change=saved[order], start=loss[0].copy(), depth=depth)


def envelope_area(x: Float64[np.ndarray, "rows points"], y: Float64[np.ndarray, "rows points"]) -> Float64[np.ndarray, " rows"]:
    """Area under each row's lower convex envelope, from its smallest x to its largest; past its lowest point it is flat.

    x must not fall along a row. The envelope is what a rule gives at best for a budget of *at most* x loops: between two
    thresholds it is reached by chance between them, and who may run more loops may also run fewer.
    """
    rows = len(x)
    place, height = _start(x, y)
    area = np.zeros(rows)
    reached, at = x[:, 0].copy(), height
    for row, here, there in _corners(x, y, start=place):
        run = x[row, there] - x[row, here]
        area[row] += run * (y[row, here] + y[row, there]) / 2
        reached[row], at[row] = x[row, there], y[row, there]
    return area + (x[:, -1] - reached) * at


def _start(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest of the points with the smallest x, and its height."""
    place = np.argmin(np.where(x == x[:, :1], y, np.inf), axis=1)
    return place, y[np.arange(len(x)), place]


def _corners(
    x: np.ndarray, y: np.ndarray, *, start: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Walk every row's falling lower convex envelope at once: rows that go on, the corner they leave, the one they reach."""
    row = np.arange(len(x))
    here = np.zeros(len(x), dtype=np.int64) if start is None else start
    while len(row):
        run = x[row] - x[row, here][:, None]
        rise = y[row] - y[row, here][:, None]
        slope = np.divide(rise, run, out=np.full(run.shape, np.inf), where=run > 0)
        there = slope.shape[1] - 1 - np.argmin(slope[:, ::-1], axis=1)  # the farthest of equal slopes
        falls = slope[np.arange(len(row)), there] < 0
        row, here, there = row[falls], here[falls], there[falls]
        if len(row):
            yield row, here, there
        here = there
