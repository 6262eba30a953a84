"""Every causal rule against a token that is watched loop by loop, with formulas written out here; oracles; golden values."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.exit_rule import NEVER, ExitRule, MissingReadout, exit_rules, exits, exits_from_scores, rule_scores
from analysis.exits.acceleration_over_steps import AccelerationOverStepsExit
from analysis.exits.argmax_stable import ArgmaxStableExit
from analysis.exits.kl import KLExit
from analysis.exits.kl_difference import KLDifferenceExit
from analysis.exits.learned_gate import LearnedGateExit
from analysis.exits.min_p_kl import MinPKLExit
from analysis.exits.oracle_argmax import OracleArgmaxExit
from analysis.exits.oracle_cross_entropy import OracleCrossEntropyExit
from analysis.exits.step_norm_difference import StepNormDifferenceExit
from analysis.rule_fields import counts_loops
from model.capture.trajectory import Trajectory
from tests.analysis.exit_worlds import VOCABULARY, Step, World, kl, min_p, recorded, world
from tests.toys import toy_block, toy_trajectory

DATA = Path(__file__).resolve().parents[1] / "data"
NAN = float("nan")
norm = np.linalg.norm

Watch = Callable[[list[Step]], float]
"""The score of the last of the steps seen so far, all of one token."""


def from_previous(measure: Callable[[Step, Step], float]) -> Watch:
    return lambda seen: measure(seen[-1], seen[-2]) if len(seen) > 1 else NAN


def move(step: Step) -> np.ndarray:
    return step.state - step.before


def inner(step: Step) -> np.ndarray:
    return step.state - step.given


def entropy(step: Step) -> float:
    return -sum(p * math.log(p) for p in step.p.tolist())


def acceleration(now: Step, last: Step) -> float:
    return float(norm(move(now) - move(last)))


def over_peak(seen: list[Step]) -> float:
    found = [acceleration(now, last) for last, now in itertools.pairwise(seen)]
    return found[-1] / max(found) if found else NAN


def unchanged(seen: list[Step]) -> float:
    count = 0
    for last, now in itertools.pairwise(seen):
        count = count + 1 if now.p.argmax() == last.p.argmax() else 0
    return float(count)


def let_out(seen: list[Step]) -> float:
    inside, out = np.float32(1), np.float32(0)
    for step in seen:
        out = np.float32(out + step.gate * inside)
        inside = np.float32(inside * (np.float32(1) - step.gate))
    return float(out)


def turned(now: Step, _: Step) -> float:
    return 1 - float(now.state @ now.before) / float(norm(now.state) * norm(now.before))


UNIFORM = np.full(VOCABULARY, 1 / VOCABULARY)
WATCHES: dict[str, tuple[dict[str, Any], Watch]] = {
    "fixed_k": ({}, lambda seen: float(len(seen))),
    "step_norm": ({}, lambda seen: float(norm(move(seen[-1])))),
    "relative_step_norm": ({}, lambda seen: float(norm(move(seen[-1])) / norm(seen[-1].state))),
    "state_cosine": ({}, from_previous(turned)),
    "step_norm_difference": ({}, from_previous(lambda now, last: abs(float(norm(move(now)) - norm(move(last)))))),
    "step_norm_difference/inner": (
        {"measured_from": "adapted_input"},
        from_previous(lambda now, last: abs(float(norm(inner(now)) - norm(inner(last))))),
    ),
    "acceleration": ({}, from_previous(acceleration)),
    "acceleration_over_state": ({}, from_previous(lambda now, last: acceleration(now, last) / float(norm(now.state)))),
    "acceleration_over_steps": (
        {},
        from_previous(lambda now, last: acceleration(now, last) / float(norm(move(now)) + norm(move(last)))),
    ),
    "acceleration_over_peak": ({}, over_peak),
    "adapted_acceleration": ({}, from_previous(lambda now, last: float(norm(inner(now) - inner(last))))),
    "kl": ({}, from_previous(lambda now, last: float(kl(last.p, now.p)))),
    "kl/reverse": ({"direction": "reverse"}, from_previous(lambda now, last: float(kl(now.p, last.p)))),
    "kl/uniform": ({"first_loop": "uniform"}, lambda seen: float(kl(seen[-2].p if seen[1:] else UNIFORM, seen[-1].p))),
    "kl/both": (
        {"direction": "reverse", "first_loop": "uniform"},
        lambda seen: float(kl(seen[-1].p, seen[-2].p if seen[1:] else UNIFORM)),
    ),
    "min_p_kl": ({}, from_previous(lambda now, last: float(kl(min_p(last.p), min_p(now.p))))),
    "min_p_kl/uniform": (
        {"first_loop": "uniform"},
        lambda seen: float(kl(min_p(seen[-2].p) if seen[1:] else UNIFORM, min_p(seen[-1].p))),
    ),
    "entropy_change": ({}, from_previous(lambda now, last: abs(entropy(now) - entropy(last)))),
    "argmax_stable": ({}, unchanged),
    "top_probability": ({}, lambda seen: max(seen[-1].p.tolist())),
    "top_margin": ({}, lambda seen: sorted(seen[-1].p.tolist())[-1] - sorted(seen[-1].p.tolist())[-2]),
    "entropy": ({}, lambda seen: entropy(seen[-1])),
    "learned_gate": ({}, let_out),
}
"""Rule (and variant) -> its fields, and the score of a token that is watched."""

SUMMED = {"kl_difference"}
"""Rules that look at all tokens at once have a watcher of their own below."""


def test_every_causal_rule_has_a_watcher() -> None:
    causal = {name for name, kind in exit_rules().items() if kind.causal}
    assert {key.partition("/")[0] for key in WATCHES} | SUMMED == causal


def made(key: str, **more: Any) -> ExitRule:
    kind: Any = exit_rules()[key.partition("/")[0]]
    return kind(**WATCHES[key][0], **more)


def between(scores: np.ndarray, place: float, *, whole: bool = False) -> float:
    """A threshold in the middle of two neighbouring scores, so that rounding decides nothing; ``whole`` for counts."""
    known = np.unique(scores[np.isfinite(scores)].round(9))
    gaps = np.diff(known)
    wide = np.flatnonzero(gaps > 1e-4 * np.abs(known).max())
    if not len(wide):
        return float(known[0]) + 1.0
    at = wide[int(place * (len(wide) - 1))]
    middle = float(known[at] + gaps[at] / 2)
    return math.ceil(middle) + 0.0 if whole else middle


def stops(rule: ExitRule, score: float) -> bool:
    """Whether a score is on the stopping side; NaN is on none."""
    return score < rule.threshold if rule.stops == "<" else score >= rule.threshold


def watched(rule: ExitRule, scores_of: Callable[[int], list[float]], *, tokens: int, loops: int) -> list[tuple[int, int]]:
    """Exit and first crossing back of every token, from scores that are asked for one loop after the other."""
    count, out, back = [0] * tokens, [NEVER] * tokens, [NEVER] * tokens
    for loop in range(1, loops + 1):
        for token, score in enumerate(scores_of(loop)):
            hit = stops(rule, score)
            count[token] = count[token] + 1 if hit else 0
            if out[token] == NEVER and count[token] >= rule.patience and loop >= rule.minimum_loops:
                out[token] = loop
            elif out[token] != NEVER and back[token] == NEVER and score == score and not hit:
                back[token] = loop
    return list(zip(out, back, strict=True))


def compare(rule: ExitRule, scene: World, scores_of: Callable[[int], list[float]]) -> None:
    found = exits(rule, recorded(scene), 0)
    live = watched(rule, scores_of, tokens=scene.tokens, loops=scene.loops)
    assert [(int(a), int(b)) for a, b in zip(found.loop, found.crosses_back, strict=True)] == live


seeds, places, counts = st.integers(0, 10_000), st.floats(0, 1), st.integers(1, 3)


@pytest.mark.parametrize("scope", ["token", "sequence"])
@pytest.mark.parametrize("key", list(WATCHES))
@settings(max_examples=8, deadline=None)
@given(seed=seeds, place=places, patience=counts, minimum=counts)
def test_a_rule_fires_where_somebody_who_watches_the_loops_would_stop(
    key: str, scope: str, seed: int, place: float, patience: int, minimum: int
) -> None:
    scene, watch = world(seed), WATCHES[key][1]

    def own(loop: int) -> list[float]:
        return [watch([scene.step(k, token) for k in range(1, loop + 1)]) for token in range(scene.tokens)]

    def shared(loop: int) -> list[float]:
        """Mean of norms before their difference, where the rule's source does so; else the mean of the scores."""
        if key.startswith("step_norm_difference"):
            part = inner if key.endswith("inner") else move
            means = [np.mean([norm(part(scene.step(k, t))) for t in range(scene.tokens)]) for k in (loop, loop - 1) if k]
            return [abs(float(means[0] - means[1])) if loop > 1 else NAN] * scene.tokens
        return [float(np.mean(own(loop)))] * scene.tokens

    rule = made(key, patience=patience, minimum_loops=minimum, scope=scope)
    middle = between(rule_scores(rule, recorded(scene), 0), place, whole=counts_loops(rule))
    rule = cast("ExitRule", replace(cast("Any", rule), threshold=middle))
    compare(rule, scene, own if scope == "token" else shared)


