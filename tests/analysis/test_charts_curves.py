"""The charts over loops and hand-offs by their data: curves, drift, rules and checkpoints."""

import dataclasses

import numpy as np
import pytest

from analysis.caption import movement
from analysis.chart import Bars, ChartError, Line, Points, Rule, View
from analysis.charts.checkpoints import CheckpointsChart
from analysis.charts.curves import CurvesChart
from analysis.charts.drift import DriftChart
from analysis.charts.rule import RuleChart
from analysis.charts.trajectory import TrajectoryChart
from analysis.exits.acceleration import AccelerationExit
from analysis.exits.kl import KLExit
from analysis.exits.step_norm import StepNormExit
from analysis.statistic import statistics
from tests.analysis.chart_marks import alone, inf_run, marks
from tests.toys import toy_run, toy_trajectory


class TestCurves:
    def test_line_and_band_are_percentiles_over_all_tokens_of_all_prompts(self) -> None:
        run = toy_run(prompts=3)
        chart = CurvesChart().build(View(run=run))
        assert len(chart.panels) == 3
        for g in range(3):
            pooled = np.concatenate([trajectory.blocks[g].step_norm for trajectory in run.trajectories], axis=1)
            lower, median, upper = np.percentile(pooled, [25, 50, 75], axis=1)
            band = next(mark for mark in chart.panels[g].marks if type(mark).__name__ == "Band")
            line = marks(chart, Line, panel=g)[0]
            np.testing.assert_allclose(line.y, median)
            np.testing.assert_allclose((band.lower, band.upper), (lower, upper))  # type: ignore[union-attr]
            assert line.columns["tokens"].tolist() == [5 + 6 + 7] * 8
            assert line.x.tolist() == list(range(1, 9))

    @pytest.mark.parametrize(
        ("name", "rings"), [("step_norm", [1]), ("step_cosine", [2]), ("acceleration", [2]), ("state_norm", [])]
    )
    def test_values_that_contain_the_first_step_are_ringed(self, name: str, rings: list[int]) -> None:
        chart = CurvesChart(statistic=name, blocks="selected").build(View(run=toy_run()))
        hollow = [x for mark in marks(chart, Points, glyph="hollow") for x in mark.x]
        assert hollow == rings
        assert chart.panels[0].y.scale == statistics()[name].scale

    def test_trained_depth_is_marked_where_the_axis_reaches_it(self) -> None:  # case S6
        deep, shallow = (CurvesChart().build(View(run=toy_run(loops=loops))) for loops in (12, 4))
        assert [rule.at for rule in marks(deep, Rule, across="vertical")] == [8.0]
        assert not marks(shallow, Rule, across="vertical")
        assert "Training used 8 loops" in shallow.caption

    def test_the_rounding_floor_is_marked_where_the_curve_comes_near_it(self) -> None:
        near = CurvesChart(statistic="relative_step_norm").build(View(run=toy_run(loops=24)))
        far = CurvesChart(statistic="relative_step_norm").build(View(run=toy_run(loops=8)))
        assert [rule.at for rule in marks(near, Rule, across="horizontal")] == [1e-6]
        assert not marks(far, Rule, across="horizontal")
        run = toy_run(prompts=1, loops=24, blocks=1)
        absolute = marks(CurvesChart().build(View(run=run)), Rule, across="horizontal")[0]
        norms = np.median(np.median(run.trajectories[0].blocks[0].state_norm, axis=1))
        assert absolute.at == pytest.approx(1e-6 * norms)

    def test_single_prompts_and_the_selected_token_have_their_own_lines(self) -> None:
        run = toy_run(prompts=2)
        chart = CurvesChart(per_prompt=True, blocks="selected").build(View(run=run, prompt=1, token=5, block=1))
        thin = marks(chart, Line, legend="prompts")[0]
        medians = [np.median(trajectory.blocks[1].step_norm, axis=1) for trajectory in run.trajectories]
        np.testing.assert_allclose(thin.y, [*medians[0], np.nan, *medians[1]])
        own = marks(chart, Line, legend="#5 ·t5")[0]
        np.testing.assert_array_equal(own.y, run.trajectories[1].blocks[1].step_norm[:, 5])

    def test_one_loop_has_no_cosine_and_the_sentence_says_how_many_it_needs(self) -> None:  # case C9
        with pytest.raises(ChartError, match=r"needs at least 2 loops.*K = 1"):
            CurvesChart(statistic="step_cosine").build(View(run=toy_run(loops=1)))

    def test_non_finite_tokens_drop_out_of_the_count(self) -> None:  # case S1
        chart = CurvesChart().build(View(run=inf_run()))
        assert marks(chart, Line)[0].columns["tokens"].tolist() == [4] * 4 + [3] * 4
        assert "non-finite from loop 5" in chart.warnings[0]


