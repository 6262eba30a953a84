"""The screen's renderer: literal labels, keys on every trace, finite JSON, cameras, every mark drawn."""

import base64
import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import orjson
import pytest

from analysis.chart import Axis, Camera, Chart, Line, Panel, Role
from analysis.draw.plotly import camera_from_eye, eye, figure_json
from analysis.draw.plotly_values import KEYS, escape
from tests.analysis import sample_charts

CHARTS = {chart.name: chart for chart in sample_charts.every()}


def decoded(spec: dict[str, str]) -> np.ndarray:
    kinds = {"f4": np.float32, "i1": np.int8, "i4": np.int32, "u1": np.uint8}
    return np.frombuffer(base64.b64decode(spec["bdata"]), dtype=kinds[spec["dtype"]])


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return [s for key, item in entries.items() if key not in ("bdata", "meta") for s in strings(item)]
    return [s for item in cast("list[Any]", value) for s in strings(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", CHARTS)
def test_a_figure_is_plain_finite_json(name: str, dark: bool) -> None:
    figure = figure_json(CHARTS[name], dark=dark)
    assert orjson.loads(orjson.dumps(figure)) == json.loads(json.dumps(figure, allow_nan=False))
    assert figure["layout"]["uirevision"] == name


@pytest.mark.parametrize("name", CHARTS)
def test_every_trace_carries_its_keys(name: str) -> None:
    for trace in figure_json(CHARTS[name], dark=False)["data"]:
        rows = trace["customdata"]
        count = len(decoded(trace["x"]))
        if trace["type"] == "heatmap":
            assert len(rows) == len(decoded(trace["y"]))
            assert len(rows[0]) == count
            rows = [cell for row in rows for cell in row]
        else:
            assert len(rows) == count
        assert tuple(trace["meta"]["columns"][:4]) == KEYS
        assert {len(row) for row in rows} == {len(trace["meta"]["columns"])}
        assert rows[0][2] == "h[4]"


@pytest.mark.parametrize("name", CHARTS)
def test_labels_show_literally(name: str) -> None:
    """No label is markup, formula or template; <br> and the bold token of hover texts are ours."""
    figure = figure_json(CHARTS[name], dark=False)
    for trace in figure["data"]:
        trace.pop("hovertemplate", None)
        trace.pop("texttemplate", None)
    for text in strings(figure):
        bare = text.replace("<br>", "")
        assert "<" not in bare
        assert "$" not in bare
        assert "%{" not in bare


def test_hostile_words() -> None:
    assert escape("<s>") == "&lt;s&gt;"
    assert escape("&lt;") == "&amp;lt;"
    assert escape("$x$") == "&#36;x&#36;"
    assert escape("a\nb") == "a<br>b"
    assert "\ud800" not in escape("\ud800")
    assert escape("🙂 _a^b") == "🙂 _a^b"


def test_the_hover_of_a_token_names_loop_and_block() -> None:
    trace = figure_json(CHARTS["curves"], dark=False)["data"][1]
    assert "customdata[3]" in trace["hovertemplate"]
    assert "loop" in trace["hovertemplate"]
    assert trace["hovertemplate"].startswith("<b>")
    assert "step norm %{y" in trace["hovertemplate"]


def test_gaps_stay_gaps() -> None:
    trace = figure_json(CHARTS["curves"], dark=False)["data"][1]
    assert np.isnan(decoded(trace["y"])).sum() == 1
    assert trace["connectgaps"] is False
    scores = [row[trace["meta"]["columns"].index("score")] for row in trace["customdata"]]
    assert scores[:2] == ["–", "0.5"]


def test_marks_become_traces_and_shapes() -> None:
    figure = figure_json(CHARTS["curves"], dark=False)
    assert [trace["type"] for trace in figure["data"]] == ["scatter"] * 9
    assert len(figure["layout"]["shapes"]) == 6
    assert {shape["yref"] for shape in figure["layout"]["shapes"]} >= {"y", "y2", "y3", "y domain"}
    assert figure["layout"]["yaxis3"]["type"] == "log"
    assert sum(trace["showlegend"] for trace in figure["data"]) == 2
    assert {trace["type"] for trace in figure_json(CHARTS["bars"], dark=False)["data"]} == {"bar", "heatmap"}
    kinds = [trace["marker"].get("symbol") for trace in figure_json(CHARTS["plane"], dark=False)["data"] if "marker" in trace]
    assert {"arrow", "square", "x", "cross", "diamond"} <= set(kinds)


def test_the_band_is_closed_and_breaks_at_gaps() -> None:
    band = figure_json(CHARTS["curves"], dark=False)["data"][0]
    x = decoded(band["x"])
    assert band["fill"] == "toself"
    assert np.isnan(x).sum() == 2
    assert (decoded(band["y"])[np.isfinite(x)] > 0).all()


def test_many_rows_move_to_webgl() -> None:
    rows = 6000
    line = Line(np.arange(float(rows)), np.ones(rows), sample_charts.columns(rows), Role("muted"))
    chart = Chart("many", "", (Panel(Axis("x"), Axis("y"), (line,)),), "", "", sample_charts.provenance())
    assert figure_json(chart, dark=False)["data"][0]["type"] == "scattergl"
    assert figure_json(CHARTS["plane"], dark=False)["data"][0]["type"] == "scatter"


def test_scenes_have_a_camera_and_three_axes() -> None:
    figure = figure_json(CHARTS["space"], dark=True)
    assert {trace["type"] for trace in figure["data"]} == {"scatter3d"}
    scene = figure["layout"]["scene"]
    assert scene["zaxis"]["title"]["text"] == "PC3 (9 %)"
    back = camera_from_eye(scene["camera"]["eye"])
    assert (back.azimuth, back.elevation) == pytest.approx((120.0, 10.0))


@pytest.mark.parametrize("azimuth", [0.0, 45.0, 120.0, 200.0, 359.0])
@pytest.mark.parametrize("elevation", [-60.0, 0.0, 10.0, 89.0])
def test_camera_round_trip(azimuth: float, elevation: float) -> None:
    back = camera_from_eye({axis: 0.4 * value for axis, value in eye(Camera(azimuth, elevation)).items()})
    assert (back.azimuth, back.elevation) == pytest.approx((azimuth, elevation), abs=1e-3)
    assert camera_from_eye({"x": 0.0, "y": 0.0, "z": 2.0}) == Camera(0.0, 90.0)


def test_the_data_do_not_depend_on_the_theme() -> None:
    light, dark = (figure_json(CHARTS["plane"], dark=dark) for dark in (False, True))
    assert [trace["x"] for trace in light["data"]] == [trace["x"] for trace in dark["data"]]
    assert light["layout"]["font"]["color"] != dark["layout"]["font"]["color"]


def test_equal_panels_keep_one_unit_and_reversed_axes_run_down() -> None:
    assert figure_json(CHARTS["plane"], dark=False)["layout"]["yaxis"]["scaleanchor"] == "x"
    heatmap = figure_json(CHARTS["heatmap"], dark=False)["layout"]
    assert heatmap["yaxis"]["autorange"] == "reversed"
    assert heatmap["xaxis"]["ticktext"][0] == "&lt;s&gt;"
    limited = replace(CHARTS["heatmap"].panels[0], y=Axis("loop", limits=(0.5, 12.5), reversed=True))
    figure = figure_json(replace(CHARTS["heatmap"], panels=(limited,)), dark=False)
    assert figure["layout"]["yaxis"]["range"] == [12.5, 0.5]


def test_rules_have_their_words_on_the_line_or_in_the_legend() -> None:
    shapes = figure_json(CHARTS["curves"], dark=False)["layout"]["shapes"]
    upright = [shape for shape in shapes if shape["yref"].endswith("domain")]
    assert [shape["showlegend"] for shape in upright] == [True, False, False]
    flat = [shape for shape in shapes if shape["xref"].endswith("domain")]
    assert {shape["label"]["text"] for shape in flat} == {"τ = 0.001 &lt;b&gt;"}


def test_a_row_of_panels_names_its_common_axis_once() -> None:
    layout = figure_json(CHARTS["curves"], dark=False)["layout"]
    assert [layout[axis]["title"]["text"] for axis in ("yaxis", "yaxis2", "yaxis3")] == ["step norm", "", ""]
    layout = figure_json(CHARTS["series"], dark=False)["layout"]
    assert layout["yaxis2"]["title"]["text"] == "step cosine"
