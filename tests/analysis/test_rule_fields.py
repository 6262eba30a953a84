"""Settings of exit rules: what is refused and in which words, what old links hold, and rules that too few loops disable."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.candidates import exit_loops, score_quantiles, with_threshold
from analysis.exit_rule import ExitRule, exit_rules, exits, exits_from_scores
from analysis.rule_fields import never_words
from analysis.thresholds import applied, ladder, threshold_words
from tests import contracts
from tests.toys import toy_trajectory

NAMES = tuple(exit_rules())
COUNTS = [name for name in NAMES if exit_rules()[name].unit == "loops"]


def made(name: str, **fields: Any) -> ExitRule:
    kind: Any = exit_rules()[name]
    return kind(**fields)


@pytest.mark.parametrize(
    ("name", "threshold", "sentence"),
    [
        ("kl", -1.0, "The threshold of kl is -1; its score is never below 0, so give a finite number of at least 0."),
        ("kl", float("inf"), "The threshold of kl is inf; its score is never below 0, so give a finite number of at least 0."),
        ("top_probability", 7.0, "is 7; its score lies between 0 and 1, so give a number from 0 to 1."),
        ("learned_gate", 1.5, "is 1.5; its score lies between 0 and 1, so give a number from 0 to 1."),
        ("state_cosine", 2.1, "is 2.1; its score lies between 0 and 2, so give a number from 0 to 2."),
        ("fixed_k", 2.5, "is 2.5; it counts loops, so give a whole number of at least 1."),
        ("fixed_k", 0.0, "is 0; it counts loops, so give a whole number of at least 1."),
        ("oracle_argmax", 0.5, "is 0.5; it counts loops, so give a whole number of at least 0."),
    ],
)
def test_an_odd_threshold_is_refused_in_one_sentence(name: str, threshold: float, sentence: str) -> None:
    with pytest.raises(ValueError, match="threshold") as refused:
        made(name, threshold=threshold)
    assert str(refused.value).endswith(sentence)


def test_a_signed_score_says_so_and_keeps_its_thresholds() -> None:
    signed: Any = type("Signed", (exit_rules()["step_norm"],), {"lowest": -float("inf")})
    assert signed(threshold=-3.5).threshold == -3.5
    with pytest.raises(ValueError, match="give a finite number"):
        signed(threshold=-float("inf"))


@pytest.mark.parametrize("name", COUNTS)
def test_a_mean_of_counts_may_be_compared_with_a_broken_number(name: str) -> None:
    assert made(name, threshold=2.5, scope="sequence").threshold == 2.5


@pytest.mark.parametrize(
    ("name", "threshold"),
    [
        ("fixed_k", 16.0000019),
        ("argmax_stable", 15.0000009),
        ("oracle_argmax", 16.0000019),
        ("oracle_cross_entropy", -1.40129846e-45),
        ("top_probability", 1.00000011),
        ("acceleration_over_peak", 1.00000011),
    ],
)
def test_thresholds_of_older_links_are_still_taken(name: str, threshold: float) -> None:
    rule = made(name, threshold=threshold)
    assert made(name, threshold=float(threshold_words(threshold))) == rule


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1000), points=st.integers(2, 9), ends=st.booleans())
def test_every_candidate_is_a_threshold_that_the_rule_takes_and_a_link_keeps(
    name: str, seed: int, points: int, ends: bool
) -> None:
    rule, generator = made(name), np.random.default_rng(seed)
    top = min(rule.highest, 20.0)
    scores = generator.uniform(rule.lowest, top, size=(9, 5)).astype(np.float32).astype(np.float64)
    scores = scores.round() if name in COUNTS else scores
    if ends:
        scores[0, 0], scores[-1, 0] = rule.lowest, top
    found = score_quantiles(rule, scores, points=points)
    assert (found >= rule.lowest).all()
    assert np.array_equal(found, found.round()) or name not in COUNTS
    for threshold in found.tolist():
        exact = with_threshold(rule, threshold)
        kept = with_threshold(rule, float(threshold_words(applied(rule, threshold))))
        assert np.array_equal(exits_from_scores(exact, scores).loop, exits_from_scores(kept, scores).loop)
    loops = exit_loops(rule, scores, found)
    assert (loops[0] != -1).all()  # the loosest lets all tokens go
    assert (loops[-1] == -1).all() or (ends and rule.stops == "<=")  # the strictest none, an oracle but its optimum


@pytest.mark.parametrize("name", NAMES)
def test_every_step_of_a_slider_is_taken(name: str) -> None:
    kind = exit_rules()[name]
    for step in ladder(kind):
        assert made(name, threshold=step).threshold == step


def easy(kind: Any) -> float:
    """A threshold that any score passes."""
    return float(min(kind.highest * 1.0001, 1e6) if kind.stops in ("<", "<=") else kind.lowest)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("patience", "minimum"), [(1, 1), (1, 4), (2, 2), (3, 1), (6, 2)])
def test_no_rule_fires_before_the_loop_that_it_names_and_each_can_there(name: str, patience: int, minimum: int) -> None:
    rule = made(name, threshold=easy(exit_rules()[name]), patience=patience, minimum_loops=minimum)
    for loops in range(1, 10):
        trajectory = contracts.with_all_quantities(toy_trajectory(loops=loops, tokens=3, blocks=1))
        fired = exits(rule, trajectory, 0).fired
        assert fired.any() == (loops >= rule.fires_from()), loops
        assert bool(never_words(rule, trajectory, (0,))) == (loops < rule.fires_from())


def test_rules_that_count_loops_name_the_count() -> None:
    for name, counts in (("fixed_k", np.arange(1.0, 20)), ("argmax_stable", np.arange(19.0))):
        for threshold, patience in ((5.0, 1), (5.0, 3), (1.0, 1)):
            rule = made(name, threshold=threshold, patience=patience, minimum_loops=1)
            assert exits_from_scores(rule, counts[:, None]).loop[0] == rule.fires_from()


def words(name: str, loops: int, **fields: Any) -> tuple[str, ...]:
    return never_words(made(name, **fields), toy_trajectory(loops=loops, tokens=2, blocks=2), (0, 1))


def test_the_words_name_the_setting_that_is_in_the_way() -> None:
    assert words("step_norm", 16) == ()
    assert words("step_norm", 16, patience=20) == ("step norm can never fire here: patience 20 exceeds the 16 loops.",)
    assert words("step_norm", 5, minimum_loops=6) == ("step norm can never fire here: minimum loops 6 exceed the 5 loops.",)
    assert words("fixed_k", 7) == ("fixed k can never fire here: it needs at least 8 loops, and the run has 7 loops.",)
    assert words("acceleration", 2) == (
        "acceleration can never fire here: it needs at least 3 loops, and the run has 2 loops.",
    )
    assert words("acceleration", 1) == (
        "acceleration is undefined here: its first score is that of loop 2, and the run has 1 loop.",
    )
    assert words("kl", 1, first_loop="uniform", minimum_loops=1) == ()


def test_blocks_that_differ_are_named() -> None:
    whole = toy_trajectory(loops=8, tokens=2, blocks=3)
    short = toy_trajectory(loops=2, tokens=2, blocks=3)
    mixed = replace(whole, blocks=(short.blocks[0], *whole.blocks[1:]))
    (sentence,) = never_words(made("acceleration"), mixed, (0, 1, 2))
    assert sentence.endswith(f"the run has 2 loops (block {mixed.blocks[0].name}).")
