"""How panels stand on paper: how many side by side, and inches for each row."""

import numpy as np

from analysis.chart import Axis, Chart, Heatmap, Panel
from analysis.draw import layout, theme
from analysis.draw.glyphs import printable
from analysis.draw.matplotlib_axes import broken

_NARROWEST = 1.7
"""Inches below which a panel is unreadable; panels stack rather than get narrower."""
_LEAST = 1.6
"""Inches of a panel where the figure would else be taller than a page."""
PAGE = 9.0
"""Inches of text on a page of these venues, from top to bottom."""
_ACROSS = 3
BESIDE = 0.55
"""Inches that the labels of an upright axis take."""


def rows_of(chart: Chart, venue: theme.Venue, *, cut: bool, room: float) -> tuple[int, list[float]]:
    """How many panels stand side by side, and the inches of each row; narrower ones where the rows need more than ``room``."""
    count, widths = len(chart.panels), [venue.width_in] if cut else [_NARROWEST, _LEAST]
    across, heights = 1, list[float]()
    for narrowest in widths:
        across = max(1, min(count, _ACROSS, int(venue.width_in / narrowest)))
        width = venue.width_in / across
        each = [_height(panel, width) + _title_height(panel, width, venue) for panel in chart.panels]
        heights = [max(each[at : at + across]) for at in range(0, count, across)]
        if sum(heights) <= room:
            break
    return across, heights


def _title_height(panel: Panel, width: float, venue: theme.Venue) -> float:
    """Inches of a panel's title beyond its first line."""
    return 1.2 * venue.body_pt / 72 * title_words(panel, width, venue).count("\n")


def title_words(panel: Panel, width: float, venue: theme.Venue) -> str:
    """The panel's title, broken into lines that fit above a panel of this width."""
    return broken(printable(panel.title), (width - BESIDE) * 72, venue.body_pt)


def _height(panel: Panel, width: float) -> float:
    """Inches for a panel of this width, labels and colour bar included."""
    for mark in panel.marks:
        if isinstance(mark, Heatmap):
            row = 0.135 if mark.text is not None else 0.075
            return min(max(row * len(mark.y), 1.2), 5.5) + _label_room(panel.x, width) + (0.75 if width < 4 else 0.35)
    if panel.z is not None:
        return min(width * 0.85, 3.6) + 0.3
    if panel.equal:
        across, up = (np.ptp(layout.extent(panel, side) or (0.0, 1.0)) for side in ("x", "y"))
        shape = float(up / across) if across > 0 else 1.0
        tallest = 0.9 if width < 4 else 0.62
        return max(width * min(max(shape, 0.45), tallest), 1.5) + 0.6
    return min(max(width * 0.62, 1.55), 2.3)


def _label_room(axis: Axis, width: float) -> float:
    """Inches that labels below the axis take when they stand upright."""
    if axis.ticks is None:
        return 0.0
    longest = max((len(line) for _, label in axis.ticks for line in label.split("\n")), default=0)
    return 0.05 * min(longest, 12) if len(axis.ticks) * longest * 0.055 > width - 0.7 else 0.0
