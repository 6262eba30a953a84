"""Post hoc comparison of one rule: every number against a loop over tokens, what is undefined, what it costs."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analysis.comparison import ComparisonError, compare
from analysis.exit_rule import NEVER, ExitRule, exit_rules, exits
from model.card import Flops
from tests.toys import toy_run, toy_trajectory

if TYPE_CHECKING:
    from model.capture.trajectory import Trajectory

FLOPS = Flops(outside=100, per_loop=(10, 20, 30), logit_lens=40, coda_lens=50, gate=1)
LAST = 2


def rule(name: str, **fields: Any) -> ExitRule:
    return exit_rules()[name](**fields)


def with_readout(trajectory: "Trajectory", block: int, **arrays: Any) -> "Trajectory":
    """The coda's readouts of a block replaced; None takes one away from both lenses."""
    trace = trajectory.blocks[block]
    found = dict(trace.readouts)
    for quantity, array in arrays.items():
        for lens in ("logit", "coda"):
            found.pop((lens, quantity), None) if array is None else found.update({(lens, quantity): array})
    blocks = list(trajectory.blocks)
    blocks[block] = replace(trace, readouts=found)
    return replace(trajectory, blocks=tuple(blocks))


@pytest.mark.parametrize(
    "one", [rule("kl", threshold=0.05), rule("step_norm", threshold=0.3, patience=2), rule("entropy", threshold=2.0)]
)
def test_every_number_against_a_loop_over_tokens(one: ExitRule) -> None:
    run = toy_run(prompts=3, loops=6)
    found = compare(one, run.trajectories, LAST)
    ran: list[int] = []
    same: list[bool] = []
    stopped_wrong: list[bool] = []
    loss: list[float] = []
    kl: list[float] = []
    never: list[bool] = []
    for trajectory in run.trajectories:
        trace = trajectory.blocks[LAST]
        for token in range(trajectory.tokens - 1):  # the last one has no next token
            loop = int(exits(one, trajectory, LAST).loop[token])
            never.append(loop == NEVER)
            ran.append(trace.loops if loop == NEVER else loop)
            top = trace.readouts["coda", "top10_id"][:, token, 0]
            same.append(bool(top[ran[-1] - 1] == top[-1]))
            if loop != NEVER:
                stopped_wrong.append(not same[-1])
            loss.append(-float(trace.readouts["coda", "log_probability_next"][ran[-1] - 1, token]))
            kl.append(float(trace.readouts["coda", "kl_last"][ran[-1] - 1, token]))
    assert found.tokens == len(ran)
    assert found.mean_loops == pytest.approx(np.mean(ran))
    assert found.never == pytest.approx(np.mean(never))
    assert found.agreement == pytest.approx(np.mean(same))
    assert found.premature == pytest.approx(np.mean(stopped_wrong))
    assert found.cross_entropy == pytest.approx(np.mean(loss))
    assert found.divergence == pytest.approx(np.mean(kl))
    assert found.lens == "coda"
    assert found.histogram.tolist() == [
        sum(k == loop for k, n in zip(ran, never, strict=True) if not n) for loop in range(1, 7)
    ]


def test_a_rule_that_never_fires_gives_full_depth() -> None:
    run = toy_run(loops=6)
    found = compare(rule("step_norm", threshold=0.0), run.trajectories, LAST)
    assert (found.never, found.mean_loops, found.agreement) == (1.0, 6.0, 1.0)
    assert found.cross_entropy == found.full_depth
    assert found.divergence == 0.0
    assert np.isnan(found.premature)  # nothing exits
    assert not found.histogram.any()


def test_what_is_undefined_is_counted_apart() -> None:
    run = toy_run(prompts=1, loops=6, tokens=7)
    trajectory = run.trajectories[0]
    holes = trajectory.blocks[LAST].readouts["coda", "kl_previous"].copy()
    holes[:, 2] = np.nan
    found = compare(rule("kl", threshold=0.01), [with_readout(trajectory, LAST, kl_previous=holes)], LAST)
    assert (found.tokens, found.undefined) == (5, 1)
    trace = trajectory.blocks[LAST]
    broken = trace.nonfinite_from.copy()
    broken[1] = 4
    blocks = (*trajectory.blocks[:LAST], replace(trace, nonfinite_from=broken))
    assert compare(rule("fixed_k", threshold=3.0), [replace(trajectory, blocks=blocks)], LAST).tokens == 5


def test_a_masked_model_has_no_cross_entropy_and_all_tokens_count() -> None:
    trajectory = with_readout(toy_trajectory(tokens=5), LAST, log_probability_next=None)
    found = compare(rule("kl", threshold=0.01), [trajectory], LAST)
    assert found.tokens == 5
    assert np.isnan(found.cross_entropy)
    assert np.isfinite([found.mean_loops, found.agreement, found.divergence]).all()


@pytest.mark.parametrize(("tokens", "loops"), [(1, 4), (2, 1), (1, 1)])
def test_small_runs_are_blank_where_undefined(tokens: int, loops: int) -> None:  # case C9
    trajectory = toy_trajectory(tokens=tokens, loops=loops)
    found = compare(rule("fixed_k", threshold=2.0), [trajectory], LAST)
    assert found.mean_loops == min(2, loops)
    assert np.isnan(found.cross_entropy) == (tokens == 1)
    blank = compare(rule("acceleration"), [trajectory], LAST)
    assert np.isnan(blank.mean_loops) == (loops == 1)


def test_an_inner_block_has_exits_and_no_quality() -> None:
    found = compare(rule("step_norm", threshold=0.3), toy_run().trajectories, 0, flops=FLOPS)
    assert 1 <= found.mean_loops <= 8
    assert found.lens == ""
    assert np.isnan([found.cross_entropy, found.agreement, found.divergence, found.full_depth]).all()
    full = 100 + 8 * 60
    assert found.flops == pytest.approx((full - (8 - found.mean_loops) * 10) / full)


def test_flops_by_hand() -> None:
    trajectory = toy_trajectory(loops=4, tokens=5)
    full = 100 + 4 * (10 + 20 + 30)

    def share(name: str, **fields: Any) -> float:
        return compare(rule(name, **fields), [trajectory], LAST, flops=FLOPS).flops

    assert share("fixed_k", threshold=3.0) == pytest.approx((full - 30) / full)
    assert share("step_norm", threshold=0.0) == pytest.approx(1.0)
    # Never exits: four checks by the coda, the last of which is the output itself.
    assert share("kl", threshold=0.0) == pytest.approx((full + 3 * 50) / full)
    assert share("kl", threshold=0.0, lens="logit") == pytest.approx((full + 4 * 40) / full)
    assert share("oracle_argmax", threshold=100.0) == pytest.approx((full - 3 * 30) / full)  # an oracle pays nothing
    assert np.isnan(compare(rule("kl"), [trajectory], LAST).flops)


def test_runs_that_cannot_be_put_side_by_side_are_refused() -> None:
    with pytest.raises(ComparisonError, match="at least one"):
        compare(rule("kl"), [], LAST)
    with pytest.raises(ComparisonError, match="4, 8 loops"):
        compare(rule("kl"), [toy_trajectory(loops=4), toy_trajectory(loops=8)], LAST)
    one = toy_trajectory()
    live = replace(one, provenance=replace(one.provenance, mode="live"))
    with pytest.raises(ComparisonError, match="live"):
        compare(rule("kl"), [live], LAST)