@settings(max_examples=15, deadline=None)
@given(seed=seeds, place=places, reverse=st.booleans())
def test_the_summed_kl_against_a_watcher_of_the_whole_prompt(seed: int, place: float, reverse: bool) -> None:
    scene = world(seed)

    def total(loop: int) -> float:
        pairs = [(scene.p[loop - 2, t], scene.p[loop - 1, t]) for t in range(scene.tokens)]
        return sum(float(kl(b, a) if reverse else kl(a, b)) for a, b in pairs)

    rule = KLDifferenceExit(direction="reverse" if reverse else "forward")
    rule = replace(rule, threshold=between(rule.scores(recorded(scene), 0), place))
    compare(rule, scene, lambda loop: [abs(total(loop) - total(loop - 1)) if loop > 2 else NAN] * scene.tokens)


def looser(rule: ExitRule, threshold: float) -> ExitRule:
    return cast("ExitRule", replace(cast("Any", rule), threshold=threshold))


@pytest.mark.parametrize("name", list(exit_rules()))
@settings(max_examples=6, deadline=None)
@given(seed=seeds, one=places, other=places, patience=counts)
def test_looser_never_later_and_more_patience_never_before(
    name: str, seed: int, one: float, other: float, patience: int
) -> None:
    trajectory, kind = recorded(world(seed)), cast("Any", exit_rules()[name])
    rule: ExitRule = kind(patience=patience)
    scores = rule_scores(rule, trajectory, 0)
    low, high = np.nanquantile(scores, sorted((one, other)), method="inverted_cdf")  # values that occur: counts stay whole
    tight, loose = (low, high) if rule.stops in ("<", "<=") else (high, low)

    def depth(asked: ExitRule) -> np.ndarray:
        found = exits(asked, trajectory, 0)
        return np.where(found.fired, found.loop, 10**6)

    assert (depth(looser(rule, float(loose))) <= depth(looser(rule, float(tight)))).all()
    patient = cast("ExitRule", replace(cast("Any", looser(rule, float(loose))), patience=patience + 1))
    assert (depth(patient) >= depth(looser(rule, float(loose)))).all()


