"""Chart -> matplotlib figure for paper: exact width, Type 42 fonts, one white theme, no pyplot."""

import math
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from analysis.chart import Camera, Chart, Heatmap, Panel, Points
from analysis.draw import layout, theme
from analysis.draw.glyphs import printable, register_fonts, width_pt
from analysis.draw.matplotlib_axes import broken, limits, scales, space, ticks
from analysis.draw.matplotlib_marks import colour_map, draw, legend_handle
from analysis.draw.matplotlib_rows import BESIDE, PAGE, rows_of, title_words
from analysis.draw.wrap import wrapped

_WORD = 17.0
"""Points that a cell with a word in it needs; maps of words break into rows where there is less."""
_PAPER = theme.PAINTS["paper"]
_STYLE = threading.RLock()


@contextmanager
def paper_style(venue: theme.Venue) -> Generator[None]:
    """Matplotlib's settings for one figure, whatever the user's own are. They are global, so one thread at a time."""
    with _STYLE, mpl.rc_context():
        register_fonts()
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, _settings(venue)))
        yield


def _settings(venue: theme.Venue) -> dict[str, Any]:
    return {
        "font.family": list(theme.PAPER_FONTS),
        "font.size": venue.body_pt,
        "axes.labelsize": venue.body_pt,
        "axes.titlesize": venue.body_pt,
        "axes.titlelocation": "left",
        "axes.titlepad": 3.5,
        "axes.labelpad": 2.5,
        "axes.linewidth": 0.6,
        "axes.edgecolor": _PAPER.edge,
        "axes.grid": False,
        "axes.formatter.useoffset": False,
        "grid.color": _PAPER.grid,
        "grid.linewidth": 0.5,
        "xtick.labelsize": venue.tick_pt,
        "ytick.labelsize": venue.tick_pt,
        "xtick.major.size": 2.0,
        "ytick.major.size": 2.0,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.pad": 2.0,
        "ytick.major.pad": 2.0,
        "xtick.color": _PAPER.edge,
        "ytick.color": _PAPER.edge,
        "xtick.labelcolor": _PAPER.ink,
        "ytick.labelcolor": _PAPER.ink,
        "legend.fontsize": venue.body_pt,
        "legend.frameon": False,
        "legend.handlelength": 1.8,
        "legend.handletextpad": 0.5,
        "legend.columnspacing": 1.2,
        "legend.borderpad": 0.1,
        "legend.labelspacing": 0.3,
        "text.parse_math": False,
        "pdf.fonttype": 42,
        "svg.fonttype": "none",
        "svg.hashsalt": "loopscope",
        "figure.constrained_layout.h_pad": 0.03,
        "figure.constrained_layout.w_pad": 0.03,
    }


def figure(chart: Chart, venue: str | theme.Venue) -> Figure:
    """The chart as a figure of exactly the venue's width. The chart's title and caption are the paper's to set.

    Panels stand side by side where each keeps a readable width, else one below the other. Raises KeyError for a
    venue that theme.VENUES does not know.
    """
    place = theme.VENUES[venue] if isinstance(venue, str) else venue
    with paper_style(place):
        return _figure(chart, place)