class TestDrift:
    def test_bars_are_medians_with_quartiles_and_k_beside_them(self) -> None:
        run = toy_run()
        chart = DriftChart().build(View(run=run, token=1))
        ratios = [
            trajectory.blocks[1].drift_in / trajectory.blocks[0].step_norm[1:].mean(axis=0) for trajectory in run.trajectories
        ]
        lower, median, upper = np.percentile(np.concatenate(ratios), [25, 50, 75])
        bar = marks(chart, Bars)[0]
        assert bar.lower is not None
        assert bar.upper is not None
        np.testing.assert_allclose([bar.lower[0], bar.y[0], bar.upper[0]], [lower, median, upper])
        assert chart.panels[0].x.ticks == ((0.0, "h[1] →\nh[2]\nK = 8"), (1.0, "h[2] →\nh[3]\nK = 8"))
        assert chart.panels[0].y.scale == "linear"
        assert marks(chart, Points)[0].y[0] == pytest.approx(ratios[0][1])

    def test_drift_itself_is_the_jump_into_the_next_block(self) -> None:
        run = toy_run(prompts=1)
        bars = marks(DriftChart(statistic="drift").build(View(run=run)), Bars)
        assert [bar.y[0] for bar in bars] == [np.median(block.drift_in) for block in run.trajectories[0].blocks[1:]]

    def test_bars_that_lie_decades_apart_have_a_log_axis(self) -> None:
        first, second, third = toy_run(prompts=1).trajectories[0].blocks
        third = dataclasses.replace(third, drift_in=third.drift_in * 1000)
        run = alone(dataclasses.replace(toy_trajectory(), blocks=(first, second, third)))
        assert DriftChart(statistic="drift").build(View(run=run)).panels[0].y.scale == "log"

    @pytest.mark.parametrize(("sizes", "says"), [({"blocks": 1}, "one looped block"), ({"loops": 1}, r"\(K = 1\)")])
    def test_a_blank_chart_says_why(self, sizes: dict[str, int], says: str) -> None:
        with pytest.raises(ChartError, match=says):
            DriftChart().build(View(run=toy_run(**sizes)))

    def test_one_blank_hand_off_does_not_hide_the_others(self) -> None:
        short = toy_trajectory(loops=1, blocks=1).blocks[0]
        _, second, third = toy_trajectory().blocks
        run = alone(dataclasses.replace(toy_trajectory(), blocks=(short, second, third)))
        chart = DriftChart().build(View(run=run))
        assert [np.isnan(bar.y[0]) for bar in marks(chart, Bars)] == [True, False]
        assert "Blank: h[1] → h[2]" in chart.caption