# Values that are known


def contraction() -> Trajectory:
    """Case S4: x* + 0.5 R(30 deg) (x - x*), from (18, 0) around (10, 0)."""
    turn = 0.5 * np.array([[math.cos(math.pi / 6), -math.sin(math.pi / 6)], [math.sin(math.pi / 6), math.cos(math.pi / 6)]])
    away = [np.array([8.0, 0.0])]
    for _ in range(7):
        away.append(turn @ away[-1])
    states = (np.array(away) + np.array([10.0, 0.0]))[:, None].astype(np.float32)
    return replace(toy_trajectory(tokens=1, loops=7, blocks=1), blocks=(toy_block(states),))


def column(name: str, trajectory: Trajectory, **fields: Any) -> np.ndarray:
    kind: Any = exit_rules()[name]
    return rule_scores(kind(**fields), trajectory, 0)[:, 0]


def test_a_contraction_with_a_known_answer() -> None:
    run = contraction()
    relative = [0.364187, 0.222587, 0.123316, 0.063492, 0.031666, 0.015688, 0.007788]
    np.testing.assert_allclose(column("relative_step_norm", run), relative, atol=2e-6)
    change = [3.071797, 1.535898, 0.767949, 0.383975, 0.191987]
    np.testing.assert_allclose(column("acceleration", run)[1:6], change, rtol=1e-5)
    np.testing.assert_allclose(column("acceleration_over_peak", run)[1:], 0.5 ** np.arange(6), rtol=1e-4)
    # Every step is half the one before, so the differences of their norms are their norms.
    np.testing.assert_allclose(column("step_norm_difference", run)[1:], column("step_norm", run)[1:], rtol=1e-4)
    assert (column("step_norm_difference", run)[1:] < column("acceleration", run)[1:]).all()
    states = run.blocks[0].states[:, 0].astype(np.float64)
    cosines = [a @ b / norm(a) / norm(b) for a, b in itertools.pairwise(states)]
    np.testing.assert_allclose(column("state_cosine", run)[1:], 1 - np.array(cosines[1:]), atol=1e-12)
    assert exits(exit_rules()["relative_step_norm"](), run, 0).words() == ("6",)


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.9, -0.5])
def test_at_a_linear_contraction_the_quotient_of_two_steps_has_a_limit(ratio: float) -> None:
    states = (3.0 + ratio ** np.arange(10))[:, None, None] * np.ones((1, 1, 4))
    run = replace(toy_trajectory(tokens=1, loops=9, blocks=1), blocks=(toy_block(states),))
    limit = (1 - ratio) / (1 + abs(ratio))
    found = column("acceleration_over_steps", run)
    np.testing.assert_allclose(found[1:5], limit, rtol=1e-3)
    assert exits(AccelerationOverStepsExit(threshold=0.9 * limit), run, 0).words() == ("never",)


