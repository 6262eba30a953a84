"""How panels stand on the screen: in rows, with pixels for each panel, for what lies between rows, and for the legend."""

import math

from analysis.chart import Axis, Chart, Heatmap, Panel, Points, Rule
from analysis.draw import layout
from analysis.draw.plotly_axes import Area

ACROSS = 3
"""Panels side by side before a new row begins."""

TOP = 38
"""Pixels above the panels: one line of the legend."""

_BELOW = 52
"""Pixels below a panel for the labels and the title of its axis."""
_FREE = 14
"""Pixels between two rows beside that."""
_TITLE = 20
_TITLE_CHARACTERS = 105
"""Characters of panel titles that fit side by side on a page of usual width."""

_CURVES, _CURVES_IN_ROWS = 300, 240
_SPACE, _DISCS = 520, 460
"""Pixels of a panel with its title: curves alone in a row or above others, spaces and planes, points coloured by loop."""

_ENTRY, _LETTER, _LEGEND = 55, 7, 900
"""Pixels of a legend entry beside its words, of a letter, and of a line on a page of usual width."""
_LINE = 20
_NAME = 14
"""Letters of a name on an axis that are shown, where there are many."""

_CELL, _BESIDE_CELLS = 34, 150
"""Pixels of a cell that has room for a word, and of what stands beside the cells."""


def figure_height(chart: Chart) -> int:
    """Pixels of the whole figure."""
    return TOP + _legend_below_first(chart) + _inner_height(chart) + _below(chart)


def areas(chart: Chart) -> list[Area]:
    """Domains (left, right, bottom, top) of every panel, in rows of up to ACROSS panels, with room for their titles."""
    across = min(len(chart.panels), ACROSS)
    bars = across > 1 and any(isinstance(mark, Heatmap) for panel in chart.panels for mark in panel.marks)
    gap = 0.15 if bars else 0.075
    width = (1 - gap * (across - 1)) / across
    whole, tall, apart = _inner_height(chart), _panel_height(chart), _below(chart) + _FREE
    lines = max(title_lines(panel, across).count("\n") + 1 if panel.title else 0 for panel in chart.panels)
    found: list[Area] = []
    for i in range(len(chart.panels)):
        left, down = (i % across) * (width + gap), (i // across) * (tall + apart)
        bottom, top = 1 - (down + tall) / whole, 1 - (down + _TITLE * lines) / whole
        found.append((left, min(left + width, 1.0), max(bottom, 0.0), top))
    return found


def title_lines(panel: Panel, across: int) -> str:
    """The panel's title, broken into lines that fit above it on a page of usual width."""
    return layout.broken(panel.title, lambda line: len(line) <= _TITLE_CHARACTERS // across)


def least_width(chart: Chart) -> int:
    """Pixels below which words run into each other; a narrower page scrolls the figure sideways."""
    cells = [len(m.x) for panel in chart.panels for m in panel.marks if isinstance(m, Heatmap) and m.text is not None]
    across = min(len(chart.panels), ACROSS)
    return max([300 * across, *(_BESIDE_CELLS + _CELL * count for count in cells)])


def stands_in_legend(mark: Rule, panel: Panel) -> bool:
    """Words on an upright line would run across the curves, and on a map they could not be read."""
    return mark.across == "vertical" or any(isinstance(m, Heatmap) for m in panel.marks)


def _rows(chart: Chart) -> int:
    return math.ceil(len(chart.panels) / ACROSS)


def _inner_height(chart: Chart) -> int:
    """Pixels from the top of the first row to the axis of the last one."""
    return _rows(chart) * _panel_height(chart) + (_rows(chart) - 1) * (_below(chart) + _FREE)


def _panel_height(chart: Chart) -> int:
    """Pixels of every panel with its title: room for the text of cells, more for maps and spaces than for curves."""
    tallest = _CURVES if _rows(chart) == 1 else _CURVES_IN_ROWS
    for panel in chart.panels:
        if panel.z or panel.equal:
            tallest = max(tallest, _SPACE)
        for mark in panel.marks:
            if isinstance(mark, Heatmap):
                tallest = max(tallest, min(120 + len(mark.y) * (21 if mark.text is not None else 15), 760))
            elif isinstance(mark, Points) and mark.value is not None:
                tallest = max(tallest, _DISCS)
    return tallest


def _below(chart: Chart) -> int:
    """Pixels that axes take below a row. Names may stand upright there; below the last row the drawing library makes room."""
    return _BELOW + (max(_name_room(panel.x) for panel in chart.panels) if _rows(chart) > 1 else 0)


def _name_room(axis: Axis) -> int:
    """Pixels that the names on an axis take beyond one line: more lines, or their length where they do not fit side by side."""
    lines = [label.split("\n") for _, label in axis.ticks or ()]
    longest = [max(map(len, label)) for label in lines]
    if _LETTER * (sum(longest) + len(longest)) > _LEGEND // ACROSS:
        return _LETTER * min(max(longest), _NAME)
    return _LINE * (max(map(len, lines), default=1) - 1)


def _legend_below_first(chart: Chart) -> int:
    """Pixels of the legend's lines below its first one."""
    words = dict.fromkeys(
        mark.label if isinstance(mark, Rule) else getattr(mark, "legend", "")
        for panel in chart.panels
        for mark in panel.marks
        if not isinstance(mark, Rule) or stands_in_legend(mark, panel)
    )
    lines, room = 1, _LEGEND
    for word in filter(None, words):
        wide = _ENTRY + _LETTER * len(word)
        if wide > room and room < _LEGEND:
            lines, room = lines + 1, _LEGEND
        room -= wide
    return _LINE * (lines - 1)