class TestRule:
    def test_score_threshold_and_exit(self) -> None:
        rules = (StepNormExit(threshold=1.0), KLExit(threshold=0.05))
        view = View(run=toy_run(prompts=1), token=2, block=1, rules=rules)
        chart = RuleChart().build(view)
        for panel, rule in enumerate(rules):
            scores = rule.scores(view.trajectory, 1)[:, 2]
            line = next(line for line in marks(chart, Line, panel=panel) if line.role.kind == "rule")
            np.testing.assert_array_equal(line.y, scores)
            assert next(iter(marks(chart, Rule, panel=panel, across="horizontal"))).at == rule.threshold
            (exit_mark,) = marks(chart, Points, panel=panel, glyph="exit")
            loop = next(k for k in range(2, 9) if scores[k - 1] < rule.threshold)
            assert (exit_mark.x[0], exit_mark.y[0]) == (loop, scores[loop - 1])
            assert f"exits after {loop} loops" in chart.panels[panel].title
        assert "KL of successive readouts < 0.05 nats (patience 1, from loop 2, logit lens)" in chart.caption
        coda = RuleChart().build(dataclasses.replace(view, block=2))
        assert "from loop 2, coda lens)" in coda.caption

    def test_the_other_tokens_stand_behind_with_gaps(self) -> None:
        view = View(run=toy_run(prompts=1), token=2, rules=(StepNormExit(),))
        (muted,) = [line for line in marks(RuleChart().build(view), Line) if line.role.kind == "muted"]
        norms = view.trajectory.blocks[0].step_norm
        expected = np.concatenate([np.append(norms[:, t], np.nan) for t in (0, 1, 3, 4)])[:-1]
        np.testing.assert_array_equal(muted.y, expected)
        assert not [line for line in marks(RuleChart(others=False).build(view), Line) if line.role.kind == "muted"]

    def test_crossing_back_is_marked(self) -> None:
        trace = toy_trajectory(tokens=1, loops=5, blocks=1).blocks[0]
        trace = dataclasses.replace(trace, step_norm=np.array([[9.0], [0.5], [0.4], [2.0], [0.1]]))
        run = alone(dataclasses.replace(toy_trajectory(tokens=1, blocks=1), blocks=(trace,)))
        chart = RuleChart().build(View(run=run, rules=(StepNormExit(threshold=1.0),)))
        assert [(rule.label, rule.at) for rule in marks(chart, Rule, dash="dot")] == [("crosses back at 4", 4.0)]
        assert "step norm exits after 2 loops and crosses back at 4" in chart.alt

    def test_never_has_no_mark(self) -> None:
        chart = RuleChart().build(View(run=toy_run(), rules=(StepNormExit(threshold=0.0),)))
        assert not marks(chart, Points, glyph="exit")
        assert "never exits" in chart.alt

    def test_no_rule_and_no_defined_score_are_said(self) -> None:
        with pytest.raises(ChartError, match="No exit rule is chosen"):
            RuleChart().build(View(run=toy_run()))
        with pytest.raises(ChartError, match="needs at least 2 loops"):
            RuleChart().build(View(run=toy_run(loops=1), rules=(AccelerationExit(),)))

    def test_non_finite_scores_are_undefined_and_never_fire(self) -> None:  # case S1
        chart = RuleChart().build(View(run=inf_run(), token=2, rules=(StepNormExit(threshold=1e-9),)))
        line = next(line for line in marks(chart, Line) if line.role.kind == "rule")
        assert np.isnan(line.y).tolist() == [False] * 4 + [True] * 4
        assert not marks(chart, Points, glyph="exit")


