"""What every extension of a kind must keep. Tests run these on all that the registries hold, and on examples."""

import csv
import io
import re
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

if TYPE_CHECKING:
    from analysis.exit_rule import ExitRule
    from analysis.statistic import Statistic
    from model.capture.trajectory import BlockTrace, Trajectory

SAFE_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_named(kind: type[Any]) -> None:
    """A frozen, hashable, documented dataclass whose name survives CSV, URL and command line."""
    assert is_dataclass(kind)
    assert (kind.__doc__ or "").strip(), "a class says what it means"
    assert SAFE_NAME.fullmatch(kind.name), f"{kind.name!r} is no safe name"
    assert kind.title.strip()
    row = io.StringIO()
    csv.writer(row).writerow([kind.name])
    assert row.getvalue().strip() == kind.name
    assert hash(kind()) == hash(kind())
    assert kind() == kind()


def frozen_bytes(trajectory: "Trajectory") -> list[bytes]:
    """Every array of a trajectory as bytes, to see whether anything was changed."""
    found = [trajectory.token_ids.tobytes()]
    for block in trajectory.blocks:
        found += [value.tobytes() for value in vars(block).values() if isinstance(value, np.ndarray)]
        found += [value.tobytes() for value in block.readouts.values()]
    return found


def check_statistic(kind: type["Statistic"]) -> None:
    """Shape by level; NaN before ``first_loop`` and nowhere after it; float64; the input is left alone; repeatable."""
    from tests.toys import toy_trajectory

    check_named(kind)
    statistic = kind()
    trajectory = toy_trajectory(loops=6, tokens=4, blocks=3)
    before = frozen_bytes(trajectory)
    for block in range(3):
        values = statistic.values(trajectory, block)
        assert values.dtype == np.float64
        if statistic.level == "handoff":
            assert values.shape == (4,)
            assert np.isnan(values).all() if block == 2 else np.isfinite(values).all()
        else:
            assert values.shape == (6, 4)
            first = statistic.first_loop - 1
            assert np.isnan(values[:first]).all(), f"a value before loop {statistic.first_loop}"
            assert np.isfinite(values[first:]).all(), f"no value at or after loop {statistic.first_loop}"
        np.testing.assert_array_equal(values, statistic.values(trajectory, block))
    assert frozen_bytes(trajectory) == before
    assert statistic.level in ("loop", "handoff")
    assert statistic.scale in ("linear", "log")
    assert 0 <= statistic.holds_first_step <= 2


def check_rule(kind: type["ExitRule"]) -> None:
    """Scores ``loops tokens``, defined up to the last loop; the input is left alone; causal as declared; sane defaults.

    A sequence has one score per loop, and then the same exit for all tokens.
    """
    from analysis.exit_rule import Family, exits, exits_from_scores, rule_scores
    from tests.toys import toy_trajectory

    check_named(kind)
    rule = kind()
    whole = cast("ExitRule", replace(cast("Any", rule), scope="sequence"))
    assert rule.scope == "token"
    assert rule.family in get_args(Family)
    assert rule.causal or not rule.default_on, "an oracle is nobody's default"
    assert rule.patience >= 1
    assert rule.minimum_loops >= 1
    assert np.isfinite(rule.threshold)
    assert rule.source.strip()
    assert rule.formula.strip()
    trajectory = with_all_quantities(toy_trajectory(loops=6, tokens=4, blocks=3))
    before = frozen_bytes(trajectory)
    # The last position of a prompt has no next token.
    judged = slice(0, 3 if rule.quantity == "log_probability_next" else 4)
    for block in range(3):
        scores = rule.scores(trajectory, block)
        assert scores.shape == (6, 4)
        assert scores.dtype == np.float64
        defined = np.isfinite(scores)
        assert not np.isinf(scores).any()
        assert rule.lowest <= np.nanmin(scores), f"a score below {rule.lowest}"
        assert np.nanmax(scores) <= rule.highest * (1 + 1e-4), f"a score above {rule.highest}"
        assert not defined[: rule.defined_from() - 1].any(), f"a score before loop {rule.defined_from()}"
        assert defined[rule.defined_from() - 1].any(), f"no score at loop {rule.defined_from()}"
        assert defined[-1, judged].all(), "undefined at the last loop"
        assert (np.diff(defined.astype(int), axis=0) >= 0).all(), "defined, then undefined again"
        np.testing.assert_array_equal(scores, rule.scores(trajectory, block))
        exits_from_scores(rule, scores)
        mean = rule_scores(whole, trajectory, block)
        np.testing.assert_array_equal(mean, np.repeat(mean[:, :1], 4, axis=1))
        assert len(set(exits(whole, trajectory, block).words())) == 1, "a sequence stops as one"
        if rule.causal:
            for loops in range(1, 6):
                np.testing.assert_array_equal(rule.scores(cut(trajectory, loops), block), scores[:loops])
    assert frozen_bytes(trajectory) == before
    check_refusals(rule)


