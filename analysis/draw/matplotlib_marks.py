"""Marks as matplotlib artists on one axes: the paper's half of what plotly_marks.py does for the screen."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.chart import Arrows, Band, Bars, Heatmap, Line, Mark, Panel, Points, Rule
from analysis.draw import layout, theme
from analysis.draw.glyphs import fitted, one_line, printable

RASTER_LIMIT = 5000
"""Rows or cells past which a mark becomes a bitmap inside the vector file."""

_MARKERS: dict[theme.Marker, str] = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "plus": "P",
    "cross": "X",
    "triangle": "^",
    "down": "v",
    "pentagon": "p",
    "star": "*",
    "hexagon": "h",
}
_DASHES: dict[theme.Dash, Any] = {
    "solid": "-",
    "dash": (0, (4, 2)),
    "dot": (0, (1.2, 1.6)),
    "dashdot": (0, (4, 1.6, 1.2, 1.6)),
}
_PAPER = theme.PAINTS["paper"]
_LINE = 0.7
"""Points on paper per pixel of line width on screen."""
_SIZE = 0.66
"""Points on paper per pixel of marker size on screen."""


def colour_map(colours: tuple[str, ...]) -> LinearSegmentedColormap:
    """Equally spaced colours as a matplotlib colour map; undefined cells are left blank."""
    return LinearSegmentedColormap.from_list("loopscope", list(colours), N=512, bad=(0.0, 0.0, 0.0, 0.0))


def draw(ax: Any, mark: Mark, panel: Panel, *, venue: theme.Venue, last_loop: float, cell_pt: float) -> Any:
    """Draw one mark; returns the mappable of a heatmap, for its colour bar, else None.

    ``ax`` is an Axes, or an Axes3D when the panel has a z axis. ``cell_pt`` is the room of one heatmap column.
    """
    if isinstance(mark, Line):
        _line(ax, mark, deep=panel.z is not None)
    elif isinstance(mark, Band):
        _band(ax, mark, log=panel.y.scale == "log")
    elif isinstance(mark, Points):
        _points(ax, mark, last_loop=last_loop, deep=panel.z is not None)
    elif isinstance(mark, Arrows):
        _arrows(ax, mark)
    elif isinstance(mark, Heatmap):
        return _heatmap(ax, mark, venue=venue, cell_pt=cell_pt)
    elif isinstance(mark, Bars):
        _bars(ax, mark, venue)
    else:
        _rule(ax, mark)
    return None


def legend_handle(mark: Mark) -> Any:
    """A small stand-in for the legend; None for marks that have no entry there.

    Rules have theirs in the legend too: words beside the line would cover data in a narrow panel.
    """
    if isinstance(mark, Rule):
        return Line2D([], [], label=printable(mark.label), **_rule_looks(mark)) if mark.label else None
    legend: str = getattr(mark, "legend", "")
    if not legend:
        return None
    label = printable(legend)
    if isinstance(mark, Bars):
        return Patch(facecolor=theme.look(mark.role, "paper").colour, label=label)
    if isinstance(mark, Line):
        line = Line2D([], [], label=label, **_line_looks(mark))
        line.set_alpha(1.0)
        return line
    if isinstance(mark, Points):
        face, edge, width, marker, size = _point_looks(mark)
        if mark.value is not None and mark.glyph == "loop":
            face = theme.blend(theme.loop_palette("paper"), 0.5)
        looks: dict[str, Any] = {"marker": marker, "markersize": size, "markerfacecolor": face, "markeredgecolor": edge}
        return Line2D([], [], linestyle="none", label=label, markeredgewidth=width, **looks)
    return None


def _line_looks(mark: Line) -> dict[str, Any]:
    look = theme.look(mark.role, "paper")
    looks: dict[str, Any] = {
        "color": look.colour,
        "linewidth": mark.width * _LINE,
        "linestyle": _DASHES[mark.dash if mark.dash != "solid" else look.dash],
        "alpha": mark.opacity,
    }
    if mark.markers:
        looks |= {"marker": _MARKERS[look.marker], "markersize": 3.2, "markeredgewidth": 0.0}
    return looks


def _line(ax: Any, mark: Line, *, deep: bool) -> None:
    coordinates = [mark.x, mark.y]
    if deep:
        coordinates.append(mark.z if mark.z is not None else np.zeros(len(mark.x)))
    looks = _line_looks(mark) | {"zorder": 2.0, "rasterized": len(mark.x) > RASTER_LIMIT, "solid_capstyle": "round"}
    ax.plot(*coordinates, **looks)


def _point_looks(mark: Points) -> tuple[str, str, float, str, float]:
    """Face, edge, edge width, marker and diameter in points."""
    look = theme.look(mark.role, "paper")
    size = mark.size * _SIZE
    if mark.glyph in ("start", "hollow"):
        return "none" if mark.size >= theme.RING_FROM else _PAPER.paper, look.colour, 0.9, "o", size
    if mark.glyph == "end":
        return look.colour, _PAPER.paper, 0.4, "s", size
    if mark.glyph == "exit":
        size = theme.exit_size(mark.size) * _SIZE * (0.8 if look.marker == "diamond" else 0.85)
        return look.colour, _PAPER.paper, 0.5, _MARKERS[look.marker], size
    return look.colour, "none", 0.0, "o", size * 0.9


def _points(ax: Any, mark: Points, *, last_loop: float, deep: bool) -> None:
    face, edge, width, marker, size = _point_looks(mark)
    order = {"loop": 3.0, "hollow": 3.5, "start": 3.6, "end": 3.7, "exit": 4.0}[mark.glyph]
    looks: dict[str, Any] = {"s": size**2, "marker": marker, "edgecolors": edge, "linewidths": width, "zorder": order}
    if mark.value is not None and mark.glyph not in ("start", "hollow"):
        shade = theme.loop_shade(mark.value, last_loop)
        looks |= {"c": shade, "cmap": colour_map(theme.loop_palette("paper")), "norm": Normalize(0.0, 1.0)}
    else:
        looks["c"] = [face] * len(mark.x)
    looks["rasterized"] = len(mark.x) > RASTER_LIMIT
    if deep:
        depth = mark.z if mark.z is not None else np.zeros(len(mark.x))
        ax.scatter(mark.x, mark.y, depth, depthshade=False, **looks)
    else:
        ax.scatter(mark.x, mark.y, **looks)


def _band(ax: Axes, mark: Band, *, log: bool) -> None:
    lower, upper = layout.above_zero(mark) if log else (mark.lower, mark.upper)
    where = np.isfinite(lower) & np.isfinite(upper)
    colour = theme.look(mark.role, "paper").colour
    ax.fill_between(mark.x, lower, upper, where=where.tolist(), color=colour, alpha=0.2, linewidth=0.0, zorder=1.5)


def _arrows(ax: Axes, mark: Arrows) -> None:
    """Heads of one size whatever the length of the step; a step of length zero has no direction and no head."""
    length = np.hypot(mark.dx.astype(np.float64), mark.dy.astype(np.float64))
    kept = np.isfinite(length) & (length > 0)
    if not kept.any():
        return
    x, y, dx, dy = (part[kept].astype(np.float64) for part in (mark.x, mark.y, mark.dx, mark.dy))
    ax.quiver(
        x + dx / 2,
        y + dy / 2,
        dx / length[kept],
        dy / length[kept],
        angles="xy",
        pivot="mid",
        units="inches",
        scale_units="inches",
        scale=1 / 0.046,
        width=0.01,
        headlength=4.6,
        headaxislength=4.2,
        headwidth=4.4,
        minlength=0.0,
        color=theme.look(mark.role, "paper").colour,
        zorder=2.5,
        rasterized=bool(kept.sum() > RASTER_LIMIT),
    )


def _heatmap(ax: Axes, mark: Heatmap, *, venue: theme.Venue, cell_pt: float) -> Any:
    low, high = layout.colour_limits(mark)
    shown = np.ma.masked_invalid(mark.values.astype(np.float64))
    colours = colour_map(theme.palette(mark.palette, "paper"))
    mesh = ax.pcolormesh(
        layout.cell_edges(mark.x),
        layout.cell_edges(mark.y),
        shown,
        cmap=colours,
        norm=Normalize(low, high),
        linewidth=0.0,
        zorder=1.0,
        rasterized=mark.values.size > RASTER_LIMIT,
    )
    if mark.text is not None:
        _cell_text(ax, mark, shades=colours(Normalize(low, high)(shown)), room=cell_pt - 1.5, size=venue.tick_pt)
    return mesh


def _cell_text(ax: Axes, mark: Heatmap, *, shades: Any, room: float, size: float) -> None:
    assert mark.text is not None
    for r, c in np.argwhere(np.isfinite(mark.values)):
        red, green, blue = (round(255 * float(part)) for part in shades[r, c, :3])
        bright = theme.brightness(f"#{red:02X}{green:02X}{blue:02X}")
        word = fitted(one_line(str(mark.text[r, c])), room, size)
        colour = "black" if bright > 0.18 else "white"
        ax.text(float(mark.x[c]), float(mark.y[r]), word, ha="center", va="center", fontsize=size, color=colour, clip_on=True)


def _bars(ax: Axes, mark: Bars, venue: theme.Venue) -> None:
    colour = theme.look(mark.role, "paper").colour
    ax.bar(mark.x, mark.y, width=0.6, color=colour, alpha=0.85, linewidth=0.0, zorder=2.0)
    if mark.lower is not None and mark.upper is not None:
        spread = np.stack([np.maximum(mark.y - mark.lower, 0), np.maximum(mark.upper - mark.y, 0)])
        ax.errorbar(mark.x, mark.y, yerr=spread, fmt="none", ecolor=_PAPER.ink, elinewidth=0.8, capsize=2.5, zorder=3.0)
    tops = mark.y if mark.upper is None else np.fmax(mark.y, mark.upper)
    for x, top, word in zip(mark.x, tops, mark.text, strict=False):
        if np.isfinite(top):
            place: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "va": "bottom"}
            ax.annotate(printable(word), (float(x), float(top)), fontsize=venue.tick_pt, **place)


def _rule(ax: Axes, mark: Rule) -> None:
    (ax.axhline if mark.across == "horizontal" else ax.axvline)(mark.at, **_rule_looks(mark), zorder=1.8)


def _rule_looks(mark: Rule) -> dict[str, Any]:
    colour = _PAPER.soft if mark.role.kind == "ink" else theme.look(mark.role, "paper").colour
    return {"color": colour, "linewidth": 0.9, "linestyle": _DASHES[mark.dash]}
