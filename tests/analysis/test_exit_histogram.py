"""The exit histogram counts every defined token once; calibration of several rules; rows of a point and of a live run."""

import numpy as np
import pytest

from analysis.aim import aim, goal_of, halves
from analysis.candidates import with_threshold
from analysis.chart import Bars, ChartError, View
from analysis.charts.exit_histogram import ExitHistogramChart
from analysis.exit_rule import NEVER, default_rules, exit_rules, exits
from analysis.goal import Budget, Quality
from analysis.needs import lenses_of, quantities_of
from analysis.points import POINT_HEADER, point_rows
from analysis.sweep import sweep
from analysis.texts import bundled_text, window_length
from tests.toys import toy_run, toy_trajectory


def test_every_token_of_all_prompts_is_in_one_bar_or_never() -> None:
    run = toy_run(prompts=3, loops=9)
    rules = tuple(kind() for kind in default_rules().values())
    chart = ExitHistogramChart().build(View(run=run, block=2, rules=rules))
    assert len(chart.panels) == len(rules)
    for panel, rule in zip(chart.panels, rules, strict=True):
        bars = next(mark for mark in panel.marks if isinstance(mark, Bars))
        loop = np.concatenate([exits(rule, trajectory, 2).loop for trajectory in run.trajectories])
        counts = [int((loop == k).sum()) for k in range(1, 10)] + [int((loop == NEVER).sum())]
        assert bars.y.tolist() == counts
        assert bars.columns["exit_loop"].tolist() == [*map(str, range(1, 10)), "never"]
        assert set(bars.columns["rule"].tolist()) == {rule.name}


def test_a_rule_that_never_fires_has_one_bar_and_undefined_tokens_are_said() -> None:
    run = toy_run(prompts=1, loops=6, tokens=5)
    never = with_threshold(exit_rules()["step_norm"](), 0.0)
    chart = ExitHistogramChart().build(View(run=run, block=0, rules=(never,)))
    bars = next(mark for mark in chart.panels[0].marks if isinstance(mark, Bars))
    assert bars.y.tolist() == [0.0] * 6 + [5.0]
    assert "no exit, 5 tokens never" in chart.alt
    short = toy_run(prompts=1, loops=1, tokens=5)
    chart = ExitHistogramChart().build(View(run=short, block=0, rules=(exit_rules()["acceleration"](),)))
    assert "Undefined, in no bar: acceleration 5 tokens." in chart.caption


def test_without_rules_or_readouts_the_histogram_says_what_to_do() -> None:
    with pytest.raises(ChartError, match="choose at least one"):
        ExitHistogramChart().build(View(run=toy_run()))
    with pytest.raises(ChartError, match="--record min_p_kl"):
        ExitHistogramChart().build(View(run=toy_run(), rules=(exit_rules()["min_p_kl"](),)))


def test_several_rules_are_calibrated_and_one_that_lacks_a_readout_is_named() -> None:
    runs = [toy_trajectory(loops=10, tokens=12, seed=seed) for seed in range(5)]
    first, second = halves(runs)
    assert (len(first), len(second)) == (3, 2)
    rules = [*(kind() for kind in default_rules().values()), exit_rules()["min_p_kl"]()]
    found = aim(rules, first, second, 2, goal=goal_of("budget", percent=0.0, loops=5.0))
    assert found.goal == Budget(5.0)
    assert [one.rule.name for one in found.reached] == list(default_rules())
    for one in found.reached:
        assert one.calibration is not None
        assert one.calibration.mean_loops <= 5.0
        assert one.held_out is not None
        assert one.held_out.rule == one.calibration.rule
    assert len(found.missing) == 1
    assert "min_p_kl" in found.missing[0]
    assert goal_of("quality", percent=0.5, loops=0.0) == Quality(0.005)
    assert halves(runs[:1]) == ((runs[0],), ())


def test_a_request_asks_for_what_the_rules_read() -> None:
    kinds = exit_rules()
    assert quantities_of([kinds["kl"](), kinds["step_norm"]()]) == ()
    assert quantities_of([kinds["min_p_kl"](), kinds["adapted_acceleration"]()]) == ("adapted_input", "min_p_kl")
    assert quantities_of([kinds["kl"](**{"direction": "reverse", "first_loop": "uniform"})]) == ("kl_reverse", "kl_uniform")
    assert lenses_of([kinds["kl"]()], last=True) == ("coda",)
    assert lenses_of([kinds["kl"]()], last=False) == ("logit",)
    assert lenses_of([kinds["kl"](**{"lens": "logit"})], last=True) == ("logit", "coda")


def test_a_text_gives_several_windows_none_longer_than_the_context() -> None:
    assert [window_length(tokens, context=128) for tokens in (1024, 16, 100, 100_000)] == [128, 2, 12, 128]
    assert len(bundled_text("report")) > 10_000
    assert bundled_text("report") != bundled_text("calibrate")


def test_a_point_reads_as_its_numbers_and_undefined_ones_are_empty() -> None:
    runs = [toy_trajectory(loops=8, tokens=8, seed=seed) for seed in range(6)]
    one = sweep([exit_rules()["step_norm"]()], runs, 2)[0]
    row = dict(zip(POINT_HEADER, point_rows(one, 2), strict=True))
    point = one.points[2]
    assert float(row["threshold"]) == pytest.approx(point.rule.threshold, rel=1e-5)
    assert float(row["mean loops"]) == pytest.approx(point.mean_loops, abs=5e-4)
    assert row["mean loops, 95 %"] == f"{one.mean_loops[0, 2]:.3f} to {one.mean_loops[1, 2]:.3f}"
    assert row["operations"] == ""  # nothing tells what the loops cost
    few = sweep([exit_rules()["step_norm"]()], runs[:2], 2)[0]
    assert dict(zip(POINT_HEADER, point_rows(few, 0), strict=True))["above full depth, 95 %"] == ""