def test_state_cosine_needs_no_states_and_knows_a_state_that_only_grows() -> None:
    states = np.arange(1.0, 7.0)[:, None, None] * np.ones((1, 2, 3))
    block = toy_block(states)
    bare = replace(block, states=block.states[:0], loop_index=block.loop_index[:0])
    run = replace(toy_trajectory(tokens=2, loops=5, blocks=1), blocks=(bare,))
    np.testing.assert_allclose(column("state_cosine", run)[1:], 0.0, atol=1e-12)
    assert np.isnan(column("state_cosine", run)[0]), "the norm of the initial state is not recorded"


def spoken(*loops: list[float]) -> Trajectory:
    """A run of one token whose distributions are given, by the readouts that Huginn's code would compute."""
    p = np.array(loops)[:, None]
    scene = replace(world(0, loops=len(loops), tokens=1), p=p, following=np.array([0]))
    return recorded(scene)


def test_huginns_criteria_on_distributions_written_out_here() -> None:
    """Values by hand from the formulas of raven_modeling_minimal.py: three entries, V = 3."""
    run = spoken([0.7, 0.2, 0.1], [0.8, 0.15, 0.05], [0.8, 0.15, 0.05])
    first = math.log(1 / 3) - (math.log(0.7) + math.log(0.2) + math.log(0.1)) / 3
    second = 0.7 * math.log(0.7 / 0.8) + 0.2 * math.log(0.2 / 0.15) + 0.1 * math.log(0.1 / 0.05)
    kls = KLExit(first_loop="uniform").scores(run, 0)[:, 0]
    np.testing.assert_allclose(kls, [0.324_28, second, 0.0], atol=2e-5)
    assert first == pytest.approx(0.324_28, abs=2e-5)
    # Of (0.8, 0.15, 0.05) the last is below 0.08, and becomes 1/3 before all are divided by 1.28333.
    q = np.array([0.8, 0.15, 1 / 3]) / (0.8 + 0.15 + 1 / 3)
    wanted = 0.7 * math.log(0.7 / q[0]) + 0.2 * math.log(0.2 / q[1]) + 0.1 * math.log(0.1 / q[2])
    np.testing.assert_allclose(MinPKLExit().scores(run, 0)[1:, 0], [wanted, 0.0], atol=1e-6)
    assert wanted == pytest.approx(0.093_13, abs=1e-5)
    assert column("entropy_change", run)[1] == pytest.approx(0.801_82 - 0.612_87, abs=1e-5)
    # KL(0.001) and the argmax: loop 3 says what loop 2 said.
    assert exits(KLExit(threshold=1e-3), run, 0).words() == ("3",)


