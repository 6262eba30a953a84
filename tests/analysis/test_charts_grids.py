"""The token by loop charts by their data: distances, exits on them, and what the model says."""

import dataclasses

import numpy as np
import pytest

from analysis.chart import ChartError, Heatmap, Points, Rule, View
from analysis.charts.heatmap import HeatmapChart
from analysis.charts.says import SaysChart
from analysis.exit_rule import MissingReadout
from analysis.exits.acceleration import AccelerationExit
from analysis.exits.step_norm import StepNormExit
from tests.analysis.chart_marks import alone, inf_run, marks
from tests.toys import spiral, toy_block, toy_run, toy_trajectory


class TestHeatmap:
    def test_cells_are_log_distances_to_the_last_iterate(self) -> None:
        view = View(run=toy_run(prompts=1), block=1)
        (heat,) = marks(HeatmapChart().build(view), Heatmap)
        states = view.trajectory.blocks[1].states.astype(np.float64)
        expected = np.log10(np.linalg.norm(states[1:-1] - states[-1], axis=2))
        np.testing.assert_allclose(heat.values[:-1], expected)
        assert np.isnan(heat.values[-1]).all()
        assert heat.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert heat.columns["loop"].reshape(heat.values.shape)[:, 0].tolist() == heat.y.tolist()
        np.testing.assert_allclose(heat.columns["distance_to_last"].reshape(heat.values.shape)[:-1], 10**expected)

    def test_exit_marks_stand_at_token_and_loop_and_never_has_none(self) -> None:
        view = View(run=toy_run(prompts=1), rules=(AccelerationExit(threshold=0.5), StepNormExit(threshold=0.0)))
        chart = HeatmapChart().build(view)
        (mark,) = marks(chart, Points, glyph="exit")
        values = view.trajectory.blocks[0].acceleration
        first = [next(k for k in range(3, 9) if values[k - 1, t] < 0.5 and values[k - 2, t] < 0.5) for t in range(5)]
        assert mark.role.name == "acceleration"
        assert mark.x.tolist() == [0, 1, 2, 3, 4]
        assert mark.y.tolist() == first
        np.testing.assert_array_equal(mark.columns["score"], values[np.array(first) - 1, np.arange(5)])

    def test_repeated_tokens_keep_a_column_each(self) -> None:
        run = alone(toy_trajectory(labels=("·the", "·the", "a", "·the", "b")))
        chart = HeatmapChart().build(View(run=run))
        assert chart.panels[0].x.ticks == ((0.0, "·the"), (1.0, "·the"), (2.0, "a"), (3.0, "·the"), (4.0, "b"))
        assert marks(chart, Heatmap)[0].values.shape == (8, 5)

    def test_other_statistics_and_their_scales(self) -> None:
        view = View(run=toy_run(prompts=1), loop=2, token=1)
        norm = marks(HeatmapChart(statistic="step_norm").build(view), Heatmap)[0]
        np.testing.assert_allclose(norm.values, np.log10(view.trajectory.blocks[0].step_norm))
        flipped = toy_run(prompts=1, blocks=1).trajectories[0].blocks[0]
        flipped = dataclasses.replace(flipped, step_cosine=-flipped.step_cosine)
        run = alone(dataclasses.replace(toy_trajectory(blocks=1), blocks=(flipped,)))
        cosine = marks(HeatmapChart(statistic="step_cosine").build(View(run=run)), Heatmap)[0]
        assert cosine.palette == "diverging"
        assert cosine.limits is not None
        assert cosine.limits[0] == -cosine.limits[1]
        assert np.isnan(cosine.values[0]).all()
        lines = {(rule.across, rule.at) for rule in marks(HeatmapChart().build(view), Rule)}
        assert lines == {("horizontal", 8.0), ("horizontal", 2.0), ("vertical", 1.0)}

    def test_an_exact_zero_keeps_its_value_and_is_said(self) -> None:
        states = spiral(loops=4, tokens=2, width=3, seed=0)
        states[3] = states[4]
        run = alone(dataclasses.replace(toy_trajectory(tokens=2, blocks=1), blocks=(toy_block(states),)))
        chart = HeatmapChart().build(View(run=run))
        (heat,) = marks(chart, Heatmap)
        assert heat.columns["distance_to_last"].reshape(4, 2)[2].tolist() == [0, 0]
        assert heat.values[2].tolist() == [np.nanmin(heat.values)] * 2
        assert "2 values of exactly 0" in chart.caption

    def test_a_thinned_run_has_rows_for_stored_loops_only(self) -> None:
        trace = toy_run(prompts=1, blocks=1).trajectories[0].blocks[0]
        kept = np.array([0, 1, 4, 8])
        thin = dataclasses.replace(trace, loop_index=kept, states=trace.states[kept])
        chart = HeatmapChart().build(View(run=alone(dataclasses.replace(toy_trajectory(blocks=1), blocks=(thin,)))))
        assert marks(chart, Heatmap)[0].y.tolist() == [1, 4, 8]
        assert "Only loops whose state is stored" in chart.caption

    def test_non_finite_tokens_are_blank_from_there_on(self) -> None:  # case S1
        chart = HeatmapChart(statistic="step_norm").build(View(run=inf_run(), rules=(StepNormExit(threshold=1e-9),)))
        (heat,) = marks(chart, Heatmap)
        assert np.isnan(heat.values[:, 2]).tolist() == [False] * 4 + [True] * 4
        assert not np.isnan(heat.values[:, [0, 1, 3]]).any()
        assert "non-finite from loop 5, token #2" in chart.warnings[0]
        assert not marks(chart, Points, glyph="exit")

    @pytest.mark.parametrize(("name", "says"), [("nothing", "is unknown"), ("drift", "per hand-off, not per loop")])
    def test_a_wrong_statistic_is_refused_with_those_that_exist(self, name: str, says: str) -> None:
        with pytest.raises(ChartError, match=f"{says}.*step_norm"):
            HeatmapChart(statistic=name).build(View(run=toy_run()))