class TestCheckpoints:
    def test_a_line_per_checkpoint_and_a_panel_per_statistic(self) -> None:
        others = tuple((f"step {i}", toy_run(seed=i, loops=6 + i)) for i in range(3))
        chart = CheckpointsChart().build(View(run=toy_run(), block=1, others=others))
        assert len(chart.panels) == 2
        for panel, name in enumerate(("step_norm", "step_cosine")):
            lines = marks(chart, Line, panel=panel)
            assert [(line.role.kind, line.role.index, line.role.of) for line in lines] == [("series", i, 3) for i in range(3)]
            for line, (_, run) in zip(lines, others, strict=True):
                pooled = np.concatenate([getattr(t.blocks[1], name) for t in run.trajectories], axis=1)
                first = statistics()[name].first_loop - 1
                np.testing.assert_allclose(line.y[first:], np.median(pooled[first:], axis=1))
        assert [line.legend for line in marks(chart, Line)] == ["step 0", "step 1", "step 2"]
        assert [line.legend for line in marks(chart, Line, panel=1)] == ["", "", ""]

    def test_nothing_to_compare_with_is_said(self) -> None:
        with pytest.raises(ChartError, match="no other checkpoints"):
            CheckpointsChart().build(View(run=toy_run()))
        few = (("step 0", toy_run(blocks=1)),)
        with pytest.raises(ChartError, match="has a looped block 2"):
            CheckpointsChart().build(View(run=toy_run(), block=2, others=few))
        with pytest.raises(ChartError, match="No statistic"):
            CheckpointsChart(statistics=()).build(View(run=toy_run(), others=few))

    def test_a_panel_without_values_is_left_out(self) -> None:
        short = (("step 0", toy_run(loops=1)),)
        chart = CheckpointsChart().build(View(run=toy_run(), others=short))
        assert [panel.title for panel in chart.panels] == ["step norm"]
        with pytest.raises(ChartError, match="at least 2 loops"):
            CheckpointsChart(statistics=("step_cosine",)).build(View(run=toy_run(), others=short))


class TestWords:
    def test_blocks_of_different_depth_are_named_with_their_own_k(self) -> None:
        short = toy_trajectory(loops=1, blocks=1).blocks[0]
        _, second, third = toy_trajectory().blocks
        run = alone(dataclasses.replace(toy_trajectory(), blocks=(short, second, third)))
        chart = CurvesChart(statistic="step_cosine").build(View(run=run))
        assert [panel.title for panel in chart.panels] == ["h[2]", "h[3]"]
        assert "Blank for block h[1]: too few loops." in chart.caption
        assert "K = 1 (h[1]), 8 (h[2]), 8 (h[3])" in TrajectoryChart().build(View(run=run)).title

    def test_an_unknown_trained_depth_is_not_mentioned(self) -> None:
        toy = toy_trajectory()
        live = dataclasses.replace(toy, provenance=dataclasses.replace(toy.provenance, loops_trained=None, mode="live"))
        chart = CurvesChart().build(View(run=alone(live)))
        assert "Training used" not in chart.caption
        assert "live (the loop really stopped)" in chart.caption
        assert not marks(chart, Rule, across="vertical")

    def test_a_rule_without_its_readout_is_a_warning_beside_others_and_an_error_alone(self) -> None:
        trajectory = toy_trajectory()
        bare = tuple(dataclasses.replace(block, readouts={}) for block in trajectory.blocks)
        run = alone(dataclasses.replace(trajectory, blocks=bare))
        both = TrajectoryChart().build(View(run=run, rules=(KLExit(), StepNormExit(threshold=1.0))))
        assert len([warning for warning in both.warnings if "--lens" in warning]) == 3
        assert [mark.role.name for mark in marks(both, Points, glyph="exit")] == ["step_norm"]
        with pytest.raises(ChartError, match="run again with a lens"):
            RuleChart().build(View(run=run, rules=(KLExit(),)))

    def test_hand_offs_without_a_finite_value_say_so(self) -> None:
        trajectory = toy_trajectory(blocks=2)
        first, second = trajectory.blocks
        second = dataclasses.replace(second, drift_in=np.full(5, np.nan))
        with pytest.raises(ChartError, match="no token has a finite value"):
            DriftChart().build(View(run=alone(dataclasses.replace(trajectory, blocks=(first, second)))))

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ([np.nan, 2.0, 1.0], "falls from 2 to 1 (loops 2 to 3)"),
            ([1.0, 2.0], "rises from 1 to 2 (loops 1 to 2)"),
            ([1.0, 5.0, 1.0], "stays, all in all, at 1 (loops 1 to 3)"),
            ([np.nan, 3.0], "is 3 (loop 2)"),
            ([np.nan], "is undefined"),
        ],
    )
    def test_movement(self, values: list[float], words: str) -> None:
        assert movement(np.array(values)) == words
