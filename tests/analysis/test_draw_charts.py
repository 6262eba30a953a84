"""Every registered chart, drawn by both renderers from a small run, also of an awkward prompt and of short runs."""

import io
from typing import Any

import orjson
import pytest
from pypdf import PdfReader

from analysis.chart import Chart, ChartError, View, chart_builders
from analysis.draw.matplotlib import figure
from analysis.draw.plotly import figure_json
from analysis.exit_rule import default_rules
from analysis.export import export
from analysis.projection import ProjectionError
from model.capture.trajectory import Run
from tests.analysis.sample_charts import HOSTILE
from tests.toys import toy_run, toy_trajectory


def view_of(run: Run, **changes: Any) -> View:
    rules = tuple(kind() for kind in default_rules().values())
    return View(run=run, rules=rules, others=(("step 0", run), ("step <1>", run)), **changes)


def hostile_run() -> Run:
    return Run(request={}, trajectories=(toy_trajectory(tokens=len(HOSTILE), labels=HOSTILE),))


def drawn(chart: Chart) -> None:
    orjson.dumps(figure_json(chart, dark=True))
    figure(chart, "icml2024").draw_without_rendering()


@pytest.mark.parametrize("name", chart_builders())
def test_an_awkward_prompt_is_drawn_and_exported(name: str) -> None:
    chart = chart_builders()[name]().build(view_of(hostile_run()))
    orjson.dumps(figure_json(chart, dark=False))
    data = export(chart, kind="pdf")
    page = PdfReader(io.BytesIO(data)).pages[0]
    assert abs(float(page.mediabox.width) - 3.25 * 72) < 1.0
    assert b"/Type3" not in data
    assert export(chart, kind="csv").count(b"\n") > 1


@pytest.mark.parametrize("name", chart_builders())
def test_a_selected_token_and_loop_are_drawn(name: str) -> None:
    drawn(chart_builders()[name]().build(view_of(toy_run(), prompt=1, token=2, block=1, loop=3)))


@pytest.mark.parametrize(("tokens", "loops"), [(1, 1), (1, 2), (2, 1), (2, 3)])
@pytest.mark.parametrize("name", chart_builders())
def test_short_runs_are_drawn_or_refused_in_a_sentence(name: str, tokens: int, loops: int) -> None:
    run = toy_run(prompts=1, tokens=tokens, loops=loops)
    try:
        chart = chart_builders()[name]().build(view_of(run))
    except (ChartError, ProjectionError) as error:
        refusal = str(error)
    else:
        drawn(chart)
        return
    assert refusal.endswith(".")


def test_space_is_drawn_with_its_camera() -> None:
    builder: Any = chart_builders()["trajectory"]
    chart = builder(dims=3).build(view_of(toy_run()))
    assert figure_json(chart, dark=False)["layout"]["scene"]["aspectmode"] == "manual"
    drawn(chart)
