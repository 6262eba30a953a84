"""What every statistic keeps, that summaries are numpy's own, and hand-offs against numbers worked out by hand."""

import re
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from analysis import steps
from analysis.statistic import Statistic, per_prompt, pooled, stacked, statistics, summarise
from model.capture.trajectory import Run, Trajectory
from tests import contracts
from tests.toys import toy_block, toy_run, toy_trajectory

NAMES = (
    "acceleration",
    "drift",
    "drift_to_loop_ratio",
    "relative_step_norm",
    "state_norm",
    "step_angle",
    "step_cosine",
    "step_norm",
)


def test_the_folder_is_the_list() -> None:
    assert tuple(statistics()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    contracts.check_statistic(type(statistics()[name]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("loops", [1, 2, 3])
def test_short_runs_keep_their_axes(name: str, loops: int, tokens: int) -> None:
    statistic = statistics()[name]
    values = statistic.values(toy_trajectory(loops=loops, tokens=tokens), 0)
    assert values.shape == ((tokens,) if statistic.level == "handoff" else (loops, tokens))


def with_infinity() -> Trajectory:
    """Eight loops, three tokens; token 2 is infinite from loop 5 on."""
    states = np.random.default_rng(0).normal(size=(9, 3, 4)).astype(np.float32)
    states[5:, 2, 1] = np.inf
    blocks = (toy_block(states), toy_block(states[:, ::-1].copy(), drift_in=np.array([1.0, 2.0, np.nan])))
    return replace(toy_trajectory(tokens=3, blocks=2), blocks=blocks)


@pytest.mark.parametrize("name", NAMES)
def test_non_finite_states_leave_values_undefined(name: str) -> None:
    """Loops 1 to 4 of token 2 and all of the other tokens stand; the rest is undefined, not zero, not infinite."""
    statistic, trajectory = statistics()[name], with_infinity()
    values = statistic.values(trajectory, 0)
    assert not np.isinf(values).any()
    if statistic.level == "handoff":
        assert np.isfinite(values[:2]).all()
        assert np.isnan(values[2])
    else:
        first = statistic.first_loop - 1
        assert np.isfinite(values[first:4, 2]).all()
        assert np.isnan(values[4:, 2]).all()
        assert np.isfinite(values[first:, :2]).all()


def test_drift_and_ratio_by_hand() -> None:
    first = np.zeros((4, 2, 1), dtype=np.float32)
    first[:, 0, 0] = [0, 10, 12, 13]  # steps 10, 2, 1: mean of loops 2..3 is 1.5
    first[:, 1, 0] = [0, 10, 10, 10]  # steps 10, 0, 0: the ratio has no denominator
    second = np.ones((4, 2, 1), dtype=np.float32)
    trajectory = replace(
        toy_trajectory(tokens=2, blocks=2), blocks=(toy_block(first), toy_block(second, drift_in=np.array([6.0, 5.0])))
    )
    drift, ratio = statistics()["drift"], statistics()["drift_to_loop_ratio"]
    np.testing.assert_array_equal(drift.values(trajectory, 0), [6.0, 5.0])
    np.testing.assert_array_equal(ratio.values(trajectory, 0), [4.0, np.nan])
    assert np.isnan(drift.values(trajectory, 1)).all()
    assert np.isnan(ratio.values(trajectory, 1)).all()


def test_ratio_is_blank_for_a_single_loop() -> None:
    trajectory = toy_trajectory(loops=1)
    assert np.isnan(statistics()["drift_to_loop_ratio"].values(trajectory, 0)).all()
    assert np.isfinite(statistics()["drift"].values(trajectory, 0)).all()


def test_statistics_agree_with_their_kernels() -> None:
    trajectory = toy_trajectory(loops=6)
    states = trajectory.blocks[1].states
    wanted = {
        "step_norm": steps.step_norms(states),
        "relative_step_norm": steps.relative_step_norms(states),
        "step_cosine": steps.step_cosines(states),
        "step_angle": steps.angles(steps.step_cosines(states)),
        "acceleration": steps.accelerations(states),
        "state_norm": steps.norms(states[1:]),
    }
    for name, values in wanted.items():
        np.testing.assert_array_equal(statistics()[name].values(trajectory, 1), values)


@pytest.mark.parametrize("name", NAMES)
def test_pooled_and_per_prompt_are_numpys_percentiles(name: str, toy_run: Run) -> None:
    statistic = statistics()[name]
    parts = [np.atleast_2d(statistic.values(trajectory, 0)) for trajectory in toy_run.trajectories]
    together = np.concatenate(parts, axis=1)
    for summary, values in zip(
        (pooled(statistic, toy_run, 0), *per_prompt(statistic, toy_run, 0)), (together, *parts), strict=True
    ):
        for row in range(values.shape[0]):
            defined = values[row][~np.isnan(values[row])]
            assert summary.count[row] == len(defined)
            wanted = np.percentile(defined, [25, 50, 75]) if len(defined) else [np.nan] * 3
            np.testing.assert_allclose((summary.lower[row], summary.median[row], summary.upper[row]), wanted, rtol=1e-12)


def test_prompts_of_different_depth_are_pooled_where_they_have_values() -> None:
    shallow, deep = toy_trajectory(loops=2, tokens=3, seed=1), toy_trajectory(loops=4, tokens=2, seed=2)
    statistic = statistics()["step_norm"]
    summary = pooled(statistic, Run(request={}, trajectories=(shallow, deep)), 0)
    assert summary.count.tolist() == [5, 5, 2, 2]
    np.testing.assert_allclose(summary.median[3], np.median(statistic.values(deep, 0)[3]))


def test_a_row_without_values_is_nan_and_counts_nothing() -> None:
    summary = summarise(np.array([[np.nan, np.nan], [1.0, np.nan]]))
    assert np.isnan(summary.median[0])
    assert summary.median[1] == summary.lower[1] == summary.upper[1] == 1.0
    assert summary.count.tolist() == [0, 1]


def test_handoff_statistics_stack_to_one_row() -> None:
    run = toy_run(prompts=3)
    assert stacked(statistics()["drift"], run.trajectories, 0).shape == (1, 5 + 6 + 7)


def test_the_contract_check_can_fail() -> None:
    """A statistic that breaks its promises is caught: defined too early, no docstring, a name no CSV can hold."""
    good = type(statistics()["step_norm"])

    class Late(good):
        """Says that it starts at loop 2 and has a value at loop 1."""

        first_loop = 2

    class Unsafe(good):
        """Its name has a comma."""

        name = "step,norm"

    class Silent(good):
        pass

    Silent.__doc__ = None
    for broken in (Late, Unsafe, Silent):
        with pytest.raises(AssertionError):
            contracts.check_statistic(broken)


def test_statistics_are_frozen_and_have_no_state() -> None:
    for statistic in statistics().values():
        assert fields(statistic) == ()  # type: ignore[arg-type]
        with pytest.raises((FrozenInstanceError, TypeError)):
            statistic.name = "other"  # type: ignore[misc]
        assert re.fullmatch(r"[a-z][a-z0-9_]*", statistic.name)


def test_protocol_is_what_the_registry_returns() -> None:
    made: dict[str, Statistic] = statistics()
    assert all(made[name].name == name for name in made)
