"""Chart -> Plotly figure for the screen, as plain dictionaries for Plotly.react; plotly.py itself is not needed."""

import math
from typing import Any

import numpy as np

from analysis.chart import Bars, Chart, Mark, Panel, Points, Rule
from analysis.draw import layout, theme
from analysis.draw import plotly_rows as rows
from analysis.draw.plotly_axes import Area, Screen, camera_from_eye, eye, plane, scene
from analysis.draw.plotly_marks import Place, traces
from analysis.draw.plotly_values import escape

__all__ = ["camera_from_eye", "eye", "figure_json"]


def figure_json(chart: Chart, *, dark: bool) -> dict[str, Any]:
    """``{"data": [...], "layout": {...}}`` of plain JSON values (undefined is null or a gap in a typed array).

    Every trace has ``customdata`` rows that begin with prompt, position, block, loop (null where it has no such
    key), and ``meta.columns`` names all their entries. ``uirevision`` is the chart's name, so zoom and camera stay
    when the numbers change. The height is fixed, the width follows the page. The chart's title and caption are the
    page's to show.
    """
    surface: Screen = "dark" if dark else "light"
    areas = rows.areas(chart)
    figure = _frame(chart, surface)
    data: list[dict[str, Any]] = []
    named: frozenset[str] = frozenset()
    last = layout.last_loop(chart)
    for number, (panel, area) in enumerate(zip(chart.panels, areas, strict=True), start=1):
        suffix = "" if number == 1 else str(number)
        figure |= (
            scene(panel, area, suffix, chart=chart, surface=surface) if panel.z else plane(panel, area, suffix, surface=surface)
        )
        if layout.repeats_y(chart, number - 1, rows.ACROSS):
            figure[f"yaxis{suffix}"]["title"]["text"] = ""
        figure["annotations"] += _panel_title(panel, area, surface, across=min(len(chart.panels), rows.ACROSS))
        figure["annotations"] += [note for m in panel.marks if isinstance(m, Bars) for note in _bar_words(m, panel, suffix)]
        figure["shapes"] += [_shape(m, panel, suffix, surface=surface, named=named) for m in panel.marks if isinstance(m, Rule)]
        axes = {"scene": f"scene{suffix}"} if panel.z else {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        for mark in panel.marks:
            place = Place(panel=panel, axes=axes, surface=surface, last_loop=last, named=named)
            drawn = traces(mark, place)
            for trace in drawn:
                if trace["type"] == "heatmap":
                    trace["colorbar"] |= _bar(area, surface)
            data += drawn
            named |= {word for word in (_in_legend(mark, panel),) if word}
    figure["showlegend"] = bool(named)
    return {"data": data, "layout": figure}


def _in_legend(mark: Mark, panel: Panel) -> str:
    """The mark's legend entry, "" when it has none."""
    if isinstance(mark, Rule):
        return mark.label if rows.stands_in_legend(mark, panel) else ""
    return getattr(mark, "legend", "")


def _frame(chart: Chart, surface: Screen) -> dict[str, Any]:
    paint = theme.PAINTS[surface]
    return {
        "autosize": True,
        "height": rows.figure_height(chart),
        "uirevision": chart.name,
        "font": {"family": theme.SCREEN_FONTS, "size": 13, "color": paint.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 16, "r": 16, "t": rows.TOP, "b": 16, "autoexpand": True},
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
            "itemsizing": "constant" if any(panel.z for panel in chart.panels) else "trace",
            "font": {"size": 13, "color": paint.ink},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": paint.soft, "activecolor": paint.ink, "orientation": "v"},
        "coloraxis": _loop_axis(chart, surface),
        "bargap": 0.3,
        "annotations": [],
        "shapes": [],
        "meta": {"chart": chart.name, "alt": chart.alt, "least_width": rows.least_width(chart)},
    }


def _loop_axis(chart: Chart, surface: Screen) -> dict[str, Any]:
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


def _bar(area: Area, surface: Screen) -> dict[str, Any]:
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


def _panel_title(panel: Panel, area: Area, surface: Screen, *, across: int) -> list[dict[str, Any]]:
    if not panel.title:
        return []
    return [
        {
            "text": escape(rows.title_lines(panel, across)),
            "xref": "paper",
            "yref": "paper",
            "x": area[0],
            "y": area[3],
            "xanchor": "left",
            "yanchor": "bottom",
            "align": "left",
            "yshift": 3,
            "showarrow": False,
            "font": {"size": 14, "color": theme.PAINTS[surface].ink, "weight": 600},
        }
    ]


def _shape(mark: Rule, panel: Panel, suffix: str, *, surface: Screen, named: frozenset[str]) -> dict[str, Any]:
    """A Rule as a line across its panel, labelled on the line or in the legend."""
    paint = theme.PAINTS[surface]
    colour = theme.look(mark.role, surface).colour
    flat = mark.across == "horizontal"
    along = {"x0": 0, "x1": 1, "y0": mark.at, "y1": mark.at, "xref": f"x{suffix} domain", "yref": f"y{suffix}"}
    up = {"x0": mark.at, "x1": mark.at, "y0": 0, "y1": 1, "xref": f"x{suffix}", "yref": f"y{suffix} domain"}
    line: dict[str, Any] = (along if flat else up) | {
        "type": "line",
        "line": {"color": colour, "width": 1.5, "dash": mark.dash},
    }
    if rows.stands_in_legend(mark, panel):
        shown = bool(mark.label) and mark.label not in named
        return line | {"name": escape(mark.label), "showlegend": shown, "legendgroup": escape(mark.label)}
    return line | {
        "label": {
            "text": escape(mark.label),
            # a score is below its threshold on the right, and near the floor only there
            "textposition": "end" if mark.role.kind == "rule" else "start",
            "yanchor": "top" if layout.near_top(panel, mark.at) else "bottom",  # words above the panel's edge are cut off
            "xanchor": "right" if mark.role.kind == "rule" else "left",
            "padding": 3,
            "font": {"size": 12, "color": paint.soft},
        }
    }


def _bar_words(mark: Bars, panel: Panel, suffix: str) -> list[dict[str, Any]]:
    """The words above each bar or its whisker."""
    tops = mark.y if mark.upper is None else np.fmax(mark.y, mark.upper)
    return [
        {
            "text": escape(word),
            "xref": f"x{suffix}",
            "yref": f"y{suffix}",
            "x": float(x),
            "y": math.log10(top) if panel.y.scale == "log" else float(top),
            "yanchor": "bottom",
            "yshift": 3,
            "showarrow": False,
        }
        for x, top, word in zip(mark.x, tops, mark.text, strict=False)
        if np.isfinite(top) and (top > 0 or panel.y.scale == "linear")
    ]
