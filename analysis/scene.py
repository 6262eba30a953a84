"""The rows of a trajectory picture: projected iterates with their keys, and the marks made of some of them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from analysis import paths
from analysis.chart import Axis, Columns, Line, Points, View
from analysis.exit_rule import MissingReadout, default_lens
from analysis.keys import Keys, token_keys, token_texts
from analysis.projection import Projected


@dataclass(frozen=True)
class Scene:
    """The iterates that are drawn, one per row.

    Attributes:
        blocks: looped blocks in the picture. axes: one per column of ``coordinates``.
        position, block, loop: keys of each row; loop 0 is the initial state.
    """

    view: View
    blocks: tuple[int, ...]
    axes: tuple[Axis, ...]
    coordinates: Float64[np.ndarray, "rows dims"]
    position: Int64[np.ndarray, " rows"]
    block: Int64[np.ndarray, " rows"]
    loop: Int64[np.ndarray, " rows"]

    @property
    def tokens(self) -> int:
        """Number of tokens that have a row."""
        return len(np.unique(self.position))

    def where(self, mask: Bool[np.ndarray, " rows"]) -> "Scene":
        """The same scene with those rows only."""
        return replace(
            self,
            coordinates=self.coordinates[mask],
            position=self.position[mask],
            block=self.block[mask],
            loop=self.loop[mask],
        )

    def of_tokens(self, *, selected: int | None) -> tuple["Scene", "Scene"]:
        """Rows to draw fully and rows to mute: all and none without a selected token."""
        own = np.full(len(self.position), True) if selected is None else self.position == selected
        return self.where(own), self.where(~own)

    def last(self) -> Bool[np.ndarray, " rows"]:
        """Whether a row is the last iterate that its token ran in that block."""
        ran = np.stack([trace.loops_run for trace in self.view.trajectory.blocks])
        return self.loop == ran[self.block, self.position]

    def keys(self) -> Keys:
        """Key columns of the rows."""
        return token_keys(self.view, position=self.position, block=self.block, loop=self.loop)

    def hover(self) -> Keys:
        """What else to say about an iterate: norms, NaN at k = 0, and its top-1 token where a lens recorded one."""
        columns = {"state_norm": np.full(len(self.loop), np.nan), "step_norm": np.full(len(self.loop), np.nan)}
        says = np.full(len(self.loop), "", dtype=object)
        for g in self.blocks:
            trace = self.view.trajectory.blocks[g]
            rows = np.flatnonzero((self.block == g) & (self.loop > 0))
            at = self.loop[rows] - 1, self.position[rows]
            columns["state_norm"][rows], columns["step_norm"][rows] = trace.state_norm[at], trace.step_norm[at]
            says[rows] = self._top1(g, at)
        return columns | {"says": says.astype(str)}

    def _top1(
        self, block: int, at: tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]
    ) -> Shaped[np.ndarray, " rows"]:
        try:
            lens = default_lens(self.view.trajectory, block, "top10_id")
        except MissingReadout:
            return np.full(len(at[0]), "", dtype=object)
        ids = self.view.trajectory.blocks[block].readouts[lens, "top10_id"][*at, 0]
        return token_texts(self.view.trajectory, ids)

    def line(self, order: Int64[np.ndarray, " drawn"], **looks: Any) -> Line:
        """A line through the rows in that order, with its gaps."""
        x, y, *rest = (paths.coordinates(column, order) for column in self.coordinates.T)
        return Line(x=x, y=y, z=rest[0] if rest else None, columns=paths.columns(self.keys(), order), **looks)

    def points(self, columns: Columns | None = None, **looks: Any) -> Points:
        """A point per row, with further columns beside the keys."""
        x, y, *rest = (np.ascontiguousarray(column) for column in self.coordinates.T)
        return Points(x=x, y=y, z=rest[0] if rest else None, columns={**self.keys(), **(columns or {})}, **looks)


def plane(projected: Projected, loop: Int64[np.ndarray, " rows"]) -> tuple[Float64[np.ndarray, "rows dims"], tuple[Axis, ...]]:
    """Coordinates and axes, two at least: states on one straight line are spread out along their loop number."""
    axes = tuple(Axis(title=title) for title in projected.axis_titles)
    if len(axes) > 1:
        return projected.coordinates, axes
    spread = np.column_stack([projected.coordinates[:, 0], loop.astype(np.float64)])
    return spread, (*axes, Axis(title="loop k", whole=True))
