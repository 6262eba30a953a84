"""Marks as Plotly traces: plain dictionaries, numbers as typed arrays, one or none per mark."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from analysis.chart import Arrows, Band, Bars, Heatmap, Line, Mark, Panel, Points, Rule
from analysis.draw import layout, theme
from analysis.draw.plotly_values import escape, hover, keyed, typed

SVG_LIMIT = 5000
"""Rows up to which a trace is drawn as SVG; past it WebGL is faster."""

_CELL_CHARACTERS = 135
"""Characters that fit side by side into the cells of a map as wide as the page usually is."""

_SYMBOLS: dict[theme.Marker, str] = {
    "circle": "circle",
    "square": "square",
    "diamond": "diamond",
    "plus": "cross",
    "cross": "x",
    "triangle": "triangle-up",
    "down": "triangle-down",
    "pentagon": "pentagon",
    "star": "star",
    "hexagon": "hexagon",
}
_SYMBOLS_3D: dict[theme.Marker, str] = {
    **dict.fromkeys(get_args(theme.Marker), "circle"),
    "square": "square",
    "diamond": "diamond",
    "plus": "cross",
    "cross": "x",
    "triangle": "diamond-open",
    "down": "square-open",
    "star": "circle-open",
}


@dataclass(frozen=True)
class Place:
    """Where a trace goes: its panel, the axes or scene it belongs to, the surface, and the loop scale's end."""

    panel: Panel
    axes: dict[str, str]
    surface: Literal["light", "dark"]
    last_loop: float
    named: frozenset[str]
    """Legend entries that an earlier trace already shows."""


def traces(mark: Mark, place: Place) -> list[dict[str, Any]]:
    """Traces of one mark; none for a Rule, which is a shape of the layout."""
    if isinstance(mark, Line):
        return [_line(mark, place)]
    if isinstance(mark, Band):
        return [_band(mark, place)]
    if isinstance(mark, Points):
        return [_points(mark, place)]
    if isinstance(mark, Arrows):
        return [_arrows(mark, place)]
    if isinstance(mark, Heatmap):
        return [_heatmap(mark, place)]
    if isinstance(mark, Bars):
        return [_bars(mark, place)]
    assert isinstance(mark, Rule)
    return []


def _common(mark: Line | Points | Bars | Arrows, place: Place, *, plotted: bool = True) -> dict[str, Any]:
    """What all keyed traces share: axes, legend, customdata, hover."""
    rows, names = keyed(mark.columns, len(mark.x))
    y = place.panel.y
    flat = place.panel.z is None and not place.panel.equal
    coordinates = plotted and flat and y.ticks is None and not y.whole
    legend = getattr(mark, "legend", "")
    return {
        **place.axes,
        "customdata": rows,
        "meta": {"columns": names},
        "hovertemplate": hover(names, mark.columns, values=[(y.title, "%{y:.4~g}")] if coordinates and y.title else []),
        "name": escape(legend),
        "legendgroup": escape(legend),
        "showlegend": bool(legend) and legend not in place.named,
    }


def _kind(count: int, place: Place) -> str:
    if place.panel.z is not None:
        return "scatter3d"
    return "scattergl" if count > SVG_LIMIT else "scatter"


def _coordinates(mark: Line | Points, place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _kind(len(mark.x), place), "x": typed(mark.x), "y": typed(mark.y)}
    if place.panel.z is not None:
        found["z"] = typed(mark.z if mark.z is not None else np.zeros(len(mark.x)))
    return found


def _line(mark: Line, place: Place) -> dict[str, Any]:
    look = theme.look(mark.role, place.surface)
    deep = place.panel.z is not None
    trace = _common(mark, place) | _coordinates(mark, place)
    dash = mark.dash if mark.dash != "solid" else look.dash
    symbols = _SYMBOLS_3D if deep else _SYMBOLS
    trace |= {
        "mode": "lines+markers" if mark.markers else "lines",
        "opacity": mark.opacity,
        "connectgaps": False,
        "line": {"color": look.colour, "width": mark.width * (2.0 if deep else 1.15), "dash": dash},
    }
    if mark.markers:
        trace["marker"] = {"color": look.colour, "symbol": symbols[look.marker], "size": 4 if deep else 6}
    return trace


def _points(mark: Points, place: Place) -> dict[str, Any]:
    look = theme.look(mark.role, place.surface)
    paper = theme.PAINTS[place.surface].paper
    deep = place.panel.z is not None
    symbols = _SYMBOLS_3D if deep else _SYMBOLS
    exits = mark.glyph == "exit"
    size = (theme.exit_size(mark.size) if exits else mark.size) * ((0.45 if exits else 0.6) if deep else 1.0)
    marker: dict[str, Any] = {"size": size, "color": look.colour, "opacity": 1.0}
    if mark.glyph in ("start", "hollow"):
        # filled with the page's colour, so that the line beneath does not run through the ring
        ring = deep or mark.size >= theme.RING_FROM
        marker |= {"symbol": "circle-open"} if ring else {"color": paper}
        marker["line"] = {"color": look.colour, "width": 1.6}
    elif mark.glyph == "end":
        marker |= {"symbol": "square", "line": {"color": paper, "width": 0.8}}
    elif mark.glyph == "exit":
        marker |= {"symbol": symbols[look.marker], "line": {"color": paper, "width": 0.8}}
    if mark.value is not None and mark.glyph not in ("start", "hollow"):
        shade = theme.loop_shade(mark.value, place.last_loop)
        marker |= {"color": typed(shade), "coloraxis": "coloraxis"}
    return _common(mark, place) | _coordinates(mark, place) | {"mode": "markers", "marker": marker}