def test_five_unchanged_loops_are_over_after_loop_six() -> None:
    steady, other = [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]
    assert exits(ArgmaxStableExit(), spoken(*[steady] * 8), 0).words() == ("6",)
    assert exits(ArgmaxStableExit(), spoken(*[steady] * 5, other, other), 0).words() == ("never",)
    assert column("argmax_stable", spoken(steady, steady, other, other, other)).tolist() == [0, 1, 0, 1, 2]


def test_oracles_know_the_end() -> None:
    a, b = [0.7, 0.2, 0.1], [0.1, 0.7, 0.2]
    assert exits(OracleArgmaxExit(), spoken(b, a, b, b), 0).words() == ("3",)
    assert exits(OracleArgmaxExit(threshold=2.0), spoken(b, a, b, b), 0).words() == ("1",)
    assert exits(OracleArgmaxExit(), spoken(b, b, a), 0).words() == ("3",)
    # The next token is entry 0: loop 2 gives it most, loop 3 as much.
    best = OracleCrossEntropyExit()
    assert exits(best, spoken(b, a, a, b), 0).words() == ("2",)
    assert exits(replace(best, threshold=2.0), spoken(b, a, a, b), 0).words() == ("1",)
    assert exits(best, spoken(b, a, a, b), 0).crosses_back.tolist() == [4]


@pytest.mark.parametrize("name", ["oracle_argmax", "oracle_cross_entropy"])
@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_oracles_by_brute_force(name: str, seed: int) -> None:
    scene = world(seed)
    found = exits(exit_rules()[name](), recorded(scene), 0)
    for token in range(scene.tokens):
        said = scene.p[:, token].argmax(-1)
        if name == "oracle_argmax":
            wanted = next(k for k in range(1, scene.loops + 1) if (said[k - 1 :] == said[-1]).all())
        elif scene.following[token] < 0:
            wanted = NEVER
        else:
            wanted = int(scene.p[:, token, scene.following[token]].astype(np.float32).argmax()) + 1
        assert found.loop[token] == wanted


def test_the_gate_of_ouro_is_summed_as_its_code_does() -> None:
    golden = np.load(DATA / "ouro-tiny" / "golden.npz")
    gate: np.ndarray = golden["gate_probability"]
    pdf: np.ndarray = golden["exit_pdf"]
    loops, tokens = gate.shape
    whole = toy_trajectory(loops=loops, tokens=tokens, blocks=1)
    block = replace(whole.blocks[0], readouts={("gate", "gate_probability"): gate})
    run = replace(whole, blocks=(block,))
    scores = LearnedGateExit().scores(run, 0)
    # The code's last loop takes what is left; before it both are the same.
    np.testing.assert_allclose(scores[:-1], np.cumsum(pdf, axis=0)[:-1], atol=1e-6)
    np.testing.assert_allclose(scores, 1 - np.cumprod(1 - gate.astype(np.float64), axis=0), atol=1e-6)
    for q in (0.3, 0.5, 0.7, 0.9):
        reached = np.cumsum(pdf, axis=0) >= np.float32(q)
        theirs = reached.argmax(axis=0) + 1
        found = exits(LearnedGateExit(threshold=q), run, 0)
        ours = np.where(found.fired, found.loop, loops)
        assert (ours == theirs).all()


def test_a_gate_that_reaches_the_threshold_in_float32_has_reached_it() -> None:
    whole = toy_trajectory(loops=3, tokens=1, blocks=1)
    gate = np.array([[0.9], [0.0], [0.0]], dtype=np.float32)  # 0.9 in float32 is a little less than in float64
    run = replace(whole, blocks=(replace(whole.blocks[0], readouts={("gate", "gate_probability"): gate}),))
    assert exits(LearnedGateExit(threshold=0.9), run, 0).words() == ("1",)


