"""Axes of panels on the screen: planes, scenes and the camera that looks at them."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from analysis.chart import Axis, Camera, Chart, Heatmap, Panel
from analysis.draw import layout, theme
from analysis.draw.plotly_values import escape

Screen = Literal["light", "dark"]
Area = tuple[float, float, float, float]
"""Left, right, bottom and top of a panel, as fractions of the figure."""
_EYE_DISTANCE = 2.1
_TICK_LENGTH = 14
_MOST_TICKS = 90
_SCENE_CHARACTERS = 12
_AXIS_CHARACTERS = 44
_FEW = 8
"""Up to so many names on an axis keep their full length."""


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


def _axis(axis: Axis, panel: Panel, side: layout.Side, *, surface: Screen) -> dict[str, Any]:
    """What axes of planes and scenes have in common."""
    paint = theme.PAINTS[surface]
    found: dict[str, Any] = {
        "title": {
            "text": escape(layout.broken(layout.axis_words(axis), lambda line: len(line) <= _AXIS_CHARACTERS)),
            "font": {"size": 13, "color": paint.ink},
        },
        "type": axis.scale,
        "gridcolor": paint.grid,
        "linecolor": paint.edge,
        "tickfont": {"size": 12, "color": paint.soft},
        "zeroline": False,
        "showline": True,
    }
    if axis.ticks is not None:
        every = layout.every_nth(len(axis.ticks), _MOST_TICKS)
        length = _TICK_LENGTH if len(axis.ticks) > _FEW else 60
        labels = [theme.shortened(label, length) for _, label in axis.ticks[::every]]
        found |= {
            "tickmode": "array",
            "tickvals": [float(at) for at, _ in axis.ticks[::every]],
            "ticktext": [escape(label) for label in labels],
            "showgrid": False,
        }
    elif axis.whole:
        low, high = axis.limits or layout.extent(panel, side) or (0.0, 1.0)
        rows = layout.uneven_rows(panel, side)
        if rows is not None:
            found |= {"tickmode": "array", "tickvals": [float(row) for row in rows], "ticktext": [f"{row:g}" for row in rows]}
            return _ranged(found, axis)
        found |= {"tickmode": "linear", "tick0": 0, "dtick": layout.whole_step(low, high, most=12), "tickformat": "d"}
    elif axis.scale == "log":
        found |= {"exponentformat": "power", "showexponent": "all"}
        low, high = axis.limits or layout.extent(panel, side) or (1.0, 10.0)
        decades = math.log10(high / low) if high > low > 0 else 0.0
        if decades >= 2:
            found |= {"dtick": math.ceil(decades / 7)}
    return _ranged(found, axis)


def _ranged(found: dict[str, Any], axis: Axis) -> dict[str, Any]:
    if axis.limits is not None:
        ends = [math.log10(end) for end in axis.limits] if axis.scale == "log" else list(axis.limits)
        found["range"] = ends[::-1] if axis.reversed else ends
    elif axis.reversed:
        found["autorange"] = "reversed"
    return found


def plane(panel: Panel, area: Area, suffix: str, *, surface: Screen) -> dict[str, Any]:
    """Layout entries of a two-dimensional panel."""
    left, right, bottom, top = area
    x = _axis(panel.x, panel, "x", surface=surface) | {"domain": [left, right], "anchor": f"y{suffix}", "automargin": True}
    y = _axis(panel.y, panel, "y", surface=surface) | {"domain": [bottom, top], "anchor": f"x{suffix}", "automargin": True}
    x["autotickangles"] = [0, -45, -90]
    if panel.equal:
        y |= {"scaleanchor": f"x{suffix}", "scaleratio": 1}
    if any(isinstance(mark, Heatmap) for mark in panel.marks):
        x["showgrid"] = y["showgrid"] = False
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def scene(
    panel: Panel,
    area: Area,
    suffix: str,
    *,
    chart: Chart,
    surface: Screen,
) -> dict[str, Any]:
    """Layout entry of a three-dimensional panel."""
    assert panel.z is not None
    left, right, bottom, top = area
    paint = theme.PAINTS[surface]
    axes: dict[str, Any] = {}
    sides: tuple[tuple[layout.Side, Axis], ...] = (("x", panel.x), ("y", panel.y), ("z", panel.z))
    for side, axis in sides:
        axes[f"{side}axis"] = _axis(axis, panel, side, surface=surface) | {
            # Beside a cube there is room for short lines only; longer ones are cut off at the edge of the scene.
            "title": {
                "text": escape(layout.broken(layout.axis_words(axis), lambda line: len(line) <= _SCENE_CHARACTERS)),
                "font": {"size": 11, "color": paint.ink},
            },
            "showbackground": False,
            "showspikes": False,
            "nticks": 6,
            "zeroline": True,
            "zerolinecolor": paint.edge,
        }
    made = axes | {
        "domain": {"x": [left, right], "y": [bottom, top]},
        "aspectmode": "manual" if panel.equal else "cube",
        "aspectratio": _proportions(panel),
        "dragmode": "turntable",
        "camera": {"eye": eye(chart.camera or Camera()), "up": {"x": 0, "y": 0, "z": 1}},
    }
    return {f"scene{suffix}": made}


def _proportions(panel: Panel) -> dict[str, float]:
    """Lengths of the three axes in a scene where one unit is equally long on all; the longest always fits the view."""
    sides: tuple[layout.Side, ...] = ("x", "y", "z")
    bounds = [layout.extent(panel, side) or (0.0, 1.0) for side in sides]
    spans = [high - low for low, high in bounds]
    longest = max(spans) or 1.0
    return {side: max(1.05 * span / longest, 0.02) for side, span in zip(sides, spans, strict=True)}
