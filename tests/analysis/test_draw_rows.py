"""Panels in rows: any number of them keeps its size, its distance and its place, on the screen and on paper."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.chart import Axis, Chart, Line, Panel, Role, Rule, View
from analysis.charts.rule import RuleChart
from analysis.draw import layout, theme
from analysis.draw.matplotlib import figure
from analysis.draw.plotly import figure_json
from analysis.exit_rule import exit_rules
from tests.analysis import sample_charts
from tests.toys import toy_run

COUNTS = (1, 2, 3, 4, 6, 7, 10, 21)


def many(count: int, *, title: str = "stops < 0.5\nexits after 3 loops", legend: str = "exit: rule {}") -> Chart:
    x = np.arange(1.0, 9.0)
    panels = [
        Panel(
            x=Axis("loop k", whole=True),
            y=Axis("a rule"),
            marks=(Line(x, x / 9, sample_charts.columns(8), Role("muted"), legend=legend.format(i)),),
            title=title,
        )
        for i in range(count)
    ]
    return Chart("many", "", tuple(panels), "", "", sample_charts.provenance())


def named(count: int, *names: str) -> Chart:
    """The same with names on the axes below."""
    ticks = tuple((float(i), name) for i, name in enumerate(names))
    made = many(count)
    return replace(made, panels=tuple(replace(panel, x=Axis("name", ticks=ticks)) for panel in made.panels))


def pixels(chart: Chart) -> list[tuple[float, float]]:
    """Lower and upper end of each panel's axis, in pixels above the lowest axis, without the legend's further lines."""
    made = figure_json(chart, dark=False)["layout"]
    plain = figure_json(many(len(chart.panels), legend=""), dark=False)["layout"]
    inner = plain["height"] - 38 - 52
    ends = [made[f"yaxis{'' if i == 0 else i + 1}"]["domain"] for i in range(len(chart.panels))]
    return [(low * inner, high * inner) for low, high in ends]


@pytest.mark.parametrize("count", COUNTS)
def test_rows_on_the_screen_keep_their_height_and_their_distance(count: int) -> None:
    places = pixels(many(count))
    assert all(180 <= high - low <= 300 for low, high in places)
    rows = sorted(set(places), reverse=True)
    assert len(rows) == -(-count // 3)
    assert rows[-1][0] == pytest.approx(0.0, abs=0.5)
    for (low, _), (_, high) in itertools.pairwise(rows):
        assert 90 <= low - high <= 125  # axis, titles of two lines, and little that is empty


def test_a_legend_of_many_lines_takes_its_room_from_no_panel() -> None:
    short, long = (figure_json(many(10, legend=word), dark=False)["layout"] for word in ("", "exit: quite a long rule {}"))
    assert long["height"] - short["height"] >= 40
    assert long["yaxis"]["domain"] == short["yaxis"]["domain"]


def test_rows_stand_apart_by_as_much_as_their_names_need() -> None:
    def apart(chart: Chart) -> float:
        made = figure_json(chart, dark=False)["layout"]
        (low, high), (_, below) = made["yaxis"]["domain"], made["yaxis4"]["domain"]
        return 200 * (low - below) / (high - low)  # an axis has 200 pixels below its title

    plain = apart(named(6))
    assert apart(named(6, *map(str, range(1, 17, 2)), "never")) == pytest.approx(plain, abs=0.5)
    assert apart(named(6, "h[1]\nto\nh[2]", "h[2]")) == pytest.approx(plain + 40, abs=0.5)
    assert plain + 60 < apart(named(6, *["a long name"] * 9)) < plain + 110


@pytest.mark.parametrize("venue", theme.VENUES)
@pytest.mark.parametrize("count", [3, 6, 10])
def test_a_figure_for_paper_fits_its_page_and_its_words_do_not_overlap(count: int, venue: str) -> None:
    made = figure(many(count, legend=""), venue)
    made.draw_without_rendering()
    assert made.get_size_inches()[1] <= 9.0
    boxes = [ax.get_tightbbox() for ax in made.axes]
    for one, other in itertools.combinations(boxes, 2):
        assert one is not None
        assert other is not None
        apart = one.x1 <= other.x0 + 1 or other.x1 <= one.x0 + 1 or one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1
        assert apart
    plots: list[Any] = [ax.get_window_extent() for ax in made.axes]
    assert min(box.height / made.dpi for box in plots) > 0.6


def test_every_threshold_stands_above_its_panel_and_in_no_legend() -> None:
    rules = tuple(kind() for kind in exit_rules().values())
    made = figure_json(RuleChart().build(View(run=toy_run(), block=2, rules=rules)), dark=False)
    titles = [note["text"] for note in made["layout"]["annotations"] if note["text"].startswith("stops ")]
    assert len(titles) >= 15
    assert all("exit" in title or "undefined" in title for title in titles)
    assert not any("stops" in shape.get("label", {}).get("text", "") for shape in made["layout"]["shapes"])
    assert not any("stops" in trace["name"] for trace in made["data"])


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize(("at", "side"), [(0.2, "bottom"), (0.5, "bottom"), (0.99, "top"), (3.0, "top")])
def test_words_on_a_line_stand_below_it_where_there_is_no_room_above(scale: Any, at: float, side: str) -> None:
    x = np.arange(1.0, 9.0)
    line = Line(x, np.geomspace(0.001, 1.0, 8), sample_charts.columns(8), Role("muted"))
    rule = Rule(
        at=at if scale == "linear" else 0.001 ** (1 - min(at, 1.0)), across="horizontal", label="words", role=Role("ink")
    )
    panel = Panel(Axis("x"), Axis("y", scale=scale), (line, rule))
    made = figure_json(Chart("one", "", (panel,), "", "", sample_charts.provenance()), dark=False)
    assert made["layout"]["shapes"][0]["label"]["yanchor"] == side


@pytest.mark.parametrize(("low", "high"), [(0.77, 0.96), (8.1e-5, 8.9e-5), (0.5, 6.0), (1.0, 1e9), (333.0, 334.0), (4.0, 4.9)])
def test_a_log_axis_has_at_least_two_ticks_and_each_says_its_own_value(low: float, high: float) -> None:
    ticks = layout.log_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    assert all(low * (1 - 1e-9) <= tick <= high * (1 + 1e-9) for tick in ticks)
    assert len(set(layout.log_words(ticks))) == len(ticks)