# Equality, crossing back, scope, what is missing


@pytest.mark.parametrize("name", list(exit_rules()))
def test_a_score_on_the_threshold_follows_the_named_side(name: str) -> None:
    kind: Any = exit_rules()[name]
    rule: ExitRule = kind(threshold=1.0, patience=1, minimum_loops=1)
    fired = exits_from_scores(rule, np.ones((1, 1))).fired[0]
    assert fired == (rule.stops in ("<=", ">="))


def test_the_page_marks_where_a_score_crosses_back() -> None:
    from analysis.chart import View
    from analysis.exit_table import exit_table
    from model.capture.trajectory import Run

    states = np.cumsum([0, 5.0, 1.0, 0.1, 0.1, 0.1, 3.0, 0.1])[:, None, None] * np.ones((1, 1, 1))
    run = replace(toy_trajectory(tokens=1, loops=7, blocks=1), blocks=(toy_block(states),))
    rules: tuple[ExitRule, ...] = tuple(exit_rules()[name](threshold=0.5) for name in ("step_norm", "step_norm_difference"))  # type: ignore[call-arg]
    table = exit_table(View(run=Run(request={}, trajectories=(run,)), rules=rules))
    assert table.columns["step norm"] == ("3",)
    assert table.columns["step norm, crosses back"] == ("6",)


def test_a_sequence_is_judged_by_the_mean_of_what_is_defined() -> None:
    trajectory = toy_trajectory(blocks=1, tokens=3, loops=4)
    block = trajectory.blocks[0]
    norms = np.array([[4.0, 4.0, np.nan], [1.0, 3.0, np.nan], [0.5, 0.5, 0.5], [0.1, 0.1, 0.1]])
    sizes = block.state_norm.copy()
    sizes[3, 1] = np.nan  # its state is lost in the last loop
    run = replace(trajectory, blocks=(replace(block, step_norm=norms, state_norm=sizes),))
    rule: Any = exit_rules()["step_norm"]
    np.testing.assert_array_equal(rule_scores(rule(scope="sequence"), run, 0)[:3, 0], [4.0, 2.0, 0.5])
    found = exits(rule(scope="sequence", threshold=2.5), run, 0)
    assert found.words() == ("2", "2", "2")
    assert exits(rule(scope="sequence", threshold=0.2), run, 0).words() == ("4", "", "4")
    assert exits(rule(threshold=2.5), run, 0).words() == ("2", "3", "3")


@pytest.mark.parametrize(
    ("name", "fields", "option"),
    [
        ("kl", {"direction": "reverse"}, "--record kl_reverse"),
        ("kl", {"first_loop": "uniform"}, "--record kl_uniform"),
        ("kl", {"first_loop": "uniform", "lens": "logit"}, "--record kl_uniform"),
        ("min_p_kl", {}, "--record min_p_kl"),
        ("kl_difference", {"direction": "reverse"}, "--record kl_reverse"),
        ("adapted_acceleration", {}, "--record adapted_input"),
        ("step_norm_difference", {"measured_from": "adapted_input"}, "--record adapted_input"),
        ("learned_gate", {}, "no learned exit gate"),
    ],
)
def test_what_was_not_recorded_is_named_with_the_option_that_records_it(name: str, fields: Any, option: str) -> None:
    kind: Any = exit_rules()[name]
    with pytest.raises(MissingReadout, match=option):
        kind(**fields).scores(toy_trajectory(blocks=1), 0)


def test_what_was_changed_about_a_rule_stands_beside_it() -> None:
    from analysis.exit_marks import rule_words

    run = recorded(world(0))
    words = rule_words(KLExit(direction="reverse", scope="sequence"), run, (0,))
    assert words.endswith("(patience 1, from loop 2, mean over the sequence, direction reverse, coda lens)")
    words = rule_words(StepNormDifferenceExit(measured_from="adapted_input"), run, (0,))
    assert words.endswith("(patience 1, from loop 2, measured from adapted input)")
    assert rule_words(LearnedGateExit(), run, (0,)).endswith("learned gate ≥ 0.9 (patience 1, from loop 1)")
