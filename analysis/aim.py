"""Calibrating several rules at once to one goal, with half of a text held out where there is no other text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.exit_rule import ExitRule, MissingReadout
from analysis.goal import Budget, Goal, Quality, Reached, reach
from model.capture.trajectory import Trajectory
from model.card import Flops

GoalKind = Literal["quality", "budget"]


@dataclass(frozen=True)
class Aimed:
    """What every rule reached, and a sentence for each rule that the runs cannot answer."""

    goal: Goal
    reached: tuple[Reached, ...]
    missing: tuple[str, ...]


def goal_of(kind: GoalKind, *, percent: float, loops: float) -> Goal:
    """Cross-entropy within so many per cent of full depth, or at most so many mean loops."""
    return Quality(percent / 100) if kind == "quality" else Budget(loops)


def halves(trajectories: Sequence[Trajectory]) -> tuple[tuple[Trajectory, ...], tuple[Trajectory, ...]]:
    """The first half of a text's windows, and the rest; of a single window the rest is empty."""
    middle = (len(trajectories) + 1) // 2
    return tuple(trajectories[:middle]), tuple(trajectories[middle:])


def aim(
    rules: Sequence[ExitRule],
    calibration: Sequence[Trajectory],
    held_out: Sequence[Trajectory],
    block: int,
    *,
    goal: Goal,
    flops: Flops | None = None,
) -> Aimed:
    """Find every rule's threshold on one text and read it on the other. Raises ComparisonError as ``reach`` does."""
    reached: list[Reached] = []
    missing: list[str] = []
    for rule in rules:
        try:
            reached.append(reach(rule, calibration, block, goal=goal, held_out=held_out, flops=flops))
        except MissingReadout as error:
            missing.append(f"{rule.title}: {error}")
    return Aimed(goal, tuple(reached), tuple(missing))
