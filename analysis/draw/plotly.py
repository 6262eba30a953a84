"""Chart -> Plotly figure for the screen, as plain dictionaries for Plotly.react; plotly.py itself is not needed."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from analysis.chart import Axis, Camera, Chart, Heatmap, Panel, Points, Role, Rule
from analysis.draw import layout, theme
from analysis.draw.plotly_marks import Place, escape, traces

ACROSS = 3
"""Panels side by side before a new row begins."""

_EYE_DISTANCE = 2.0
_TICK_LENGTH = 14
_MOST_TICKS = 90


def figure_json(chart: Chart, *, dark: bool) -> dict[str, Any]:
    """``{"data": [...], "layout": {...}}`` of plain JSON values (undefined is null or a gap in a typed array).

    Every trace has ``customdata`` rows that begin with prompt, position, block, loop (null where it has no such
    key), and ``meta.columns`` names all their entries. ``uirevision`` is the chart's name, so zoom and camera stay
    when the numbers change. The height is fixed, the width follows the page. The chart's title and caption are the
    page's to show.
    """
    surface: Literal["light", "dark"] = "dark" if dark else "light"
    areas = _areas(chart)
    figure = _frame(chart, surface)
    data: list[dict[str, Any]] = []
    named: frozenset[str] = frozenset()
    for number, (panel, area) in enumerate(zip(chart.panels, areas, strict=True), start=1):
        suffix = "" if number == 1 else str(number)
        figure |= (
            _scene(panel, area, suffix, chart=chart, surface=surface)
            if panel.z
            else _plane(panel, area, suffix, surface=surface)
        )
        figure["annotations"] += _panel_title(panel, area, surface)
        figure["shapes"] += [_shape(mark, suffix, surface) for mark in panel.marks if isinstance(mark, Rule)]
        axes = {"scene": f"scene{suffix}"} if panel.z else {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        for mark in panel.marks:
            place = Place(panel=panel, axes=axes, surface=surface, last_loop=layout.last_loop(chart), named=named)
            drawn = traces(mark, place)
            for trace in drawn:
                if trace["type"] == "heatmap":
                    trace["colorbar"] |= _bar(area, surface)
            data += drawn
            named |= {legend for legend in [getattr(mark, "legend", "")] if legend}
    figure["showlegend"] = bool(named)
    return {"data": data, "layout": figure}


def eye(camera: Camera) -> dict[str, float]:
    """Plotly's eye vector of a camera; it looks at the middle of the scene, z is up."""
    azimuth, elevation = math.radians(camera.azimuth), math.radians(camera.elevation)
    return {
        "x": _EYE_DISTANCE * math.cos(elevation) * math.cos(azimuth),
        "y": _EYE_DISTANCE * math.cos(elevation) * math.sin(azimuth),
        "z": _EYE_DISTANCE * math.sin(elevation),
    }


def camera_from_eye(eye: Mapping[str, float]) -> Camera:
    """The camera that an eye vector stands for; its distance (zoom) has no counterpart on paper and is dropped."""
    x, y, z = float(eye["x"]), float(eye["y"]), float(eye["z"])
    flat = math.hypot(x, y)
    azimuth = math.degrees(math.atan2(y, x)) % 360 if flat > 1e-9 else 0.0
    return Camera(azimuth=round(azimuth, 3), elevation=round(math.degrees(math.atan2(z, flat)), 3))