def check_refusals(rule: "ExitRule") -> None:
    """Values that make no sense are refused with a sentence, and a run that lacks what the rule needs is named."""
    import pytest

    from analysis.exit_rule import MissingReadout
    from tests.toys import toy_trajectory

    bare = toy_trajectory(blocks=1)
    bare = replace(bare, blocks=(replace(bare.blocks[0], readouts={}),))
    if rule.quantity:
        with pytest.raises(MissingReadout, match=r"--lens|--record"):
            rule.scores(bare, 0)
    else:
        assert rule.scores(bare, 0).shape == (8, 5)
    with pytest.raises(ValueError, match="not a number"):
        replace(rule, threshold=float("nan"))  # type: ignore[type-var]
    for odd in (float("inf"), -float("inf"), *outside(rule)):
        with pytest.raises(ValueError, match=rf"threshold of {rule.name} is {re.escape(f'{odd:g}')}; .*give a .*number"):
            replace(rule, threshold=odd)  # type: ignore[type-var]
    for field in ("patience", "minimum_loops"):
        with pytest.raises(ValueError, match="at least 1"):
            replace(rule, **{field: 0})  # type: ignore[type-var]


def outside(rule: "ExitRule") -> list[float]:
    """Finite thresholds that no score of the rule can have."""
    below, above = rule.lowest - 1e-6, rule.highest * 1.01
    return [odd for odd in (below, rule.lowest - 1, above, 2.5 if rule.unit == "loops" else below) if np.isfinite(odd)]


def with_all_quantities(trajectory: "Trajectory") -> "Trajectory":
    """The same trajectory as if every quantity that can be asked for had been recorded, a gate's among them."""
    generator = np.random.default_rng(9)

    def filled(block: "BlockTrace") -> "BlockTrace":
        shape, made = block.step_norm.shape, dict(block.readouts)
        for lens in {lens for lens, _ in block.readouts}:
            for quantity in ("kl_reverse", "kl_uniform", "kl_uniform_reverse", "min_p_kl", "min_p_kl_uniform"):
                made[lens, quantity] = generator.uniform(1e-6, 1.0, size=shape).astype(np.float32)
                if quantity in ("kl_reverse", "min_p_kl"):
                    made[lens, quantity][0] = np.nan
        made["gate", "gate_probability"] = generator.uniform(size=shape).astype(np.float32)
        made["block", "adapted_step_norm"] = generator.uniform(1.0, 2.0, size=shape).astype(np.float32)
        made["block", "adapted_acceleration"] = generator.uniform(1.0, 2.0, size=shape).astype(np.float32)
        made["block", "adapted_acceleration"][0] = np.nan
        return replace(block, readouts=made)

    return replace(trajectory, blocks=tuple(filled(block) for block in trajectory.blocks))


def cut(trajectory: "Trajectory", loops: int) -> "Trajectory":
    """The same trajectory as if it had been stopped after ``loops`` loops of every block."""
    blocks = tuple(
        replace(
            block,
            loops=loops,
            loops_run=np.full_like(block.loops_run, loops),
            state_norm=block.state_norm[:loops].copy(),
            step_norm=block.step_norm[:loops].copy(),
            step_cosine=block.step_cosine[:loops].copy(),
            acceleration=block.acceleration[:loops].copy(),
            loop_index=block.loop_index[: loops + 1].copy(),
            states=block.states[: loops + 1].copy(),
            readouts={key: array[:loops].copy() for key, array in block.readouts.items()},
        )
        for block in trajectory.blocks
    )
    return replace(trajectory, blocks=blocks)