class TestSays:
    def test_cells_hold_the_first_choice_and_its_probability(self) -> None:
        view = View(run=toy_run(prompts=1), block=2)
        chart = SaysChart().build(view)
        (heat,) = marks(chart, Heatmap)
        readouts = view.trajectory.blocks[2].readouts
        assert heat.text is not None
        assert heat.text.tolist() == [[f"w{i}" for i in row] for row in readouts["coda", "top10_id"][:, :, 0]]
        np.testing.assert_array_equal(heat.values, readouts["coda", "top10_probability"][:, :, 0].astype(np.float64))
        assert (heat.palette, heat.limits) == ("probability", (0.0, 1.0))
        assert heat.columns["next"].reshape(8, 5)[0].tolist() == ["·t1", "·t2", "·t3", "·t4", ""]
        fifth = readouts["coda", "top10_id"][3, 1, 4]
        assert heat.columns["top5"].reshape(8, 5)[3, 1] == f"w{fifth}"
        assert "coda lens" in chart.caption

    def test_lens_is_chosen_and_a_missing_one_is_explained(self) -> None:
        logit = SaysChart(lens="logit").build(View(run=toy_run(), block=2))
        assert "logit lens" in logit.title
        assert "logit lens" in SaysChart().build(View(run=toy_run(), block=0)).title
        with pytest.raises(MissingReadout, match=r"last looped block only.*--lens coda"):
            SaysChart(lens="coda").build(View(run=toy_run(), block=0))

    def test_window_and_unknown_ids(self) -> None:
        trajectory = dataclasses.replace(toy_trajectory(), vocabulary={})
        chart = SaysChart(window=(1, 3)).build(View(run=alone(trajectory)))
        (heat,) = marks(chart, Heatmap)
        assert heat.x.tolist() == [1, 2]
        assert heat.text is not None
        assert heat.text[0, 0] == f"#{trajectory.blocks[0].readouts['logit', 'top10_id'][0, 1, 0]}"
        with pytest.raises(ChartError, match="tokens 0 to 4"):
            SaysChart(window=(7, 9)).build(View(run=alone(trajectory)))
