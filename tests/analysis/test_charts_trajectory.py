"""The trajectory chart by its data: iterates, hand-offs, exits, gaps, arrowheads, and what it leaves out."""

import dataclasses
from typing import Literal

import numpy as np
import pytest

from analysis import paths
from analysis.chart import Arrows, Camera, ChartError, Line, Points, View, chart_rows
from analysis.charts.trajectory import TrajectoryChart
from analysis.exits.step_norm import StepNormExit
from analysis.projection import ProjectionError, gather
from analysis.projections.pca import PCA
from tests.analysis.chart_marks import alone, inf_run, marks
from tests.toys import toy_run, toy_trajectory


class TestPaths:
    def test_gaps_stand_where_an_owner_changes(self) -> None:
        order = paths.gapped(np.array([0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1]))
        assert order.tolist() == [0, 1, -1, 2, -1, 3, 4]
        drawn = paths.coordinates(np.arange(5.0), order)
        np.testing.assert_array_equal(drawn, [0, 1, np.nan, 2, np.nan, 3, 4])
        assert paths.columns({"k": np.arange(5)}, order)["k"].tolist() == [0, 1, 1, 2, 2, 3, 4]

    def test_nothing_gives_nothing(self) -> None:
        order = paths.gapped(np.array([], dtype=np.int64))
        assert paths.coordinates(np.empty(0), order).shape == (0,)

    def test_long_segments_are_the_longest_and_never_cross_a_gap(self) -> None:
        points = np.array([[0.0, 0], [1, 0], [1.01, 0], [9, 0], [6, 0]])
        order = paths.gapped(np.array([0, 0, 0, 1, 1]))
        assert paths.long_segments(points, order, share=0.04, most=9).tolist() == [[0, 1], [3, 4]]
        assert paths.long_segments(points, order, share=0.04, most=1).tolist() == [[3, 4]]


