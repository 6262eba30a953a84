"""What a statistic is, and how its values are summarised over tokens and prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64

from analysis.registry import collect
from model.capture.trajectory import Run, Trajectory


@runtime_checkable
class Statistic(Protocol):
    """A number per token, from one trajectory. Implementations are frozen dataclasses, one per file.

    Attributes:
        name: word in CSV, URL and command line. title, unit: words on an axis; unit "" for a pure number.
        level: ``loop`` (one value per loop and token) or ``handoff`` (one per token and block).
        scale: the axis that suits it.
        first_loop: first loop at which it is defined (``loop`` statistics).
        holds_first_step: last loop whose value contains the step away from the initial state; 0 if none does.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]
    level: ClassVar[Literal["loop", "handoff"]]
    scale: ClassVar[Literal["linear", "log"]]
    first_loop: ClassVar[int]
    holds_first_step: ClassVar[int]

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "*loops tokens"]:
        """``loops tokens`` (row r is loop r + 1) or ``tokens``; NaN where undefined."""
        ...


@dataclass(frozen=True)
class Summary:
    """Median and inter-quartile range over tokens; NaN where no token has a value.

    ``count`` is the number of tokens behind each median. Arrays have one entry per loop (one in all for
    hand-off statistics).
    """

    median: Float64[np.ndarray, " loops"]
    lower: Float64[np.ndarray, " loops"]
    upper: Float64[np.ndarray, " loops"]
    count: Int64[np.ndarray, " loops"]


def statistics() -> dict[str, Statistic]:
    """Every statistic by name."""
    return {name: kind() for name, kind in collect("analysis.statistics").items()}


def summarise(values: Float64[np.ndarray, "loops tokens"]) -> Summary:
    """Median, first and third quartile over the token axis, NaN left out."""
    count = np.sum(~np.isnan(values), axis=1).astype(np.int64)
    quartiles = np.full((3, len(values)), np.nan)
    # The version that knows NaN walks row by row in Python, so it sees only the rows that need it.
    complete, partial = count == values.shape[1], (count > 0) & (count < values.shape[1])
    if complete.any():
        quartiles[:, complete] = np.percentile(values[complete], [25, 50, 75], axis=1)
    if partial.any():
        quartiles[:, partial] = np.nanpercentile(values[partial], [25, 50, 75], axis=1)
    return Summary(median=quartiles[1], lower=quartiles[0], upper=quartiles[2], count=count)


def pooled(statistic: Statistic, run: Run, block: int) -> Summary:
    """Summary over all tokens of all prompts; one prompt with more loops than another counts where it has values."""
    return summarise(stacked(statistic, run.trajectories, block))


def per_prompt(statistic: Statistic, run: Run, block: int) -> tuple[Summary, ...]:
    """One summary per prompt, over its tokens."""
    return tuple(summarise(stacked(statistic, (trajectory,), block)) for trajectory in run.trajectories)


def stacked(statistic: Statistic, trajectories: Sequence[Trajectory], block: int) -> Float64[np.ndarray, "loops tokens"]:
    """Values of all tokens of the trajectories side by side; hand-off statistics have one row."""
    parts = [np.atleast_2d(statistic.values(trajectory, block)) for trajectory in trajectories]
    rows = max(part.shape[0] for part in parts)
    padded = [np.pad(part, ((0, rows - part.shape[0]), (0, 0)), constant_values=np.nan) for part in parts]
    return np.concatenate(padded, axis=1)
