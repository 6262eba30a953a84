"""Exit rules against an oracle that sees one loop at a time, and the laws that thresholds and patience obey."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis import exits as exits_package
from analysis.exit_rule import (
    NEVER,
    ExitRule,
    Exits,
    MissingReadout,
    Side,
    default_rules,
    exit_rules,
    exit_rules_by_family,
    exits,
    exits_from_scores,
)
from analysis.exits.acceleration import AccelerationExit
from analysis.exits.kl import KLExit
from analysis.exits.oracle_argmax import OracleArgmaxExit
from analysis.exits.oracle_cross_entropy import OracleCrossEntropyExit
from analysis.exits.step_norm import StepNormExit
from model.capture.trajectory import BlockTrace, Trajectory
from tests import contracts
from tests.toys import toy_block, toy_trajectory

NAMES = tuple(exit_rules())


@dataclass
class Watcher:
    """One token, live: it is told a score after each loop and remembers no more than a count."""

    better: Callable[[float, float], bool]
    threshold: float
    patience: int
    minimum_loops: int
    loop: int = 0
    hits: int = 0
    fired: int = NEVER
    back: int = NEVER

    def tell(self, score: float) -> None:
        self.loop += 1
        if score != score:
            self.hits = 0
            return
        if self.better(score, self.threshold) and abs(score) != float("inf"):
            self.hits += 1
        else:
            self.hits = 0
            if self.fired != NEVER and self.back == NEVER:
                self.back = self.loop
        if self.fired == NEVER and self.hits >= self.patience and self.loop >= self.minimum_loops:
            self.fired = self.loop


SIDES: dict[Side, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

# Few different values, so that runs of hits, ties with the threshold and gaps all come up often.
GRID = [0.0, 0.5, 1.0, 1.5, 2.0, float("nan")]
score_arrays = arrays(
    np.float64, st.tuples(st.integers(1, 10), st.integers(1, 4)), elements=st.sampled_from([*GRID, float("inf")])
)
finite_arrays = arrays(np.float64, st.tuples(st.integers(1, 10), st.integers(1, 4)), elements=st.sampled_from(GRID))
thresholds = st.sampled_from([0.0, 0.5, 0.75, 1.0, 2.0, 3.0])
counts = st.integers(1, 4)


def on_side(side: Side) -> type[StepNormExit]:
    return type(f"On{side}", (StepNormExit,), {"stops": side})


@given(score_arrays, st.sampled_from(list(SIDES)), thresholds, counts, counts)
def test_the_array_code_agrees_with_a_watcher_of_single_loops(
    scores: np.ndarray, side: Side, threshold: float, patience: int, minimum: int
) -> None:
    found = exits_from_scores(on_side(side)(threshold=threshold, patience=patience, minimum_loops=minimum), scores)
    for token, column in enumerate(scores.T):
        watcher = Watcher(SIDES[side], threshold, patience, minimum)
        for score in column.tolist():
            watcher.tell(score)
        assert found.loop[token] == watcher.fired
        assert found.crosses_back[token] == watcher.back
        assert found.defined[token] == (watcher.fired != NEVER or bool(np.isfinite(column[-1])))
        assert found.fired[token] == (watcher.fired != NEVER)


def as_depth(found: Exits) -> np.ndarray:
    """Exit loops with never as a very late one, so that they can be compared."""
    return np.where(found.fired, found.loop, 10**6)


@given(finite_arrays, thresholds, thresholds, counts, counts)
def test_a_looser_threshold_never_exits_later(
    scores: np.ndarray, one: float, other: float, patience: int, minimum: int
) -> None:
    tight, loose = (
        exits_from_scores(StepNormExit(threshold=t, patience=patience, minimum_loops=minimum), scores)
        for t in sorted((one, other))
    )
    assert (as_depth(loose) <= as_depth(tight)).all()


@given(finite_arrays, thresholds, counts, counts)
def test_more_patience_or_a_higher_minimum_never_exits_before(
    scores: np.ndarray, threshold: float, patience: int, minimum: int
) -> None:
    rule = StepNormExit(threshold=threshold, patience=patience, minimum_loops=minimum)
    depth = as_depth(exits_from_scores(rule, scores))
    more = exits_from_scores(replace(rule, patience=patience + 1), scores)
    later = exits_from_scores(replace(rule, minimum_loops=minimum + 1), scores)
    assert (as_depth(more) >= depth).all()
    assert (as_depth(later) >= depth).all()
    assert (more.loop[more.fired] >= patience + 1).all()
    assert (later.loop[later.fired] >= minimum + 1).all()


@given(finite_arrays, thresholds, counts, counts)
def test_loops_after_the_exit_do_not_move_it(scores: np.ndarray, threshold: float, patience: int, minimum: int) -> None:
    rule = StepNormExit(threshold=threshold, patience=patience, minimum_loops=minimum)
    whole = exits_from_scores(rule, scores)
    for loops in range(1, len(scores) + 1):
        part = exits_from_scores(rule, scores[:loops])
        seen = whole.fired & (whole.loop <= loops)
        np.testing.assert_array_equal(part.loop, np.where(seen, whole.loop, NEVER))


def fired_at(rule: ExitRule, *scores: float) -> int:
    return int(exits_from_scores(rule, np.array(scores)[:, None]).loop[0])


def test_the_words_of_the_definition() -> None:
    nan = float("nan")
    twice = AccelerationExit(threshold=1.0)
    assert fired_at(twice, nan, 0.5, 0.5) == 3  # a2, a3 below: three loops were run
    assert fired_at(twice, nan, 0.5, nan, 0.5) == NEVER  # an undefined score resets the count
    assert fired_at(twice, nan, 0.5, 2.0, 0.5, 0.5) == 5
    once = StepNormExit(threshold=1.0)
    assert fired_at(once, 0.5, 0.5) == 2  # at least two loops by default
    assert fired_at(once, 2.0, 1.0, 1.0) == NEVER  # strict: equal is not below
    assert fired_at(replace(once, minimum_loops=1), 0.5) == 1
    found = exits_from_scores(once, np.array([[2.0], [0.5], [nan], [0.7], [1.0]]))
    assert found.crosses_back.tolist() == [5]  # the undefined loop 3 is no crossing


@pytest.mark.parametrize(("kind", "patience"), [(AccelerationExit, 2), (KLExit, 1), (StepNormExit, 1)])
def test_defaults(kind: type[ExitRule], patience: int) -> None:
    assert (kind().patience, kind().minimum_loops, kind().stops, kind().causal) == (patience, 2, "<", True)


def test_kl_default_is_the_published_one() -> None:
    assert KLExit().threshold == 5e-4


def test_the_papers_three_are_on_where_nobody_chooses() -> None:
    assert tuple(default_rules()) == ("acceleration", "kl", "step_norm")


def test_families_stand_together_and_nobody_is_left_out() -> None:
    ordered = exit_rules_by_family()
    assert sorted(ordered) == sorted(NAMES)
    families = [kind.family for kind in ordered.values()]
    assert len([a for a, b in itertools.pairwise(families) if a != b]) == len(set(families)) - 1


def test_files_stay_short() -> None:
    for path in Path(exits_package.__path__[0]).glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, path.name


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    contracts.check_rule(exit_rules()[name])


def broken_trajectory() -> Trajectory:
    """Infinite from loop 5 of 8 at token 2, with every quantity."""
    states = np.random.default_rng(0).normal(size=(9, 4, 4)).astype(np.float32)
    states[5:, 2] = np.inf
    with np.errstate(invalid="ignore"):
        block = toy_block(states)
    whole = contracts.with_all_quantities(replace(toy_trajectory(tokens=4, blocks=1), blocks=(block,)))
    readouts = {key: array.copy() for key, array in whole.blocks[0].readouts.items()}
    for key, array in readouts.items():
        array[4:, 2] = -1 if key[1] == "top10_id" else np.nan
    return replace(whole, blocks=(replace(whole.blocks[0], readouts=readouts),))


@pytest.mark.parametrize("scope", ["token", "sequence"])
@pytest.mark.parametrize("name", [name for name in NAMES if exit_rules()[name].causal])
def test_a_non_finite_token_never_fires_from_there_on(name: str, scope: str) -> None:
    """With thresholds that anything passes, it fires by loop 4 or not at all, and the others always."""
    trajectory, kind = broken_trajectory(), cast("Any", exit_rules()[name])
    easy = min(kind.highest * 1.0001, 1e30) if kind.stops in ("<", "<=") else kind.lowest
    for minimum in range(1, 9):
        found = exits(kind(threshold=easy, minimum_loops=minimum, scope=scope), trajectory, 0)
        assert found.fired[[0, 1, 3]].all()
        assert bool(found.fired[2]) == (minimum <= 4)
        assert found.loop[2] <= 4
        assert bool(found.defined[2]) == (minimum <= 4)


def test_an_oracle_without_a_final_readout_is_undefined() -> None:
    found = exits(OracleArgmaxExit(threshold=1e30), broken_trajectory(), 0)
    assert found.words()[2] == ""
    assert found.fired[[0, 1, 3]].all()
    loss = exits(OracleCrossEntropyExit(), broken_trajectory(), 0)
    assert 1 <= loss.loop[2] <= 4, "the best of the loops that were finite"
    assert loss.words()[3] == "", "the last position has no next token"


def test_a_token_without_any_score_is_neither_fired_nor_never() -> None:
    found = exits_from_scores(StepNormExit(threshold=1e30), np.full((4, 1), np.nan))
    assert (found.fired[0], found.defined[0], found.loop[0]) == (False, False, NEVER)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("loops", [1, 2, 3])
def test_short_runs_keep_their_axes(name: str, loops: int, tokens: int) -> None:
    trajectory = contracts.with_all_quantities(toy_trajectory(loops=loops, tokens=tokens, blocks=1))
    found = exits(exit_rules()[name](), trajectory, 0)
    assert found.loop.shape == found.defined.shape == found.crosses_back.shape == (tokens,)


def only(lens: str, block: BlockTrace) -> BlockTrace:
    return replace(block, readouts={key: array for key, array in block.readouts.items() if key[0] == lens})


def test_kl_prefers_the_coda_lens_and_says_what_is_missing() -> None:
    trajectory = toy_trajectory(blocks=1)
    block = trajectory.blocks[0]
    marked = {
        key: array + np.float32(key[0] == "coda") if key[1] == "kl_previous" else array for key, array in block.readouts.items()
    }
    both = replace(trajectory, blocks=(replace(block, readouts=marked),))
    coda, logit = marked["coda", "kl_previous"], marked["logit", "kl_previous"]
    np.testing.assert_array_equal(KLExit().scores(both, 0), coda.astype(np.float64))
    np.testing.assert_array_equal(KLExit(lens="logit").scores(both, 0), logit.astype(np.float64))
    without_coda = replace(both, blocks=(only("logit", both.blocks[0]),))
    np.testing.assert_array_equal(KLExit().scores(without_coda, 0), logit.astype(np.float64))
    with pytest.raises(MissingReadout, match="--lens"):
        KLExit(lens="coda").scores(without_coda, 0)
    bare = replace(trajectory, blocks=(replace(block, readouts={}),))
    with pytest.raises(MissingReadout, match=r"h\[1\].*--lens"):
        KLExit().scores(bare, 0)
