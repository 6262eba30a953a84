"""The Pareto chart by its data: one point per threshold that leads back to the rule, the null, full depth, the oracle."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.candidates import with_threshold
from analysis.chart import Band, Chart, ChartError, Line, Points, Rule, View, chart_builders, chart_rows
from analysis.comparison import EQUAL_TERMS, LAST_BLOCK, compare
from analysis.exit_rule import exit_rules
from analysis.export import export
from analysis.sweep import Swept, sweep
from model.capture.trajectory import Run
from model.card import Flops
from tests.toys import toy_run

LAST = 2
FLOPS = Flops(outside=100, per_loop=(10, 20, 30), logit_lens=40, coda_lens=50)
NAMES = ("kl", "step_norm", "fixed_k")


def swept_of(run: Run, **options: Any) -> tuple[Swept, ...]:
    return sweep([exit_rules()[name]() for name in NAMES], run.trajectories, LAST, points=6, **options)


def built(run: Run, *, flops: Flops | None = FLOPS, **options: Any) -> Chart:
    kind: Any = chart_builders()["pareto"]
    return kind(**options).build(View(run=run, block=LAST, swept=swept_of(run, flops=flops)))


def marks(chart: Chart, kind: type) -> list[Any]:
    return [mark for mark in chart.panels[0].marks if isinstance(mark, kind)]


@pytest.mark.parametrize("x", ["mean_loops", "flops"])
@pytest.mark.parametrize("y", ["cross_entropy", "agreement"])
def test_a_point_leads_back_to_rule_and_threshold(x: str, y: str) -> None:
    run = toy_run(prompts=6)
    chart = built(run, x=x, y=y)
    rows = [row for row in chart_rows(chart) if row["mark"] == "line" and row.get("patience")]
    assert {row["rule"] for row in rows} == {"kl", "step_norm"}
    for row in rows:
        rule = with_threshold(exit_rules()[row["rule"]](), row["threshold"])
        again = compare(rule, run.trajectories, LAST, flops=FLOPS)
        assert row["x"] == pytest.approx(getattr(again, x))
        assert row["y"] == pytest.approx(getattr(again, y))


@pytest.mark.parametrize("y", ["cross_entropy", "agreement"])
def test_the_null_is_on_every_plot_and_full_depth_too(y: str) -> None:
    run = toy_run(prompts=2, loops=5)
    chart = built(run, y=y)
    null = next(line for line in marks(chart, Line) if "null" in line.legend)
    assert null.x.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    full = marks(chart, Rule)[0]
    assert full.at == pytest.approx(float(null.y[-1]))
    assert sum(line.columns["rule"][0] == "fixed_k" for line in marks(chart, Line)) == 1
    oracles = [line for line in marks(chart, Line) if "oracle" in line.legend]
    assert len(oracles) == (y == "cross_entropy")
    if oracles:
        for line in marks(chart, Line):
            assert (line.y >= np.interp(line.x, oracles[0].x, oracles[0].y) - 1e-9).all()


def test_bands_need_five_prompts_and_can_be_left_out() -> None:
    few, many = toy_run(prompts=4), toy_run(prompts=5)
    assert not marks(built(few), Band)
    assert "95 %" not in built(few).caption
    assert len(marks(built(many), Band)) == 2
    assert "95 %" in built(many).caption
    assert not marks(built(many, bands=False), Band)


def test_the_caption_says_how_rules_may_be_compared() -> None:
    chart = built(toy_run(prompts=5))
    assert EQUAL_TERMS in chart.caption
    assert LAST_BLOCK in chart.caption
    assert "coda lens" in chart.caption
    assert "KL of successive readouts" in chart.caption  # its gap
    assert "Nats above the oracle" not in built(toy_run(prompts=4)).caption  # too few prompts rank nothing
    one = toy_run(blocks=1)
    alone = chart_builders()["pareto"]().build(View(run=one, rules=(exit_rules()["kl"](),)))
    assert LAST_BLOCK not in alone.caption


def test_thresholds_below_the_floor_are_ringed_and_the_given_one_is_warned_of() -> None:
    run = toy_run(loops=10)
    coarse = [replace(t, provenance=replace(t.provenance, dtype="bfloat16", noise_floor=6e-2)) for t in run.trajectories]
    chart = built(replace(run, trajectories=tuple(coarse)))
    rings = [mark for mark in marks(chart, Points) if mark.glyph == "hollow" and mark.role.name == "kl"]
    assert (rings[0].columns["threshold"] < 9e-4).all()
    assert any("9e-04" in sentence or "0.0009" in sentence for sentence in chart.warnings)
    assert not marks(built(run), Points)


def test_an_earlier_block_shows_the_last_one_and_says_why() -> None:
    run = toy_run()
    chart = chart_builders()["pareto"]().build(View(run=run, block=0, rules=(exit_rules()["kl"](),)))
    assert any(LAST_BLOCK in sentence for sentence in chart.warnings)
    assert "block h[3]" in chart.title


def test_what_cannot_be_drawn_is_said() -> None:
    kind: Any = chart_builders()["pareto"]
    rules = (exit_rules()["kl"](),)
    with pytest.raises(ChartError, match="loopscope sweep"):
        kind(x="flops").build(View(run=toy_run(), rules=rules))
    with pytest.raises(ChartError, match="at least one"):
        kind().build(View(run=toy_run()))
    with pytest.raises(ChartError, match="at least 2 loops"):
        kind().build(View(run=toy_run(loops=1), rules=rules))


@pytest.mark.parametrize("kind", ["pdf", "svg", "csv"])
def test_it_leaves_as_a_file_and_the_same_twice(kind: Any) -> None:
    run = toy_run(prompts=5)
    assert export(built(run), kind=kind) == export(built(run), kind=kind)
