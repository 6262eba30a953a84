"""A threshold in quantiles: the share of scores that stops is the level's, on either stopping side, and links keep it."""

import numpy as np
import pytest

from analysis.candidates import with_threshold
from analysis.exit_rule import exit_rules, on_stopping_side, rule_scores
from analysis.exits.fixed_k import FixedKExit
from analysis.score_levels import HIGHEST, level_of, score_levels, threshold_at
from analysis.thresholds import applied, at_default, ladder, steps_with, threshold_words
from tests.toys import toy_trajectory

RULES = ("step_norm", "acceleration", "kl", "entropy", "top_probability", "top_margin")


@pytest.mark.parametrize("name", RULES)
def test_a_level_stops_that_share_of_the_scores(name: str) -> None:
    rule, runs = exit_rules()[name](), (toy_trajectory(loops=30, tokens=40, seed=3), toy_trajectory(loops=30, tokens=9))
    levels = score_levels(rule, runs, 2)
    scores = np.concatenate([rule_scores(rule, one, 2).ravel() for one in runs])
    scores = scores[np.isfinite(scores)]
    assert len(levels) == HIGHEST + 1
    shares: list[float] = []
    for level in range(HIGHEST + 1):
        there = with_threshold(rule, threshold_at(levels, level))
        shares.append(float(on_stopping_side(there, scores[None]).mean()))
        if len(np.unique(scores)) == len(scores):
            assert shares[-1] == pytest.approx(level / 100, abs=2 / len(scores))
            assert level_of(rule, levels, there.threshold) == level
    assert shares == sorted(shares)


def test_a_threshold_outside_the_scores_has_the_first_or_the_last_level() -> None:
    rule = exit_rules()["step_norm"]()
    levels = score_levels(rule, (toy_trajectory(),), 0)
    assert (level_of(rule, levels, 0.0), level_of(rule, levels, 1e9)) == (0, HIGHEST)
    other = exit_rules()["top_probability"]()
    levels = score_levels(other, (toy_trajectory(),), 0)
    assert (level_of(other, levels, 2.0), level_of(other, levels, 0.0)) == (0, HIGHEST)


def test_without_a_defined_score_there_are_no_levels() -> None:
    assert len(score_levels(exit_rules()["acceleration"](), (toy_trajectory(loops=1),), 0)) == 0


@pytest.mark.parametrize("name", RULES)
def test_an_applied_threshold_reads_back_and_stops_the_same_scores(name: str) -> None:
    rule, run = exit_rules()[name](), toy_trajectory(loops=30, tokens=40)
    scores = rule_scores(rule, run, 2).astype(np.float32).astype(np.float64)
    for score in scores[np.isfinite(scores)][::37].tolist():
        kept = applied(rule, score)
        assert float(threshold_words(kept)) == kept
        found, wanted = (on_stopping_side(with_threshold(rule, value), scores) for value in (kept, score))
        assert np.array_equal(found, wanted)


def test_a_ladder_takes_up_what_was_applied() -> None:
    kind = exit_rules()["step_norm"]
    steps = steps_with(kind, 0.0321712345, None)
    assert set(steps) == {*ladder(kind), 0.0321712345}
    assert list(steps) == sorted(steps)
    assert steps_with(exit_rules()["top_probability"], 0.3) == () or ladder(exit_rules()["top_probability"])
    assert at_default(FixedKExit(threshold=3.0, patience=2)) == FixedKExit(patience=2)
