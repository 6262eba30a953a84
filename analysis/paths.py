"""Many paths in one mark: the row order with gaps between them, their hand-offs, their long segments."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, Shaped

GAP = -1
"""Stands in a row order for the break between two paths."""


def gapped(*owners: Int64[np.ndarray, " rows"]) -> Int64[np.ndarray, " drawn"]:
    """Row numbers 0..n-1 with GAP wherever an owner (position, block) changes: each run of rows is one path."""
    count = len(owners[0])
    changes = np.zeros(max(count - 1, 0), dtype=bool)
    for owner in owners:
        changes |= owner[1:] != owner[:-1]
    return np.insert(np.arange(count, dtype=np.int64), np.flatnonzero(changes) + 1, GAP)


def coordinates(values: Float[np.ndarray, " rows"], order: Int64[np.ndarray, " drawn"]) -> Float64[np.ndarray, " drawn"]:
    """The values in that order, NaN at the gaps."""
    if not len(values):
        return np.empty(0)
    return np.where(order == GAP, np.nan, values[order].astype(np.float64))


def columns(keys: Mapping[str, np.ndarray], order: Int64[np.ndarray, " drawn"]) -> dict[str, Shaped[np.ndarray, " drawn"]]:
    """Key columns in that order; a gap carries the keys of the row before it."""
    before = np.where(order == GAP, np.roll(order, 1), order)
    return {name: column[before] for name, column in keys.items()}


def links(
    ends: Bool[np.ndarray, " rows"],
    starts: Bool[np.ndarray, " rows"],
    *,
    position: Int64[np.ndarray, " rows"],
    block: Int64[np.ndarray, " rows"],
) -> Int64[np.ndarray, "found 2"]:
    """Pairs of rows (end of a token's path in block g, start of its path in block g + 1)."""
    first = {(int(position[row]), int(block[row])): int(row) for row in np.flatnonzero(starts)}
    pairs = [
        (int(row), first[int(position[row]), int(block[row]) + 1])
        for row in np.flatnonzero(ends)
        if (int(position[row]), int(block[row]) + 1) in first
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def long_segments(
    points: Float64[np.ndarray, "rows dims"], order: Int64[np.ndarray, " drawn"], *, share: float, most: int
) -> Int64[np.ndarray, "found 2"]:
    """Row pairs of segments longer than ``share`` of the picture's diagonal, the longest ``most`` of them, in row order."""
    before, after = order[:-1], order[1:]
    inside = (before != GAP) & (after != GAP)
    pairs = np.stack([before[inside], after[inside]], axis=1)
    if not len(pairs):
        return pairs
    lengths = np.linalg.norm(points[pairs[:, 1]] - points[pairs[:, 0]], axis=1)
    diagonal = np.linalg.norm(np.ptp(points, axis=0))
    longest = np.argsort(-lengths, kind="stable")[:most]
    return pairs[np.sort(longest[lengths[longest] > share * diagonal])]