def _figure(whole: Chart, venue: theme.Venue) -> Figure:
    chart = wrapped(whole, int((venue.width_in - 0.8) * 72 / _WORD))
    handles = _legend(chart)
    columns = _legend_columns([str(h.get_label()) for h in handles], venue)
    extra = 0.17 * math.ceil(len(handles) / columns) + 0.06 if handles else 0.0
    across, heights = rows_of(chart, venue, cut=len(chart.panels) > len(whole.panels), room=PAGE - extra)
    rows, width = len(heights), venue.width_in / across
    made = Figure(figsize=(venue.width_in, round(sum(heights) + extra, 2)), layout="constrained", facecolor=_PAPER.paper)
    grid = made.add_gridspec(rows, across, height_ratios=heights)
    last = layout.last_loop(chart)
    bars: list[_Bar] = []
    for i, panel in enumerate(chart.panels):
        ax = made.add_subplot(grid[i // across, i % across], projection="3d" if panel.z else None)
        if layout.repeats_y(chart, i, across):
            panel = replace(panel, y=replace(panel.y, title="", unit=""))
        bars += _panel(ax, panel, chart=chart, venue=venue, width=width, height=heights[i // across], last=last)
    for bar in _shared(bars, cut=len(chart.panels) > len(whole.panels)):
        _colour_bar(made, bar, right=(width if len(bar.axes) == 1 else venue.width_in) >= 4, last=last)
    if handles:
        made.legend(handles=handles, loc="outside upper left", ncols=columns)
    return made


def _legend(chart: Chart) -> list[Any]:
    found: dict[str, Any] = {}
    for panel in chart.panels:
        for mark in panel.marks:
            handle = legend_handle(mark)
            if handle is not None:
                found.setdefault(str(handle.get_label()), handle)
    return list(found.values())


def _legend_columns(labels: list[str], venue: theme.Venue) -> int:
    """As many columns as fit side by side; matplotlib fills them one after the other, the first ones longer."""
    handle = 3.6 * venue.body_pt
    widths = [width_pt(label, venue.body_pt) + handle for label in labels]
    for columns in range(len(labels), 1, -1):
        long, rest = divmod(len(labels), columns)
        ends = np.cumsum([long + (c < rest) for c in range(columns)])
        starts = [0, *ends[:-1]]
        if sum(max(widths[a:b]) for a, b in zip(starts, ends, strict=True)) <= venue.width_in * 72 - 6:
            return columns
    return 1


def _panel(
    ax: Any, panel: Panel, *, chart: Chart, venue: theme.Venue, width: float, height: float, last: float
) -> list["_Bar"]:
    """Draw one panel; returns the colour bars that it needs."""
    bars: list[_Bar] = []
    room = (width - (0.75 if width < 4 else 1.2)) * 72
    scales(ax, panel)
    for mark in panel.marks:
        cell = room / layout.columns_across(panel, mark) if isinstance(mark, Heatmap) else 0.0
        mappable = draw(ax, mark, panel, venue=venue, last_loop=last, cell_pt=cell)
        if mappable is not None and isinstance(mark, Heatmap):
            bars.append(_Bar(mappable, [ax], mark.value_title))
        elif isinstance(mark, Points) and mark.value is not None:
            loops = ScalarMappable(Normalize(0.0, 1.0), colour_map(theme.loop_palette("paper")))
            bars.append(_Bar(loops, [ax], mark.value_title or "loop", loops=True))
    _words(ax, panel, venue=venue, width=width, height=height)
    limits(ax, panel)
    ticks(ax, panel, venue=venue, room=room)
    if panel.z is not None:
        space(ax, panel, chart.camera or Camera())
        return bars
    if panel.equal:
        ax.set_aspect("equal", adjustable="datalim")
    if not any(isinstance(mark, Heatmap) for mark in panel.marks):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, zorder=0)
        ax.set_axisbelow(True)
    return bars


def _words(ax: Any, panel: Panel, *, venue: theme.Venue, width: float, height: float) -> None:
    """Titles of panel and axes, broken into lines where the panel is too narrow or too low for them."""
    across, up = (width - BESIDE) * 72, (height - 0.35) * 72
    ax.set_xlabel(broken(printable(layout.axis_words(panel.x)), across, venue.body_pt))
    ax.set_ylabel(broken(printable(layout.axis_words(panel.y)), up, venue.body_pt))
    if panel.z is not None:
        ax.set_zlabel(printable(layout.axis_words(panel.z)))
    if panel.title:
        ax.set_title(title_words(panel, width, venue))


@dataclass(frozen=True)
class _Bar:
    """A colour bar: what it explains, beside which axes, in which words; ``loops`` puts loops on it, log-spaced."""

    mappable: Any
    axes: list[Any]
    title: str
    loops: bool = False


def _shared(bars: list[_Bar], *, cut: bool) -> list[_Bar]:
    """One bar for all points coloured by loop, one for the parts of a map that was cut, and one per other map."""
    loops, maps = [bar for bar in bars if bar.loops], [bar for bar in bars if not bar.loops]
    found = [replace(loops[0], axes=list(dict.fromkeys(ax for bar in loops for ax in bar.axes)))] if loops else []
    return found + ([replace(maps[0], axes=[ax for bar in maps for ax in bar.axes])] if cut else maps)


def _colour_bar(made: Figure, bar: _Bar, *, right: bool, last: float) -> None:
    where, aspect = ("right", 24) if right else ("bottom", 34)
    drawn = made.colorbar(bar.mappable, ax=bar.axes, location=where, aspect=aspect, shrink=0.8, pad=0.02)
    if bar.loops:
        named = theme.loop_ticks(last)
        places = theme.loop_shade(np.array(named, dtype=np.float64), last)
        drawn.set_ticks([float(place) for place in places], labels=[str(tick) for tick in named])
    drawn.set_label(printable(bar.title))
    drawn.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    drawn.ax.tick_params(length=2.0)
