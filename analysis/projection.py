"""What a projection is, and how iterates become the points that it is fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from analysis.registry import collect
from model.capture.trajectory import Trajectory

Scope = Literal["token", "all"]


class ProjectionError(ValueError):
    """Points that cannot be projected; the message is a sentence to show instead of a chart."""


@dataclass(frozen=True)
class Points:
    """Iterates as rows, with the keys that say whose they are.

    Attributes:
        vectors: the iterates.
        position, block, loop: keys of each row; loop 0 is the initial state.
        fit: rows the projection is fitted on (loops k >= 1); the others are only projected.
        left_out: what was left out and why, in words for the caption ("1 token left out (#0)").
    """

    vectors: Float32[np.ndarray, "rows width"]
    position: Int64[np.ndarray, " rows"]
    block: Int64[np.ndarray, " rows"]
    loop: Int64[np.ndarray, " rows"]
    fit: Bool[np.ndarray, " rows"]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Projected:
    """Coordinates of the rows of Points.

    Attributes:
        coordinates: one row per row of Points; fewer columns than asked for where the data has no more.
        axis_titles: one per column ("PC1 (61 % variance)", "UMAP 1 (no unit)").
        equal: whether one length unit holds on all axes.
        caption: method, parameters actually used, and what limits the result.
        warnings: sentences for the page.
    """

    coordinates: Float64[np.ndarray, "rows dims"]
    axis_titles: tuple[str, ...]
    equal: bool
    caption: str
    warnings: tuple[str, ...] = ()


@runtime_checkable
class Projection(Protocol):
    """A map from iterates to the plane or to space; a frozen dataclass, one per file."""

    name: ClassVar[str]
    title: ClassVar[str]

    def project(self, points: Points, *, dims: Literal[2, 3]) -> Projected:
        """Fit on ``points.fit``, project all rows; ``rows dims``. Raises ProjectionError with a sentence."""
        ...


if TYPE_CHECKING:
    ProjectionClass = type[Projection]
else:
    ProjectionClass = type  # a protocol with fields cannot be asked about subclasses, so run-time checks go no deeper


def projections() -> dict[str, ProjectionClass]:
    """Every projection class by name."""
    return collect("analysis.projections")


def gather(
    trajectory: Trajectory,
    blocks: Sequence[int],
    *,
    positions: Sequence[int] | None = None,
    leave_out: Sequence[int] = (),
    norm_limit: float | None = None,
) -> Points:
    """Stored iterates of the chosen blocks and token positions (None: all kept ones) as rows.

    Rows that are not finite are left out and reported, and so are the positions in ``leave_out`` and tokens
    whose largest state norm exceeds ``norm_limit`` times the median one. Raises ProjectionError when the run
    stored no states, or none are left.
    """
    left: list[str] = []
    dropped = set(leave_out)
    if norm_limit is not None:
        dropped |= _far_tokens(trajectory, blocks, norm_limit)
    rows: list[tuple[np.ndarray, ...]] = []
    for g in blocks:
        trace = trajectory.blocks[g]
        if not len(trace.loop_index):
            raise ProjectionError(
                "This run recorded statistics only, no states; run again with states stored to see trajectories."
            )
        wanted = [i for i, p in enumerate(trace.positions) if (positions is None or p in positions) and p not in dropped]
        for i in wanted:
            ran = trace.loop_index <= trace.loops_run[trace.positions[i]]  # a live run leaves the rest undone
            count = int(ran.sum())
            rows.append((trace.states[ran, i], np.full(count, trace.positions[i]), np.full(count, g), trace.loop_index[ran]))
    if dropped:
        listed = ", ".join(f"#{p}" for p in sorted(dropped))
        left.append(f"{len(dropped)} token{'s' if len(dropped) > 1 else ''} left out ({listed})")
    if not rows:
        raise ProjectionError("No token is left to show; choose other tokens or leave fewer out.")
    vectors, position, block, loop = (np.concatenate(part) for part in zip(*rows, strict=True))
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        left.append(f"{int((~finite).sum())} non-finite states left out")
    if not finite.any():
        raise ProjectionError("Every chosen state is non-finite; there is nothing to show.")
    return Points(
        vectors=vectors[finite],
        position=position[finite].astype(np.int64),
        block=block[finite].astype(np.int64),
        loop=loop[finite].astype(np.int64),
        fit=loop[finite] >= 1,
        left_out=tuple(left),
    )


def _far_tokens(trajectory: Trajectory, blocks: Sequence[int], limit: float) -> set[int]:
    far: set[int] = set()
    for g in blocks:
        largest = np.nanmax(np.nan_to_num(trajectory.blocks[g].state_norm), axis=0)
        far |= {int(p) for p in np.flatnonzero(largest > limit * np.median(largest))}
    return far