def _arrows(mark: Arrows, place: Place) -> dict[str, Any]:
    """Each arrowhead is drawn from an invisible point at the tail, so that it keeps its direction at every zoom.

    WebGL cannot look back; there the angle is that of the data, which is right where the aspect is equal.
    """
    look = theme.look(mark.role, place.surface)
    trace = _common(mark, place, plotted=False) | {"mode": "markers", "hoverinfo": "skip"}
    del trace["hovertemplate"]
    count = len(mark.x)
    if count * 3 > SVG_LIMIT:
        angle = np.degrees(np.arctan2(mark.dx.astype(np.float64), mark.dy.astype(np.float64)))
        marker = {"symbol": "triangle-up", "angle": typed(angle), "size": 6, "color": look.colour}
        middle = {"x": typed(mark.x + mark.dx / 2), "y": typed(mark.y + mark.dy / 2)}
        return trace | {"type": "scattergl", "marker": marker} | middle
    gap = np.full(count, np.nan)
    x = np.stack([mark.x, mark.x + mark.dx / 2, gap], axis=1).ravel()
    y = np.stack([mark.y, mark.y + mark.dy / 2, gap], axis=1).ravel()
    trace["customdata"] = [row for row in trace["customdata"] for _ in range(3)]
    sizes = np.tile(np.array([0, 10, 0], dtype=np.uint8), count)
    marker = {"symbol": "arrow", "angleref": "previous", "size": typed(sizes), "color": look.colour, "line": {"width": 0}}
    return trace | {"type": "scatter", "x": typed(x), "y": typed(y), "marker": marker}


def _band(mark: Band, place: Place) -> dict[str, Any]:
    lower, upper = layout.above_zero(mark) if place.panel.y.scale == "log" else (mark.lower, mark.upper)
    xs: list[np.ndarray] = [np.zeros(0)]
    ys: list[np.ndarray] = [np.zeros(0)]
    order: list[np.ndarray] = [np.zeros(0, dtype=np.int64)]
    for part in layout.runs(mark.x, lower, upper):
        place_of: np.ndarray = np.arange(part.start, part.stop, dtype=np.int64)
        xs += [mark.x[part], mark.x[part][::-1], np.array([np.nan])]
        ys += [lower[part], upper[part][::-1], np.array([np.nan])]
        order += [place_of, place_of[::-1], place_of[:1]]
    rows, names = keyed({name: column[np.concatenate(order)] for name, column in mark.columns.items()}, len(np.concatenate(xs)))
    return {
        **place.axes,
        "type": "scatter",
        "mode": "none",
        "fill": "toself",
        "fillcolor": theme.faded(theme.look(mark.role, place.surface).colour, 0.2),
        "x": typed(np.concatenate(xs)),
        "y": typed(np.concatenate(ys)),
        "customdata": rows,
        "meta": {"columns": names},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _heatmap(mark: Heatmap, place: Place) -> dict[str, Any]:
    rows, names = keyed(mark.columns, mark.values.size)
    across = mark.values.shape[1]
    low, high = layout.colour_limits(mark)
    colours = theme.palette(mark.palette, place.surface)
    trace: dict[str, Any] = {
        **place.axes,
        "type": "heatmap",
        "x": typed(mark.x),
        "y": typed(mark.y),
        "z": typed(np.where(np.isfinite(mark.values), mark.values, np.nan)),
        "zmin": low,
        "zmax": high,
        "colorscale": [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)],
        "hoverongaps": False,
        "customdata": [rows[i : i + across] for i in range(0, len(rows), across)],
        "meta": {"columns": names},
        "hovertemplate": hover(names, mark.columns, values=[(mark.value_title, "%{z:.4~g}")]),
        "showlegend": False,
        "colorbar": {"title": {"text": escape(mark.value_title), "side": "right"}},
    }
    if mark.text is not None:
        room = min(max(_CELL_CHARACTERS // max(across, 1), 2), 14)
        shown = [[escape(theme.shortened(str(word).replace("\n", "⏎"), room)) for word in row] for row in mark.text.tolist()]
        font: dict[str, Any] = {"size": 12}
        if mark.palette == "probability":
            font["color"] = theme.PAINTS[place.surface].ink
        trace |= {"text": shown, "texttemplate": "%{text}", "textfont": font, "xgap": 1, "ygap": 1}
    return trace


def _bars(mark: Bars, place: Place) -> dict[str, Any]:
    look = theme.look(mark.role, place.surface)
    trace = _common(mark, place) | {
        "type": "bar",
        "x": typed(mark.x),
        "y": typed(mark.y),
        "marker": {"color": theme.faded(look.colour, 0.85)},
        "width": 0.6,
    }
    if mark.lower is not None and mark.upper is not None:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": typed(np.maximum(mark.upper - mark.y, 0)),
            "arrayminus": typed(np.maximum(mark.y - mark.lower, 0)),
            "color": theme.PAINTS[place.surface].ink,
            "thickness": 1.4,
            "width": 6,
        }
    return trace
