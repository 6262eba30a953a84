"""The headline: rules meet at equal loops, really stop there, and the README's table is that of the measured file."""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from analysis import headline, headline_plan, study
from analysis.chart import ChartError, chart_rows
from analysis.exit_rule import NEVER, exit_rules, exits, exits_from_scores
from analysis.headline_chart import headline_chart
from analysis.headline_plan import FIXED, FULL, PAPER, Subject, compared_rules, meet, request_for, scores_alone
from analysis.headline_table import Outcome, Record, headline_tables, outcomes, read_csv, to_csv, with_table

ROOT = Path(__file__).resolve().parents[2]
OURO = ROOT / "tests" / "data" / "ouro-real"


@cache
def small() -> headline.Plan:
    """A subject of two short windows, with its thresholds."""
    with np.load(OURO / "golden.npz", allow_pickle=False) as arrays:
        rows = [tuple(int(i) for i in row[:9]) for row in arrays["eval_ids"][:8]]
    subject = Subject("ouro", str(OURO), 4, (3,), calibrate=tuple(rows[:4]), report=tuple(row[:4] for row in rows[6:]))
    return headline.plan(subject, compared_rules())


@cache
def measured() -> dict[str, Record]:
    return dict(headline.measure(small(), {}))


def test_every_rule_meets_the_budget_post_hoc() -> None:
    planned = small()
    assert {setting.name for setting in planned.settings} > {FULL, FIXED, *PAPER}
    request = request_for(planned.subject, planned.subject.calibrate, planned.rules, record_all=True)
    trajectories = study.run(request).trajectories
    for setting in planned.settings:
        for block, rule in enumerate(setting.rules):
            found = exits_from_scores(rule, scores_alone(rule, trajectories, block))
            loops = np.where(found.fired, found.loop, planned.subject.loops)
            assert abs(loops.mean() - setting.budget) <= 0.25, setting


@pytest.mark.parametrize("name", PAPER)
def test_a_rule_that_looks_at_one_token_scores_it_alone_as_among_others(name: str) -> None:
    planned = small()
    request = request_for(planned.subject, planned.subject.calibrate[:1], planned.rules, record_all=True)
    (trajectory,) = study.run(request).trajectories
    rule = next(setting.rules[0] for setting in planned.settings if setting.name == name)
    alone = exits_from_scores(rule, scores_alone(rule, [trajectory], 0))
    assert np.array_equal(alone.loop, exits(rule, trajectory, 0).loop[:-1])


def test_a_budget_that_no_threshold_spends_is_left_out() -> None:
    scores = np.tile(np.array([[np.nan], [3.0], [2.0], [1.0]]), (1, 5))
    rule = exit_rules()["acceleration"]()
    assert meet(rule, scores, budget=2) is None, "two hits need three loops"
    met = meet(rule, scores, budget=4)
    assert met is not None
    assert set(exits_from_scores(met, scores).loop.tolist()) <= {4, NEVER}


def test_it_really_stops_and_counts_what_it_ran() -> None:
    rows = {record.rule: record for record in measured().values()}
    assert set(rows[FULL].loops) == {4.0}
    assert set(rows[FIXED].loops) == {3.0}
    for record in measured().values():
        assert len(record.loss) == len(record.loops) == len(record.milliseconds) == 3
        assert min(record.milliseconds) > 0


def test_full_depth_has_the_cross_entropy_of_a_post_hoc_run() -> None:
    planned = small()
    request = request_for(planned.subject, planned.subject.report, planned.rules, record_all=True)
    for number, trajectory in enumerate(study.run(request).trajectories):
        theirs = -trajectory.blocks[-1].readouts["coda", "log_probability_next"][-1, :-1]
        ours = next(r.loss for r in measured().values() if r.rule == FULL and r.window == number)
        assert np.allclose(ours, theirs, atol=1e-4)


def test_what_is_kept_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    lines = [json.dumps({"key": key, **asdict(record)}) for key, record in measured().items()]
    path.write_text("\n".join(lines) + '\n{"key": "cut o', encoding="utf-8")
    kept = headline.read_kept(path)
    assert kept == measured()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(study, "generate", refuse)
    assert dict(headline.measure(small(), kept)) == measured()