def _areas(chart: Chart) -> list[tuple[float, float, float, float]]:
    """Domains (left, right, bottom, top) of every panel, in rows of up to ACROSS panels."""
    count = len(chart.panels)
    across = min(count, ACROSS)
    rows = math.ceil(count / across)
    bars = across > 1 and any(isinstance(mark, Heatmap) for panel in chart.panels for mark in panel.marks)
    gap_x = 0.15 if bars else 0.075
    gap_y = 0.24 if rows == 2 else 0.16
    width = (1 - gap_x * (across - 1)) / across
    height = (1 - gap_y * (rows - 1)) / rows
    areas: list[tuple[float, float, float, float]] = []
    for i in range(count):
        left, top = (i % across) * (width + gap_x), 1 - (i // across) * (height + gap_y)
        areas.append((left, min(left + width, 1.0), max(top - height, 0.0), top))
    return areas


def _height(chart: Chart) -> int:
    """Pixels: room for the text of cells, more for maps and spaces than for curves."""
    rows = math.ceil(len(chart.panels) / ACROSS)
    tallest = 300
    for panel in chart.panels:
        if panel.z or panel.equal:
            tallest = max(tallest, 480)
        for mark in panel.marks:
            if isinstance(mark, Heatmap):
                tallest = max(tallest, min(120 + len(mark.y) * (21 if mark.text is not None else 15), 760))
            elif isinstance(mark, Points) and mark.value is not None:
                tallest = max(tallest, 460)
    return rows * tallest + 90


def _frame(chart: Chart, surface: Literal["light", "dark"]) -> dict[str, Any]:
    paint = theme.PAINTS[surface]
    return {
        "autosize": True,
        "height": _height(chart),
        "uirevision": chart.name,
        "font": {"family": theme.SCREEN_FONTS, "size": 13, "color": paint.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 16, "r": 16, "t": 34, "b": 16, "autoexpand": True},
        "hovermode": "closest",
        "hoverlabel": {
            "align": "left",
            "bgcolor": paint.paper,
            "bordercolor": paint.edge,
            "font": {"family": theme.SCREEN_FONTS, "size": 13, "color": paint.ink},
            "namelength": -1,
        },
        "legend": {
            "orientation": "h",
            "xref": "paper",
            "x": 0,
            "xanchor": "left",
            "yref": "container",
            "y": 1,
            "yanchor": "top",
            "itemsizing": "trace",
            "font": {"size": 13, "color": paint.ink},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": paint.soft, "activecolor": paint.ink, "orientation": "v"},
        "coloraxis": _loop_axis(chart, surface),
        "bargap": 0.3,
        "annotations": [],
        "shapes": [],
        "meta": {"chart": chart.name, "alt": chart.alt},
    }


def _loop_axis(chart: Chart, surface: Literal["light", "dark"]) -> dict[str, Any]:
    """The one colour bar of all points that are coloured by loop, log-spaced with the loops' own numbers on it."""
    last = layout.last_loop(chart)
    titles = [m.value_title for panel in chart.panels for m in panel.marks if isinstance(m, Points) and m.value is not None]
    colours = theme.loop_palette(surface)
    ticks = theme.loop_ticks(last)
    places = theme.loop_shade(np.array(ticks, dtype=np.float64), last)
    bar = _bar((0.0, 1.0, 0.0, 1.0), surface) | {
        "title": {"text": escape(next((title for title in titles if title), "loop")), "side": "right"},
        "tickvals": [float(place) for place in places],
        "ticktext": [str(tick) for tick in ticks],
    }
    return {
        "cmin": 0.0,
        "cmax": 1.0,
        "colorscale": [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)],
        "showscale": bool(titles),
        "colorbar": bar,
    }


def _bar(area: tuple[float, float, float, float], surface: Literal["light", "dark"]) -> dict[str, Any]:
    _, right, bottom, top = area
    paint = theme.PAINTS[surface]
    return {
        "x": right + 0.012,
        "xanchor": "left",
        "y": (bottom + top) / 2,
        "len": top - bottom,
        "thickness": 12,
        "outlinewidth": 0,
        "xpad": 2,
        "ypad": 0,
        "tickfont": {"size": 12, "color": paint.soft},
    }


def _axis(axis: Axis, panel: Panel, side: layout.Side, *, surface: Literal["light", "dark"]) -> dict[str, Any]:
    """What axes of planes and scenes have in common."""
    paint = theme.PAINTS[surface]
    found: dict[str, Any] = {
        "title": {"text": escape(layout.axis_words(axis)), "font": {"size": 13, "color": paint.ink}},
        "type": axis.scale,
        "gridcolor": paint.grid,
        "linecolor": paint.edge,
        "tickfont": {"size": 12, "color": paint.soft},
        "zeroline": False,
        "showline": True,
    }
    if axis.ticks is not None:
        every = layout.every_nth(len(axis.ticks), _MOST_TICKS)
        found |= {
            "tickmode": "array",
            "tickvals": [float(at) for at, _ in axis.ticks[::every]],
            "ticktext": [escape(theme.shortened(label, _TICK_LENGTH)) for _, label in axis.ticks[::every]],
            "showgrid": False,
        }
    elif axis.whole:
        low, high = axis.limits or layout.extent(panel, side) or (0.0, 1.0)
        found |= {"tickmode": "linear", "tick0": 0, "dtick": layout.whole_step(low, high, most=12), "tickformat": "d"}
    elif axis.scale == "log":
        found |= {"exponentformat": "power", "showexponent": "all"}
        low, high = axis.limits or layout.extent(panel, side) or (1.0, 10.0)
        decades = math.log10(high / low) if high > low > 0 else 0.0
        if decades >= 2:
            found |= {"dtick": math.ceil(decades / 7)}
    if axis.limits is not None:
        ends = [math.log10(end) for end in axis.limits] if axis.scale == "log" else list(axis.limits)
        found["range"] = ends[::-1] if axis.reversed else ends
    elif axis.reversed:
        found["autorange"] = "reversed"
    return found


def _plane(
    panel: Panel, area: tuple[float, float, float, float], suffix: str, *, surface: Literal["light", "dark"]
) -> dict[str, Any]:
    left, right, bottom, top = area
    x = _axis(panel.x, panel, "x", surface=surface) | {"domain": [left, right], "anchor": f"y{suffix}", "automargin": True}
    y = _axis(panel.y, panel, "y", surface=surface) | {"domain": [bottom, top], "anchor": f"x{suffix}", "automargin": True}
    x["autotickangles"] = [0, -45, -90]
    if panel.equal:
        y |= {"scaleanchor": f"x{suffix}", "scaleratio": 1}
    if any(isinstance(mark, Heatmap) for mark in panel.marks):
        x["showgrid"] = y["showgrid"] = False
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _scene(
    panel: Panel,
    area: tuple[float, float, float, float],
    suffix: str,
    *,
    chart: Chart,
    surface: Literal["light", "dark"],
) -> dict[str, Any]:
    assert panel.z is not None
    left, right, bottom, top = area
    paint = theme.PAINTS[surface]
    axes: dict[str, Any] = {}
    sides: tuple[tuple[layout.Side, Axis], ...] = (("x", panel.x), ("y", panel.y), ("z", panel.z))
    for side, axis in sides:
        axes[f"{side}axis"] = _axis(axis, panel, side, surface=surface) | {
            "showbackground": False,
            "showspikes": False,
            "nticks": 6,
            "zeroline": True,
            "zerolinecolor": paint.edge,
        }
    scene = axes | {
        "domain": {"x": [left, right], "y": [bottom, top]},
        "aspectmode": "data" if panel.equal else "cube",
        "dragmode": "turntable",
        "camera": {"eye": eye(chart.camera or Camera()), "up": {"x": 0, "y": 0, "z": 1}},
    }
    return {f"scene{suffix}": scene}


def _panel_title(
    panel: Panel, area: tuple[float, float, float, float], surface: Literal["light", "dark"]
) -> list[dict[str, Any]]:
    if not panel.title:
        return []
    return [
        {
            "text": escape(panel.title),
            "xref": "paper",
            "yref": "paper",
            "x": area[0],
            "y": area[3],
            "xanchor": "left",
            "yanchor": "bottom",
            "yshift": 3,
            "showarrow": False,
            "font": {"size": 14, "color": theme.PAINTS[surface].ink, "weight": 600},
        }
    ]


def _shape(mark: Rule, suffix: str, surface: Literal["light", "dark"]) -> dict[str, Any]:
    """A Rule as a labelled line across its panel."""
    colour = theme.look(mark.role, surface).colour
    label = theme.PAINTS[surface].soft if mark.role == Role("muted") else colour
    flat = mark.across == "horizontal"
    along = {"x0": 0, "x1": 1, "y0": mark.at, "y1": mark.at, "xref": f"x{suffix} domain", "yref": f"y{suffix}"}
    up = {"x0": mark.at, "x1": mark.at, "y0": 0, "y1": 1, "xref": f"x{suffix}", "yref": f"y{suffix} domain"}
    return (along if flat else up) | {
        "type": "line",
        "line": {"color": colour, "width": 1.5, "dash": mark.dash},
        "label": {
            "text": escape(mark.label),
            "textposition": "end",
            "textangle": 0 if flat else -90,
            "yanchor": "bottom",
            "xanchor": "right",
            "padding": 3,
            "font": {"size": 12, "color": label},
        },
    }
