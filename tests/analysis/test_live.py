"""Exit rules live: asked by the functions that read them post hoc, agreeing with them, and drawn by the same charts."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import study
from analysis.chart import View, chart_builders, chart_rows
from analysis.comparison import ComparisonError
from analysis.exit_rule import NEVER, ExitRule, MissingReadout, exit_rules, exits, exits_from_scores
from analysis.export import export
from analysis.live import compare, fires_now, live, live_exit, post_hoc_request
from analysis.statistic import statistics
from model.capture.trajectory import Run
from model.decoding import Decoding, Exit
from model.request import Prompt, Request, RequestError
from model.running import Moment

DATA = Path(__file__).parent.parent / "data"
CAUSAL = sorted(name for name, kind in exit_rules().items() if kind.causal)
ALONE = [name for name in CAUSAL if name != "kl_difference"]  # that one sums over the tokens of a pass: live, over one
ORACLES = sorted(name for name, kind in exit_rules().items() if not kind.causal)
COUNTS = ("argmax_stable", "fixed_k")  # rules that count, so that a score may well be at the threshold
LOOPS = 6


def rule_of(name: str, **changes: Any) -> ExitRule:
    return replace(exit_rules()[name](), **changes)  # type: ignore[type-var]


def asked(folder: str = "huginn-real", *, tokens: int = 8, loops: int = LOOPS, **changes: Any) -> Request:
    with np.load(DATA / folder / "golden.npz", allow_pickle=False) as arrays:
        ids = tuple(int(i) for i in arrays["input_ids"][:tokens])
    return Request(str(DATA / folder), (Prompt(ids=ids),), (loops,), **changes)


def suited(name: str) -> Request:
    """A run in which a rule can be asked: a gate for the learned gate, adapted inputs where they are read."""
    folder = "ouro-real" if name == "learned_gate" else "huginn-real"
    quantities = {"adapted_acceleration": ("adapted_input",), "min_p_kl": ("min_p_kl",)}.get(name, ())
    return asked(folder, loops=4 if name == "learned_gate" else LOOPS, quantities=quantities, lenses=("logit",))


@cache
def post_hoc_of(request: Request) -> Run:
    return study.run(request)


def middling(rule: ExitRule, found: Run) -> ExitRule:
    """The rule with a threshold in the midst of its own scores at loops 2 to 5, so that it fires at several of them."""
    if rule.name in COUNTS:
        return replace(rule, threshold=3.0)  # type: ignore[type-var]
    scores = [rule.scores(t, g)[1:5].ravel() for t in found.trajectories for g in range(len(t.blocks))]
    return replace(rule, threshold=float(np.nanquantile(np.concatenate(scores), 0.5)))  # type: ignore[type-var]


@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, np.nan, np.inf]), min_size=1, max_size=9),
    patience=st.integers(1, 4),
    minimum_loops=st.integers(1, 6),
)
def test_a_live_rule_fires_where_the_post_hoc_one_fires_first(scores: list[float], patience: int, minimum_loops: int) -> None:
    rule = rule_of("step_norm", threshold=1.5, patience=patience, minimum_loops=minimum_loops)
    column = np.array(scores)[:, None]
    first = next((k for k in range(1, len(column) + 1) if fires_now(rule, column[:k])), NEVER)
    assert first == exits_from_scores(rule, column).loop[0]


@pytest.mark.parametrize("name", ALONE)
def test_a_causal_rule_runs_live_and_its_record_says_the_same(name: str) -> None:
    request = suited(name)
    full = post_hoc_of(request)
    rule = middling(rule_of(name), full)
    found = live(request, rule, Decoding(new_tokens=2)).trajectories[0]
    assert found.provenance.mode == "live"
    assert name in found.provenance.decoding["exit"]
    for g, block in enumerate(found.blocks):
        again = exits(rule, found, g).loop
        np.testing.assert_array_equal(np.where(again == NEVER, block.loops, again), block.loops_run)
        assert (block.loops_run < block.loops).any(), "the rule never stopped anything"


@pytest.mark.parametrize("name", ALONE)
def test_asked_at_full_depth_a_rule_answers_as_post_hoc_wherever_the_score_is_off_the_threshold(name: str) -> None:
    request = suited(name)
    post_hoc = post_hoc_of(request).trajectories[0]
    rule = middling(rule_of(name), post_hoc_of(request))
    question, fired = live_exit(rule).leaves, np.full(post_hoc.tokens, NEVER)

    def listen(moment: Moment) -> bool:
        if question(moment) and fired[moment.position] == NEVER:
            fired[moment.position] = moment.loop
        return False

    study.generate(request, Decoding(), Exit(listen, "listens"))
    scores, last = rule.scores(post_hoc, 0), post_hoc.blocks[0].loops
    with np.errstate(invalid="ignore"):
        near = (np.abs(scores - rule.threshold) <= 1e-4 * np.abs(rule.threshold) + 1e-12).any(axis=0)
    wanted = exits(rule, post_hoc, 0).loop
    wanted = np.where(wanted == last, NEVER, wanted)  # after the last loop nobody is asked
    clear = ~near if name not in COUNTS else np.full(post_hoc.tokens, True)
    np.testing.assert_array_equal(fired[clear], wanted[clear])
    assert clear.mean() > 0.5
    assert (wanted != NEVER).any()


def test_a_rule_that_sums_over_tokens_sums_over_the_one_that_is_there() -> None:
    request = suited("kl_difference")
    found = live(request, rule_of("kl_difference", threshold=0.05), Decoding()).trajectories[0].blocks[0]
    kl = found.readouts["logit", "kl_previous"].astype(np.float64)
    for token, ran in enumerate(found.loops_run):
        change = np.abs(np.diff(kl[:ran, token]))
        assert (change[:-1] >= 0.05).sum() == np.isfinite(change[:-1]).sum()
        assert ran == LOOPS or change[-1] < 0.05
    assert (found.loops_run < LOOPS).any()


def test_several_blocks_leave_on_their_own_and_chosen_ones_alone() -> None:
    request = asked("latent_ttc-concat", tokens=9, loops=6)
    rule = middling(rule_of("step_norm"), post_hoc_of(request))
    every = live(request, rule, Decoding()).trajectories[0]
    one = live(request, rule, Decoding(), blocks=(1,)).trajectories[0]
    assert len({tuple(block.loops_run.tolist()) for block in every.blocks}) > 1
    assert [bool((block.loops_run < 6).any()) for block in one.blocks] == [g == 1 for g in range(len(one.blocks))]
    assert "in blocks 1 alone" in one.provenance.decoding["exit"]


def test_a_coda_is_asked_on_the_last_block_and_the_logit_lens_elsewhere() -> None:
    request = asked("latent_ttc-concat", tokens=6, loops=6)
    found = live(request, rule_of("kl", threshold=0.02), Decoding()).trajectories[0]
    for g in range(len(found.blocks)):
        again = exits(rule_of("kl", threshold=0.02), found, g).loop
        np.testing.assert_array_equal(np.where(again == NEVER, 6, again), found.blocks[g].loops_run)
    with pytest.raises(MissingReadout, match="last looped block only"):
        live(request, rule_of("kl", lens="coda"), Decoding())
    with pytest.raises(MissingReadout, match="--lens"):
        live(replace(request, lenses=()), rule_of("kl"), Decoding())


def test_oracles_and_averages_are_refused() -> None:
    for name in ORACLES:
        with pytest.raises(RequestError, match=f"{name}.*exists post hoc only"):
            live(asked(), rule_of(name), Decoding())
    with pytest.raises(RequestError, match="scope 'sequence' averages over tokens"):
        live(asked(), rule_of("kl", scope="sequence"), Decoding())


def test_a_comparison_counts_what_it_says() -> None:
    request = asked("huginn-real")
    rule = middling(rule_of("acceleration"), post_hoc_of(request))
    found = live(request, rule, Decoding(new_tokens=4))
    text = post_hoc_request(request, found)
    beside = study.run(text)
    made = compare(found, beside, rule)
    ours, theirs = found.trajectories[0].blocks[0], beside.trajectories[0].blocks[0]
    stop = exits(rule, beside.trajectories[0], 0).loop
    stop = np.where(stop == NEVER, LOOPS, stop)
    tokens = np.arange(11)
    following = theirs.readouts["coda", "log_probability_next"].astype(np.float64)
    own = ours.readouts["coda", "log_probability_next"].astype(np.float64)
    seconds = found.trajectories[0].seconds
    assert seconds is not None
    assert made.agreement == pytest.approx((float((stop == ours.loops_run).mean()),))
    assert made.live_loops == pytest.approx((float(ours.loops_run.mean()),))
    assert made.post_hoc_loops == pytest.approx((float(stop.mean()),))
    assert made.live == pytest.approx(-own[ours.loops_run[:11] - 1, tokens].mean())
    assert made.post_hoc == pytest.approx(-following[stop[:11] - 1, tokens].mean())
    assert made.full_depth == pytest.approx(-following[-1, :11].mean())
    assert (made.lens, made.tokens) == ("coda", 12)
    assert made.tokens_per_second == pytest.approx(12 / seconds.sum())
    assert made.change == made.live - made.full_depth
    with pytest.raises(RequestError, match="has other tokens, blocks or loops"):
        compare(found, study.run(replace(text, loops=(3,))), rule)
    blind = compare(live(replace(text, lenses=()), rule, Decoding()), beside, rule)
    assert blind.lens == ""
    assert np.isnan(blind.live)


def test_tokens_of_a_prompt_read_in_one_pass_are_not_compared() -> None:
    request = asked("huginn-real", tokens=6)
    rule = rule_of("fixed_k", threshold=2.0)
    found = live(request, rule, Decoding(new_tokens=3, prompt="full depth"))
    made = compare(found, study.run(post_hoc_request(request, found)), rule)
    assert (made.tokens, made.agreement, made.live_loops) == (3, (1.0,), (2.0,))
    with pytest.raises(RequestError, match="about no token"):
        compare(live(request, rule, Decoding(prompt="full depth")), post_hoc_of(request), rule)


def test_full_depth_live_and_post_hoc_are_one() -> None:
    request = asked("latent_ttc-concat", tokens=9, loops=5)
    rule = rule_of("acceleration", threshold=1e-12)
    made = compare(live(request, rule, Decoding()), post_hoc_of(request), rule)
    assert made.agreement == (1.0,) * len(made.agreement)
    assert made.change == pytest.approx(0, abs=1e-4)


@pytest.fixture(scope="module")
def left_early() -> Run:
    """A live run with exits of several depths in several blocks."""
    request = asked("latent_ttc-concat", tokens=9, loops=6)
    return live(request, middling(rule_of("acceleration"), post_hoc_of(request)), Decoding(new_tokens=2))


@pytest.mark.parametrize("name", sorted(chart_builders()))
@pytest.mark.parametrize("token", [None, 2])
def test_every_chart_draws_a_live_run(name: str, token: int | None, left_early: Run) -> None:
    rules = tuple(rule_of(name) for name in ("step_norm", "kl", "acceleration"))
    view = View(run=left_early, rules=rules, others=(("step 0", left_early), ("step 9", left_early)), token=token)
    if name == "pareto":  # thresholds are moved on a run of full depth alone, and the chart says so
        with pytest.raises(ComparisonError, match="compare rules post hoc"):
            chart_builders()[name]().build(view)
        return
    chart = chart_builders()[name]().build(view)
    assert "live (the loop really stopped)" in chart.caption
    assert "nan" not in chart.caption
    assert "non-finite" not in " ".join((chart.caption, *chart.warnings)), "what was not run is not non-finite"
    assert chart_rows(chart)
    assert export(chart, kind="csv").count(b"\n") > 1
    if token is None:
        assert export(chart, kind="svg")


@pytest.mark.parametrize("name", sorted(statistics()))
def test_every_statistic_is_blank_beyond_an_exit_and_only_there(name: str, left_early: Run) -> None:
    statistic, trajectory = statistics()[name], left_early.trajectories[0]
    for g, block in enumerate(trajectory.blocks):
        values = statistic.values(trajectory, g)
        if statistic.level != "loop":
            continue
        for token, ran in enumerate(block.loops_run):
            assert np.isnan(values[ran:, token]).all()
            assert np.isfinite(values[statistic.first_loop - 1 : ran, token]).all()