def records(rule: str, budget: int, losses: list[float], *, milliseconds: float) -> list[Record]:
    return [
        Record("m", 8, rule, budget, (0.5,), window, (loss, loss + 1), (3.0, 5.0), (milliseconds, milliseconds))
        for window, loss in enumerate(losses)
    ]


def made() -> tuple[Outcome, ...]:
    harder = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    return outcomes(
        [
            *records("kl", 4, [x + 0.3 for x in harder], milliseconds=6.0),
            *records("acceleration", 4, [x + 0.1 for x in harder], milliseconds=2.0),
            *records(FULL, 8, harder, milliseconds=9.0),
        ]
    )


def test_a_difference_is_taken_window_by_window() -> None:
    kl = next(row for row in made() if row.rule == "kl")
    assert (kl.loops, kl.tokens, kl.windows, kl.milliseconds, kl.time_over_acceleration) == (4.0, 12, 6, 6.0, 3.0)
    assert kl.cross_entropy == pytest.approx(3.3)
    assert [kl.above_full, kl.above_full_lower, kl.above_full_upper] == pytest.approx([0.3] * 3)
    assert [kl.over_acceleration, kl.over_acceleration_lower] == pytest.approx([0.2] * 2)
    words = headline_tables(made(), machine="a machine")
    assert "cross-entropy lower in 1, higher in 0" in words
    assert "3.00 times" in words
    assert "**+0.3000**, 4.00, 6.0 ms" in words


def test_rules_measured_on_different_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="different windows"):
        outcomes([*records(FULL, 8, [1.0, 2.0], milliseconds=1.0), *records("kl", 4, [1.0], milliseconds=1.0)])


def test_the_file_holds_what_was_written() -> None:
    again = read_csv(to_csv(made()))
    assert to_csv(again) == to_csv(made())
    assert [row.rule for row in again] == [row.rule for row in made()]


def test_the_chart_has_a_point_per_budget_in_both_panels() -> None:
    rows = outcomes(
        [
            *records("acceleration", 4, [0.1, 1.1], milliseconds=2.0),
            *records("acceleration", 6, [0.0, 1.0], milliseconds=3.0),
            *records(FULL, 8, [0.0, 1.0], milliseconds=9.0),
        ]
    )
    chart = headline_chart(rows, machine="a machine")
    assert [panel.x.title for panel in chart.panels] == ["mean loops", "time per token"]
    lines = [row for row in chart_rows(chart) if row["mark"] == "line" and row["panel"] == 1]
    assert [(row["budget"], row["x"]) for row in lines] == [(4, 2.0), (6, 3.0)]
    assert [row["y"] for row in lines] == pytest.approx([0.1, 0.0])


def test_a_chart_of_single_budgets_is_refused() -> None:
    with pytest.raises(ChartError, match="two budgets"):
        headline_chart(made(), machine="a machine")


def test_the_readme_says_what_was_measured() -> None:
    docs = ROOT / "docs"
    rows = read_csv((docs / "headline.csv").read_text(encoding="utf-8"))
    machine = (docs / "headline.txt").read_text(encoding="utf-8").strip()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_table(text, rows, machine=machine) == text, "run: make headline"
    assert "make headline" in text
    assert {row.model for row in rows} == {"demo", "huginn-real", "nanoloop-real", "ouro-real"}


def test_a_text_without_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no headline table"):
        with_table("# Another text", made(), machine="")


def test_the_subjects_never_measure_what_they_were_calibrated_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headline_plan, "CORPUS", ROOT / "assets" / "corpus")
    monkeypatch.setattr(headline_plan, "TRAINED", ROOT / "tests" / "data")
    for subject in headline_plan.subjects(demo_windows=3, demo_tokens=8, trained_tokens=8):
        assert not set(subject.calibrate) & set(subject.report)
        assert {len(window) for window in (*subject.calibrate, *subject.report)} == {9}
        assert max(subject.budgets) < subject.loops
