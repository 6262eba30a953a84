"""The paper's renderer: every mark drawn, labels literal or escaped, sizes exact, no state left behind."""

import itertools
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.quiver import Quiver
from matplotlib.text import Text

from analysis.draw import theme
from analysis.draw.glyphs import fitted, has_glyph, printable, width_pt
from analysis.draw.matplotlib import figure
from analysis.draw.wrap import wrapped
from tests.analysis import sample_charts

CHARTS = {chart.name: chart for chart in sample_charts.every()}


def artists(axes: Any, kind: type) -> list[Any]:
    return [child for child in axes.get_children() if isinstance(child, kind)]


@pytest.mark.parametrize("venue", theme.VENUES)
@pytest.mark.parametrize("name", CHARTS)
def test_the_width_is_the_venues(name: str, venue: str) -> None:
    made = figure(CHARTS[name], venue)
    width, height = made.get_size_inches()
    assert width == theme.VENUES[venue].width_in
    assert 1.0 < height < 9.0


def test_every_mark_is_drawn() -> None:
    plane = figure(CHARTS["plane"], "icml2024").axes[0]
    assert len(plane.lines) == 2
    assert len(artists(plane, Quiver)) == 1
    assert len(artists(plane, PathCollection)) == 7
    curves = figure(CHARTS["curves"], "icml2024").axes
    assert [len(ax.lines) for ax in curves] == [3, 3, 3]
    assert [len(ax.collections) for ax in curves] == [2, 2, 2]
    bars, heat = figure(CHARTS["bars"], "neurips2024").axes[:2]
    assert len(bars.patches) == 2
    assert len(artists(heat, QuadMesh)) == 1
    space = figure(CHARTS["space"], "icml2024").axes[0]
    assert (getattr(space, "azim"), getattr(space, "elev")) == (120.0, 10.0)  # noqa: B009


def test_panels_stack_in_a_column_and_stand_side_by_side_in_a_page() -> None:
    def columns(venue: str) -> int:
        made = figure(CHARTS["curves"], venue)
        made.draw_without_rendering()
        return len({round(float(ax.get_position().x0), 2) for ax in made.axes})

    assert columns("icml2024") == 1
    assert columns("icml2024-wide") == 3


@pytest.mark.parametrize("name", [name for name in CHARTS if name != "space"])  # matplotlib lays 3-D labels out by itself
def test_nothing_is_cut_off_and_no_tick_labels_touch(name: str) -> None:
    made = figure(CHARTS[name], "icml2024")
    made.draw_without_rendering()
    page = made.bbox
    for ax in made.axes:
        box = ax.get_tightbbox()
        assert box is not None
        assert box.x0 >= page.x0 - 1
        assert box.x1 <= page.x1 + 1
        assert box.y0 >= page.y0 - 1
        assert box.y1 <= page.y1 + 1
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        assert all(a.x1 <= b.x0 + 1 for a, b in itertools.pairwise(boxes))


def test_text_is_never_small() -> None:
    made = figure(CHARTS["heatmap"], "icml2024")
    made.draw_without_rendering()
    texts: list[Any] = made.findobj(Text)
    assert min(float(text.get_fontsize()) for text in texts if text.get_text()) >= 7.0


def test_glyphs_that_no_font_has_are_escaped() -> None:
    assert printable("<s> $x$ _a^b <b>x</b> ⏎·‖Δ⁽ᵏ⁾‖") == "<s> $x$ _a^b <b>x</b> ⏎·‖Δ⁽ᵏ⁾‖"
    assert printable("🙂") == "\\u1f642"
    assert printable("日") == "\\u65e5"
    assert printable("\x00\ud800\u200b") == "\\u0000\\ud800\\u200b"
    assert not has_glyph("\x07")


@pytest.mark.parametrize("label", sample_charts.HOSTILE)
def test_hostile_tick_labels_reach_the_page(label: str) -> None:
    made = figure(CHARTS["heatmap"], "icml2024-wide")
    made.draw_without_rendering()
    shown = [text.get_text() for text in made.axes[0].get_xticklabels()]
    assert theme.shortened(printable(label), 12) in shown


def test_words_are_cut_to_their_cells() -> None:
    assert fitted("short", 100.0, 7.0) == "short"
    cut = fitted("internationalisation", 30.0, 7.0)
    assert cut.endswith("…")
    assert width_pt(cut, 7.0) <= 30.0
    assert fitted("wide", 2.0, 7.0) == ""


def test_a_wide_map_of_words_breaks_into_rows() -> None:
    chart = sample_charts.says(tokens=23)
    parts = wrapped(chart, 8).panels
    assert [len(part.marks[0].x) for part in parts] == [8, 8, 7]  # type: ignore[union-attr]
    joined = np.concatenate([part.marks[0].values for part in parts], axis=1)  # type: ignore[union-attr]
    assert np.array_equal(joined, chart.panels[0].marks[0].values)  # type: ignore[union-attr]
    keys = [part.marks[0].columns["position"].size for part in parts]  # type: ignore[union-attr]
    assert keys == [64, 64, 56]
    assert wrapped(chart, 23).panels == chart.panels


def test_settings_of_the_user_neither_leak_in_nor_out() -> None:
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "black", "text.usetex": False}):
        made = figure(CHARTS["curves"], "icml2024")
        assert mpl.rcParams["font.size"] == 30.0
    assert made.axes[0].get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert made.axes[0].xaxis.label.get_fontsize() == 8.0


def test_undefined_cells_are_blank() -> None:
    mesh = artists(figure(CHARTS["heatmap"], "icml2024").axes[0], QuadMesh)[0]
    values = mesh.get_array()
    assert values.mask[-1].all()
    assert not values.mask[:-1].any()