class TestTrajectory:
    def test_points_stand_at_the_projected_iterates(self) -> None:
        view = View(run=toy_run(prompts=1))
        chart = TrajectoryChart().build(view)
        points = gather(view.trajectory, (0, 1, 2))
        expected = PCA().project(points, dims=2).coordinates
        ends = marks(chart, Points, glyph="end")[0]
        last = points.loop == 8
        np.testing.assert_allclose(np.column_stack([ends.x, ends.y]), expected[last])
        assert ends.columns["position"].tolist() == points.position[last].tolist()
        discs = marks(chart, Points, glyph="loop")[0]
        assert discs.value is not None
        assert sorted(set(discs.value)) == [1, 2, 3, 4, 5, 6, 7]
        assert len(marks(chart, Points, glyph="start")[0].x) == 15
        assert chart.panels[0].equal

    def test_one_line_per_block_holds_all_tokens(self) -> None:
        chart = TrajectoryChart().build(View(run=toy_run(prompts=1)))
        lines = marks(chart, Line, dash="solid")
        assert [line.legend for line in lines] == ["h[1]", "h[2]", "h[3]"]
        assert all(np.isnan(line.x).sum() == 4 and len(line.x) == 5 * 9 + 4 for line in lines)

    def test_hand_offs_join_the_last_iterate_to_the_first_of_the_next_block(self) -> None:
        chart = TrajectoryChart().build(View(run=toy_run(prompts=1)))
        (line,) = marks(chart, Line, dash="dash")
        at = {
            (row["block"], row["position"], row["loop"]): (row["x"], row["y"])
            for row in chart_rows(chart)
            if row["mark"] == "points"
        }
        assert line.legend == "hand-off"
        assert np.isnan(line.x[2::3]).all()
        for i in range(0, len(line.x), 3):
            block, position = line.columns["block"][i], int(line.columns["position"][i])
            following = {"h[1]": "h[2]", "h[2]": "h[3]"}[block]
            assert (line.x[i], line.y[i]) == at[block, position, 8]
            assert (line.x[i + 1], line.y[i + 1]) == at[following, position, 1]
        assert len(line.x) == 10 * 3 - 1

    def test_exit_marks_stand_at_the_iterate_after_which_the_rule_fires(self) -> None:
        rule = StepNormExit(threshold=1.0)
        view = View(run=toy_run(prompts=1), rules=(rule,))
        chart = TrajectoryChart().build(view)
        (mark,) = marks(chart, Points, glyph="exit")
        everywhere = [row for row in chart_rows(chart) if row["mark"] == "points" and row["legend"] != mark.legend]
        assert len(mark.x) == 15
        for i in range(15):
            g = ["h[1]", "h[2]", "h[3]"].index(mark.columns["block"][i])
            norms = view.trajectory.blocks[g].step_norm[:, mark.columns["position"][i]]
            first = next(k for k in range(2, 9) if norms[k - 1] < 1.0)
            assert mark.columns["loop"][i] == mark.columns["exit_loop"][i] == first
            same = [row for row in everywhere if (row["x"], row["y"]) == (mark.x[i], mark.y[i])]
            assert [(row["block"], row["loop"]) for row in same] == [(mark.columns["block"][i], first)]
        assert mark.role.name == "step_norm"
        assert "step norm < 1 (patience 1, from loop 2)" in chart.caption

    def test_a_selected_token_is_drawn_fully_and_the_others_muted(self) -> None:
        chart = TrajectoryChart().build(View(run=toy_run(prompts=1), token=3, loop=2))
        assert {int(p) for mark in marks(chart, Points) for p in mark.columns["position"]} == {3}
        muted = [line for line in marks(chart, Line) if line.role.kind == "muted"]
        assert set(muted[0].columns["position"].tolist()) == {0, 1, 2, 4}
        ring = marks(chart, Points, glyph="hollow")[0]
        assert ring.columns["loop"].tolist() == [2, 2, 2]
        only = TrajectoryChart(show="selected").build(View(run=toy_run(prompts=1), token=3))
        assert {line.role.kind for line in marks(only, Line)} == {"block", "ink"}

    def test_fitting_on_one_token_equals_gathering_that_token(self) -> None:
        view = View(run=toy_run(prompts=1), token=1)
        expected = PCA().project(gather(view.trajectory, (0, 1, 2), positions=(1,)), dims=2)
        for chart in (
            TrajectoryChart(fit="token").build(view),
            TrajectoryChart(fit="chosen", chosen=(1,)).build(view),
            TrajectoryChart(fit="token", show="selected").build(view),
        ):
            assert chart.panels[0].x.title == expected.axis_titles[0]
            assert "fitted on #1" in chart.caption
            first = marks(chart, Line, legend="h[1]")[0]
            np.testing.assert_allclose(first.x, expected.coordinates[:9, 0])

    def test_chosen_tokens_must_be_chosen(self) -> None:
        with pytest.raises(ChartError, match="none is chosen"):
            TrajectoryChart(fit="chosen").build(View(run=toy_run()))

    def test_hidden_starts_change_nothing_else(self) -> None:
        shown, hidden = (TrajectoryChart(show_start=s).build(View(run=toy_run(prompts=1))) for s in (True, False))
        assert not marks(hidden, Points, glyph="start")
        assert hidden.panels[0].x.title == shown.panels[0].x.title
        np.testing.assert_array_equal(marks(hidden, Points, glyph="end")[0].x, marks(shown, Points, glyph="end")[0].x)
        assert "not drawn" in hidden.caption

    def test_three_dimensions_have_a_camera_and_no_arrows(self) -> None:
        view = View(run=toy_run(prompts=1))
        flat, solid = (
            TrajectoryChart().build(view),
            TrajectoryChart(dims=3, camera=Camera(azimuth=120.0, elevation=10.0)).build(view),
        )
        assert marks(flat, Arrows)
        assert not marks(solid, Arrows)
        assert solid.camera == Camera(azimuth=120.0, elevation=10.0)
        assert flat.camera is None
        assert all(mark.z is not None and len(mark.z) == len(mark.x) for mark in (*marks(solid, Line), *marks(solid, Points)))

    def test_arrowheads_follow_the_segments(self) -> None:
        chart = TrajectoryChart().build(View(run=toy_run(prompts=1, blocks=1)))
        (arrows,), (line,) = marks(chart, Arrows), marks(chart, Line)
        at = {
            (int(p), int(k)): i
            for i, (p, k) in enumerate(zip(line.columns["position"], line.columns["loop"], strict=True))
            if not np.isnan(line.x[i])
        }
        for i in range(len(arrows.x)):
            position, loop = int(arrows.columns["position"][i]), int(arrows.columns["loop"][i])
            tail, head = at[position, loop - 1], at[position, loop]
            assert (arrows.x[i], arrows.y[i]) == (line.x[tail], line.y[tail])
            np.testing.assert_allclose([arrows.dx[i], arrows.dy[i]], [line.x[head] - line.x[tail], line.y[head] - line.y[tail]])

    @pytest.mark.parametrize("dims", [2, 3])
    def test_states_on_a_line_are_spread_along_their_loops(self, dims: Literal[2, 3]) -> None:
        chart = TrajectoryChart(dims=dims).build(View(run=toy_run(prompts=1, loops=2, tokens=1, blocks=1)))
        panel = chart.panels[0]
        assert (panel.y.title, panel.z, panel.equal, chart.camera) == ("loop k", None, False, None)
        assert marks(chart, Line)[0].y.tolist() == [0, 1, 2]
        assert any("1 dimension only" in warning for warning in chart.warnings)

    def test_left_out_tokens_are_said(self) -> None:
        chart = TrajectoryChart(leave_out=(0,)).build(View(run=toy_run(prompts=1), token=0))
        assert "1 token left out (#0)" in chart.caption
        assert any("selected token #0" in warning for warning in chart.warnings)
        with pytest.raises(ProjectionError, match="No token is left"):
            TrajectoryChart(leave_out=(0, 1, 2, 3, 4)).build(View(run=toy_run(prompts=1)))

    def test_thinned_states_mark_only_stored_exits_and_loops(self) -> None:
        trace = toy_run(prompts=1, blocks=1).trajectories[0].blocks[0]
        kept = np.array([0, 1, 4, 8])
        thin = dataclasses.replace(trace, loop_index=kept, states=trace.states[kept])
        run = alone(dataclasses.replace(toy_trajectory(blocks=1), blocks=(thin,)))
        rule = StepNormExit(threshold=1e9, minimum_loops=3)
        chart = TrajectoryChart().build(View(run=run, loop=3, rules=(rule,)))
        assert not marks(chart, Points, glyph="exit")
        assert any("Loop 3 has no stored state" in warning for warning in chart.warnings)
        stored = TrajectoryChart().build(View(run=run, rules=(dataclasses.replace(rule, minimum_loops=4),)))
        assert len(marks(stored, Points, glyph="exit")[0].x) == 5

    def test_non_finite_states_are_left_out_and_said(self) -> None:  # case S1
        chart = TrajectoryChart().build(View(run=inf_run()))
        (line,) = marks(chart, Line)
        own = line.columns["loop"][(line.columns["position"] == 2) & ~np.isnan(line.x)]
        assert own.tolist() == [0, 1, 2, 3, 4]
        assert len(line.columns["loop"][(line.columns["position"] == 1) & ~np.isnan(line.x)]) == 9
        assert chart.warnings == ("Block h[1]: non-finite from loop 5, token #2 (·t2).",)
        assert "4 non-finite states left out" in chart.caption
        assert set(marks(chart, Points, glyph="end")[0].columns["position"].tolist()) == {0, 1, 3}
