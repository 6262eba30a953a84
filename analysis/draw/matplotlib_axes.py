"""Axes of panels on paper: scales, ranges, ticks that do not touch, and the camera of 3-D ones."""

from typing import Any

import numpy as np
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from analysis.chart import Axis, Bars, Camera, Heatmap, Panel
from analysis.draw import layout, theme
from analysis.draw.glyphs import printable, width_pt

_FEW = 4
"""Up to so many names on an axis keep their full length and break into lines; more are cut."""


def broken(text: str, room_pt: float, size: float) -> str:
    """Text with line breaks so that it fits into a width, both in points."""
    return layout.broken(text, lambda line: width_pt(line, size) <= room_pt)


def scales(ax: Any, panel: Panel) -> None:
    """Log scales, before anything is drawn."""
    if panel.x.scale == "log":
        ax.set_xscale("log")
    if panel.y.scale == "log":
        ax.set_yscale("log")


def ticks(ax: Any, panel: Panel, *, venue: theme.Venue, room: float) -> None:
    """Where ticks stand and what they say; ``room`` is the width of the axes in points."""
    sides: list[tuple[layout.Side, Axis | None]] = [("x", panel.x), ("y", panel.y), ("z", panel.z)]
    for side, axis in sides:
        if axis is None:
            continue
        target = getattr(ax, f"{side}axis")
        bounds = axis.limits or layout.extent(panel, side)
        rows = layout.uneven_rows(panel, side)
        if axis.ticks is not None:
            _named_ticks(target, axis, side=side, venue=venue, room=room)
        elif bounds is None:
            target.set_major_locator(NullLocator())
        elif axis.scale == "log":
            low, high = sorted(getattr(ax, f"get_{side}lim")())
            places = layout.log_ticks(low, high)
            target.set_major_locator(FixedLocator(list(places)))
            target.set_major_formatter(FixedFormatter(list(layout.log_words(places))))
            target.set_minor_locator(NullLocator())
        elif axis.whole:
            at = rows or layout.whole_ticks(*bounds, most=8 if side == "x" else 7)
            target.set_major_locator(FixedLocator([float(n) for n in at]))
            target.set_major_formatter(FixedFormatter([f"{n:g}" for n in at]))
        else:
            target.set_major_locator(MaxNLocator(nbins=_bins(panel, side), steps=[1, 2, 5, 10]))


def _named_ticks(target: Any, axis: Axis, *, side: layout.Side, venue: theme.Venue, room: float) -> None:
    """Labels for positions: flat where they fit, else upright, and only every n-th where even these would touch."""
    assert axis.ticks is not None
    words = [printable(label) for _, label in axis.ticks]
    if not words:
        return
    if side == "x" and len(words) <= _FEW:
        words = [broken(word, room / len(words), venue.tick_pt) for word in words]
    else:
        words = [theme.shortened(word, 12) for word in words]
    widest = max(width_pt(word, venue.tick_pt) for word in words) + 4
    upright = side == "x" and len(words) > _FEW and len(words) * widest > room
    every = layout.every_nth(len(words), int(room / (venue.tick_pt * 1.12))) if upright else 1
    target.set_major_locator(FixedLocator([float(at) for at, _ in axis.ticks[::every]]))
    target.set_major_formatter(FixedFormatter(words[::every]))
    if upright:
        target.set_tick_params(rotation=90)


def limits(ax: Any, panel: Panel) -> None:
    """Ranges: as fixed by the axis, else the cells of a map, else the data."""
    maps = [mark for mark in panel.marks if isinstance(mark, Heatmap)]
    sides: list[tuple[layout.Side, Axis | None]] = [("x", panel.x), ("y", panel.y), ("z", panel.z)]
    for side, axis in sides:
        if axis is None:
            continue
        bounds = axis.limits
        if bounds is None and maps:
            edges = np.concatenate([layout.cell_edges(getattr(mark, side)) for mark in maps])
            bounds = (float(edges.min()), float(edges.max()))
        if bounds is not None:
            getattr(ax, f"set_{side}lim")(*bounds)
        elif any(isinstance(mark, Bars) and mark.text for mark in panel.marks) and side == "y":
            ax.margins(y=0.14)
        if axis.reversed:
            getattr(ax, f"invert_{side}axis")()


def _bins(panel: Panel, side: layout.Side) -> int:
    """Ticks an axis has room for: in a scene with equal units a short axis takes few."""
    if panel.z is None:
        return 5
    if not panel.equal:
        return 4
    spans = {s: np.ptp(layout.extent(panel, s) or (0.0, 1.0)) for s in ("x", "y", "z")}
    return max(1, min(4, round(4 * float(spans[side] / (max(spans.values()) or 1.0)))))


def space(ax: Any, panel: Panel, camera: Camera) -> None:
    """Camera, proportions and a quiet frame for a three-dimensional axes."""
    assert panel.z is not None
    ax.computed_zorder = False  # else loop discs nearer to the eye hide exit marks
    ax.view_init(elev=camera.elevation, azim=camera.azimuth)
    spans = [float(np.ptp(getattr(ax, f"get_{side}lim")())) for side in "xyz"] if panel.equal else [1.0, 1.0, 1.0]
    longest = max(spans) or 1.0
    ax.set_box_aspect([max(span / longest, 0.05) for span in spans], zoom=0.95)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
        axis.labelpad = -4
        axis.set_tick_params(pad=-2)
    ax.grid(visible=True)
