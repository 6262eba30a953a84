"""A map whose cells hold words, broken into rows of fewer columns, so that the words fit on paper."""

import math
from dataclasses import replace

import numpy as np

from analysis.chart import Band, Chart, Heatmap, Mark, Panel, Rule


def wrapped(chart: Chart, most: int) -> Chart:
    """The chart with every map of words cut into panels of at most ``most`` columns, all about equally wide."""
    return replace(chart, panels=tuple(part for panel in chart.panels for part in _parts(panel, most)))


def _parts(panel: Panel, most: int) -> tuple[Panel, ...]:
    words = [mark for mark in panel.marks if isinstance(mark, Heatmap) and mark.text is not None]
    columns = len(words[0].x) if words else 0
    if columns <= most:
        return (panel,)
    rows = math.ceil(columns / most)
    across = math.ceil(columns / rows)
    x = words[0].x
    return tuple(_part(panel, float(x[i]) - 0.5, float(x[i]) - 0.5 + across) for i in range(0, columns, across))


def _part(panel: Panel, low: float, high: float) -> Panel:
    """The panel between two x; the last part keeps the width of the others, so that all columns are equally wide."""
    ticks = panel.x.ticks
    if ticks is not None:
        ticks = tuple((at, label) for at, label in ticks if low <= at < high)
    marks = tuple(cut for mark in panel.marks if (cut := _cut(mark, low, high)) is not None)
    return replace(panel, x=replace(panel.x, ticks=ticks, limits=(low, high)), marks=marks)


def _cut(mark: Mark, low: float, high: float) -> Mark | None:
    """The mark's rows with low <= x < high; None where nothing is left."""
    if isinstance(mark, Rule):
        return mark if mark.across == "horizontal" or low <= mark.at < high else None
    inside = (mark.x >= low) & (mark.x < high)
    if not inside.any():
        return None
    if isinstance(mark, Heatmap):
        cells = np.tile(inside, len(mark.y))
        return replace(
            mark,
            x=mark.x[inside],
            values=mark.values[:, inside],
            columns={name: column[cells] for name, column in mark.columns.items()},
            text=None if mark.text is None else mark.text[:, inside],
        )
    names = ("y", "z", "dx", "dy", "value", "lower", "upper")
    rows = {name: getattr(mark, name)[inside] for name in names if getattr(mark, name, None) is not None}
    if isinstance(mark, Band):
        rows.pop("y", None)
    columns = {name: column[inside] for name, column in mark.columns.items()}
    return replace(mark, x=mark.x[inside], columns=columns, **rows)
