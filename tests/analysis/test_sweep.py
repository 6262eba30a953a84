"""Sweeps: the fast exits against the definition, the oracle against all choices, the bootstrap against doing it by hand."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.bootstrap import interval, resamples
from analysis.candidates import exit_loops, score_quantiles, with_threshold
from analysis.comparison import ComparisonError, compare
from analysis.exit_rule import ExitRule, MissingReadout, exit_rules, exits_from_scores, rule_scores
from analysis.floor import floor_words
from analysis.frontier import envelope_area, oracle
from analysis.rule_name import titled
from analysis.sweep import GAP_WORDS, Swept, sweep
from analysis.sweep_table import ranking_words, summary
from model.capture.trajectory import BlockTrace, Run
from model.card import Flops
from tests.toys import toy_run, toy_trajectory

LAST = 2
FLOPS = Flops(outside=100, per_loop=(10, 20, 30), logit_lens=40, coda_lens=50, gate=1)


def kinds() -> list[Any]:
    """Every rule that a toy can answer."""
    trajectory = toy_trajectory(loops=6)
    found: list[Any] = []
    for name, kind in exit_rules().items():
        try:
            kind().scores(trajectory, LAST)
        except MissingReadout:
            continue
        found.append(pytest.param(kind, id=name))
    return found


def only(run: Run, rule: ExitRule, **options: Any) -> Swept:
    return sweep([rule], run.trajectories, LAST, **options)[0]


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("fields", [{}, {"patience": 2}, {"minimum_loops": 4}, {"patience": 9}, {"scope": "sequence"}])
def test_fast_exits_are_those_of_the_definition(kind: Any, fields: dict[str, Any]) -> None:
    rule, trajectory = kind(**fields), toy_trajectory(loops=8, tokens=6)
    scores = rule_scores(rule, trajectory, LAST).copy()
    scores[3, 1], scores[4, 2], scores[5, 3] = np.nan, np.inf, -np.inf
    thresholds = score_quantiles(rule, scores, points=12)
    found = exit_loops(rule, scores, thresholds)
    for threshold, row in zip(thresholds.tolist(), found, strict=True):
        np.testing.assert_array_equal(row, exits_from_scores(with_threshold(rule, threshold), scores).loop)


@pytest.mark.parametrize("kind", kinds())
def test_every_point_is_the_comparison_at_its_threshold(kind: Any) -> None:
    run = toy_run(prompts=3, loops=6)
    found = only(run, kind(), flops=FLOPS, points=5)
    assert 3 <= len(found.points) <= 8
    for point in found.points:
        again = compare(point.rule, run.trajectories, LAST, flops=FLOPS)
        for name in ("mean_loops", "never", "agreement", "cross_entropy", "divergence", "flops", "undefined"):
            assert getattr(point, name) == pytest.approx(getattr(again, name), nan_ok=True), name
    loops = [point.mean_loops for point in found.points]
    assert loops == sorted(loops)
    thresholds = [point.rule.threshold for point in found.points]
    assert len(set(thresholds)) == len(thresholds)
    assert found.points[-1].never == (0.0 if kind.stops == "<=" else 1.0)  # its own optimum is the strictest of an oracle


def test_fixed_depths_by_hand() -> None:
    run = toy_run(prompts=5, loops=5)
    found = only(run, exit_rules()["fixed_k"](), flops=FLOPS)
    log_p = np.concatenate([t.blocks[LAST].readouts["coda", "log_probability_next"][:, :-1] for t in run.trajectories], axis=1)
    np.testing.assert_allclose(found.fixed.cross_entropy, -log_p.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose([p.cross_entropy for p in found.points[:5]], found.fixed.cross_entropy)
    np.testing.assert_allclose([p.mean_loops for p in found.points[:5]], found.fixed.loops)
    np.testing.assert_allclose([p.flops for p in found.points[:5]], found.fixed.flops)
    assert found.gain.value == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), tokens=st.integers(1, 4), loops=st.integers(1, 4))
def test_the_oracle_is_the_best_of_all_choices(seed: int, tokens: int, loops: int) -> None:
    loss = np.random.default_rng(seed).normal(size=(loops, tokens))
    x, y = oracle(loss).curve()
    for choice in itertools.product(range(loops), repeat=tokens):
        mean_loss = loss[list(choice), range(tokens)].mean()
        budget = np.mean(choice) + 1
        assert mean_loss >= np.interp(budget, x, y) - 1e-9
    assert y[-1] == pytest.approx(loss.min(axis=0).mean())  # with all loops it has what hindsight can have
    assert x[-1] == loops
    slopes = np.diff(y)[np.diff(x) > 0] / np.diff(x)[np.diff(x) > 0]
    assert (slopes <= 1e-12).all()
    assert (np.diff(slopes) >= -1e-9).all()


@pytest.mark.parametrize("kind", kinds())
def test_no_rule_is_below_the_oracle(kind: Any) -> None:
    found = only(toy_run(prompts=5, loops=7, seed=4), kind())
    assert found.oracle is not None
    x, y = found.oracle.curve()
    for point in found.points:
        assert point.cross_entropy >= np.interp(point.mean_loops, x, y) - 1e-9
    assert found.gap.value >= -1e-12


def test_areas_in_closed_form() -> None:
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    assert envelope_area(x, np.array([[4.0, 3.0, 2.0, 1.0]]))[0] == pytest.approx(7.5)
    assert envelope_area(x, np.array([[4.0, 9.0, 9.0, 1.0]]))[0] == pytest.approx(7.5)  # by chance between the ends
    assert envelope_area(x, np.array([[1.0, 2.0, 3.0, 4.0]]))[0] == pytest.approx(3.0)  # who may run more may run fewer
    assert envelope_area(np.array([[1.0, 1.0, 2.0]]), np.array([[5.0, 3.0, 1.0]]))[0] == pytest.approx(2.0)
    falling = np.array([[3.0], [1.0], [2.0]])  # one token, best after two loops
    assert oracle(falling).area(np.array([0]), np.ones((1, 1)))[0] == pytest.approx(2.0 + 1.0)
    flat = oracle(np.ones((3, 2)))
    assert flat.area(np.array([0, 1]), np.ones((1, 2)))[0] == pytest.approx(2.0)


def test_a_resample_is_the_sweep_of_the_prompts_drawn() -> None:
    run = toy_run(prompts=5, loops=6)
    rule = exit_rules()["fixed_k"]()  # its thresholds do not depend on the text
    weights = resamples(5, seed=7, count=3)
    found = only(run, rule).oracle
    assert found is not None
    prompt = np.repeat(np.arange(5), [t.tokens - 1 for t in run.trajectories])
    areas = found.area(prompt, weights)
    for weight, area in zip(weights, areas, strict=True):
        drawn = [t for t, n in zip(run.trajectories, weight, strict=True) for _ in range(int(n))]
        again = only(Run(request={}, trajectories=tuple(drawn)), rule)
        assert again.oracle is not None
        whole = again.oracle.area(np.zeros(len(again.oracle.start), dtype=np.int64), np.ones((1, 1)))
        assert area == pytest.approx(whole[0])


def test_intervals_hold_the_value_and_are_repeatable() -> None:
    run = toy_run(prompts=8, loops=6)
    found = only(run, exit_rules()["step_norm"](), points=6)
    assert found.gap.lower <= found.gap.value <= found.gap.upper
    assert found.gap.lower < found.gap.upper
    inner = [p.cross_entropy for p in found.points]
    assert (found.cross_entropy[0] <= inner).all()
    assert (inner <= found.cross_entropy[1]).all()
    np.testing.assert_array_equal(found.excess[:, -1], 0.0)  # full depth is as good as itself, whatever the prompts
    assert only(run, exit_rules()["step_norm"](), points=6).gap == found.gap
    assert only(run, exit_rules()["step_norm"](), points=6, seed=1).gap != found.gap


@pytest.mark.parametrize("prompts", [1, 2, 4])
def test_fewer_than_five_prompts_rank_nothing_and_say_why(prompts: int) -> None:
    found = sweep([exit_rules()[name]() for name in ("kl", "step_norm")], toy_run(prompts=prompts).trajectories, LAST)
    assert np.isfinite(found[0].points[0].cross_entropy)  # what was measured stays
    for one in found:
        assert np.isnan([*vars(one.gap).values(), *vars(one.gain).values()]).all()
        assert np.isnan(one.cross_entropy).all()
    _, first, second = summary(found)
    assert first[:3] == ("KL of successive readouts (kl)", "", f"needs 5 prompts, has {prompts}")
    assert second[0] == "step norm (step_norm)"  # in the order given
    assert (
        f"no rule is ranked: an interval resamples at least 5 windows, and there {'is' if prompts == 1 else 'are'} {prompts};"
        in ranking_words(found)
    )


def test_five_prompts_rank_the_smallest_gap_first() -> None:
    found = sweep(
        [exit_rules()[name]() for name in exit_rules() if name in ("kl", "fixed_k")], toy_run(prompts=5).trajectories, LAST
    )
    assert all(one.gap.lower <= one.gap.value <= one.gap.upper for one in found)
    best = min(found, key=lambda one: one.gap.value)
    assert summary(found)[1][:2] == (titled(best.rule), f"{best.gap.value:.4g}")
    assert ranking_words(found) == GAP_WORDS


def test_other_reasons_for_no_ranking_are_named_as_they_are() -> None:
    run, rules = toy_run(prompts=1), [exit_rules()["step_norm"]()]
    inner = sweep(rules, run.trajectories, 0)
    assert summary(inner)[1][1:3] == ("", "")
    assert "No quality after an exit" in ranking_words(inner)
    assert "With one loop" in ranking_words(sweep(rules, toy_run(loops=1).trajectories, LAST))
    masked = tuple(replace(t, blocks=(*t.blocks[:LAST], unscored(t.blocks[LAST]))) for t in run.trajectories)
    assert "No cross-entropy of a next token" in ranking_words(sweep(rules, masked, LAST))


def unscored(trace: BlockTrace) -> BlockTrace:
    """As a masked model gives it: readouts, and none of the next token."""
    return replace(trace, readouts={key: array for key, array in trace.readouts.items() if key[1] != "log_probability_next"})


def test_the_interval_covers_as_often_as_it_says() -> None:
    generator = np.random.default_rng(3)
    covered = 0
    for trial in range(200):
        prompts = generator.normal(size=30)
        means = resamples(30, seed=trial, count=500) @ prompts / 30
        lower, upper = interval(means)
        covered += bool(lower <= 0 <= upper)
    assert 0.88 <= covered / 200 <= 0.985


@pytest.mark.parametrize(("tokens", "loops"), [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("kind", kinds())
def test_small_runs_are_blank_where_undefined(kind: Any, tokens: int, loops: int) -> None:  # case C9
    one = toy_run(prompts=1, tokens=tokens, loops=loops)
    found = only(Run(request={}, trajectories=one.trajectories * 5), kind())
    assert np.isnan(found.gap.value) == (tokens == 1 or loops == 1 or not found.points)
    for point in found.points:
        assert 1 <= point.mean_loops <= loops


def test_an_inner_block_has_no_gap() -> None:
    found = sweep([exit_rules()["step_norm"]()], toy_run().trajectories, 0)[0]
    assert np.isnan(found.gap.value)
    assert found.oracle is None
    assert all(np.isfinite(point.mean_loops) for point in found.points)


def test_a_threshold_below_the_floor_of_the_dtype_is_said() -> None:
    run = toy_run()
    coarse = tuple(replace(t, provenance=replace(t.provenance, dtype="bfloat16", noise_floor=6e-2)) for t in run.trajectories)
    floors = {
        name: sweep([exit_rules()[name]()], coarse, LAST)[0].floor for name in ("kl", "relative_step_norm", "top_probability")
    }
    assert floors["kl"] == pytest.approx(9e-4)
    assert floors["relative_step_norm"] == 6e-2
    assert np.isnan(floors["top_probability"])
    assert "bfloat16" in floor_words(exit_rules()["kl"](), floors["kl"], "bfloat16")
    assert floor_words(with_threshold(exit_rules()["kl"](), 0.01), floors["kl"], "bfloat16") == ""


def test_huge_scores_and_too_few_thresholds() -> None:
    rule = exit_rules()["step_norm"]()
    scores = np.array([[1e300], [1e-300], [1e300]])
    thresholds = score_quantiles(rule, scores, points=4)
    for threshold, row in zip(thresholds.tolist(), exit_loops(rule, scores, thresholds), strict=True):
        np.testing.assert_array_equal(row, exits_from_scores(with_threshold(rule, threshold), scores).loop)
    with pytest.raises(ComparisonError, match="at least 2"):
        only(toy_run(), rule, points=1)


def test_fixed_depth_is_its_own_null_however_few_thresholds_are_tried() -> None:
    found = only(toy_run(prompts=5), exit_rules()["fixed_k"](), points=2)
    assert found.gain.value == pytest.approx(0.0, abs=1e-12)
    assert len(found.points) >= toy_run().trajectories[0].blocks[LAST].loops
