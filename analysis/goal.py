"""Calibration to a goal: the threshold of a rule that meets a quality or a budget on one text, and what it gives on another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from analysis.candidates import exit_loops, score_quantiles, with_threshold
from analysis.comparison import Compared, ComparisonError, Ground, compare, ground_of, measured
from analysis.exit_rule import NEVER, ExitRule, rule_scores
from model.capture.trajectory import Trajectory
from model.card import Flops

Means = Float64[np.ndarray, " thresholds"]
"""One mean per threshold, those with the fewest mean loops first."""

_CANDIDATES = 400


@dataclass(frozen=True)
class Quality:
    """Cross-entropy at most this share above that of full depth: 0.005 is half a per cent."""

    above: float

    def met_by(self, found: Compared) -> bool:
        """Whether it is so; an undefined cross-entropy never is."""
        return found.cross_entropy <= found.full_depth * (1 + self.above)

    def choose(self, loops: Means, losses: Means, full: float) -> int | None:
        """The first of the thresholds, sorted by mean loops, that meets it."""
        met = np.flatnonzero(losses <= full * (1 + self.above))
        return int(met[0]) if len(met) else None

    def words(self) -> str:
        """For a person."""
        return f"cross-entropy within {self.above:.2%} of full depth"


@dataclass(frozen=True)
class Budget:
    """At most so many mean loops per token."""

    mean_loops: float

    def met_by(self, found: Compared) -> bool:
        """Whether it is so."""
        return found.mean_loops <= self.mean_loops

    def choose(self, loops: Means, losses: Means, full: float) -> int | None:
        """The last of the thresholds, sorted by mean loops, that meets it."""
        met = np.flatnonzero(loops <= self.mean_loops)
        return int(met[-1]) if len(met) else None

    def words(self) -> str:
        """For a person."""
        return f"at most {self.mean_loops:g} mean loops"


@dataclass(frozen=True)
class Near:
    """As close to so many mean loops as any threshold comes, below or above: to put rules side by side at equal loops."""

    mean_loops: float

    def met_by(self, found: Compared) -> bool:
        """Always, where the rule is defined: there is no bound."""
        return bool(np.isfinite(found.mean_loops))

    def choose(self, loops: Means, losses: Means, full: float) -> int | None:
        """The closest."""
        return int(np.argmin(np.abs(loops - self.mean_loops)))

    def words(self) -> str:
        """For a person."""
        return f"{self.mean_loops:g} mean loops"


Goal = Quality | Budget | Near


def read_goal(text: str) -> Goal:
    """``quality=0.005`` or ``budget=6``. Raises ComparisonError for anything else."""
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if name == "quality" and number >= 0:
        return Quality(number)
    if name == "budget" and number >= 1:
        return Budget(number)
    raise ComparisonError(
        f"The goal {text!r} was given; write quality=SHARE (0.005: cross-entropy within half a per cent of full depth) or "
        "budget=LOOPS (6: at most 6 mean loops)."
    )


@dataclass(frozen=True)
class Reached:
    """A rule with the threshold that meets the goal on the calibration text, and the same rule on the held-out one.

    None where no threshold meets the goal (``calibration``), or where there is no other text (``held_out``).
    """

    rule: ExitRule
    goal: Goal
    calibration: Compared | None
    held_out: Compared | None


def reach(
    rule: ExitRule,
    calibration: Sequence[Trajectory],
    block: int,
    *,
    goal: Goal,
    held_out: Sequence[Trajectory] = (),
    flops: Flops | None = None,
) -> Reached:
    """Find the threshold among 400 quantiles of the rule's own scores on the calibration text.

    A quality takes the one with the fewest mean loops, a budget the one with the most. Raises MissingReadout and
    ComparisonError as ``compare`` does.
    """
    found = _chosen(ground_of(calibration, block, flops=flops), rule, goal)
    if found is None or not held_out:
        return Reached(rule, goal, found, None)
    return Reached(rule, goal, found, compare(found.rule, held_out, block, flops=flops))


def _chosen(ground: Ground, rule: ExitRule, goal: Goal) -> Compared | None:
    scores = np.concatenate([rule_scores(rule, trajectory, ground.block) for trajectory in ground.trajectories], axis=1)
    counted = ground.counted & np.isfinite(scores[-1])
    thresholds = score_quantiles(rule, scores[:, counted], points=_CANDIDATES)
    if not len(thresholds):
        return None
    exit_loop = exit_loops(rule, scores, thresholds)
    ran = np.where(exit_loop == NEVER, ground.loops, exit_loop)[:, counted]
    losses = ground.loss[ran - 1, np.flatnonzero(counted)].mean(axis=1)
    at = goal.choose(ran.mean(axis=1), losses, float(ground.loss[-1, counted].mean()))
    if at is None:
        return None
    return measured(ground, with_threshold(rule, float(thresholds[at])), exit_loop[at], counted=counted)
