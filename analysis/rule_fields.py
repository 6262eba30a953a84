"""Which settings an exit rule takes, and in which runs it can never fire: both said in a sentence."""

import math
from collections.abc import Sequence

from analysis.exit_rule import ExitRule
from model.capture.trajectory import Trajectory

_OVERSHOOT = 1e-4
"""By how much of its upper end a sum in float32 may leave its range, and a threshold with it."""

_NEAR, _DENORMAL = 2e-7, 2e-45
"""A step of float32, relative and from 0: older links name a step past the last score where no score should reach."""


def check_fields(rule: ExitRule) -> None:
    """Raise ValueError unless the threshold lies in the range of the rule's score, and patience and minimum loops from 1 on."""
    given = rule.threshold
    if math.isnan(given):
        raise ValueError(f"The threshold of {rule.name} is not a number; {_expected(rule)}.")
    if not _takes(rule, given):
        raise ValueError(f"The threshold of {rule.name} is {given:.9g}; {_expected(rule)}.")
    if rule.patience < 1 or rule.minimum_loops < 1:
        raise ValueError(
            f"{rule.name} has patience {rule.patience} and minimum loops {rule.minimum_loops}; both must be at least 1."
        )


def counts_loops(rule: ExitRule) -> bool:
    """Whether its score is a number of loops, so that a threshold between two of them says nothing; a mean of them is none."""
    return rule.unit == "loops" and rule.scope == "token"


def _takes(rule: ExitRule, threshold: float) -> bool:
    """Whether it is finite and in the range of the rule's score; of a rule that counts loops, a whole number.

    A step of float32 past either end is taken: links and tables of sweeps hold such thresholds.
    """
    if not math.isfinite(threshold):
        return False
    if counts_loops(rule) and abs(threshold - round(threshold)) > _NEAR * abs(threshold):
        return False
    return rule.lowest - _DENORMAL <= threshold <= rule.highest + _OVERSHOOT * abs(rule.highest)


def _expected(rule: ExitRule) -> str:
    low, high = rule.lowest, rule.highest
    if counts_loops(rule):
        return f"it counts loops, so give a whole number of at least {low:g}"
    if math.isfinite(low) and math.isfinite(high):
        return f"its score lies between {low:g} and {high:g}, so give a number from {low:g} to {high:g}"
    if math.isfinite(low):
        return f"its score is never below {low:g}, so give a finite number of at least {low:g}"
    return "give a finite number"


def never_words(rule: ExitRule, trajectory: Trajectory, blocks: Sequence[int]) -> tuple[str, ...]:
    """A sentence for each reason why the rule can never fire in these blocks: the run has too few loops for it."""
    found: dict[str, list[str]] = {}
    for g in blocks:
        trace = trajectory.blocks[g]
        reason = _too_few(rule, trace.loops)
        if reason:
            found.setdefault(reason, []).append(trace.name)
    everywhere = [trajectory.blocks[g].name for g in blocks]
    return tuple(
        f"{reason}." if names == everywhere else f"{reason} (block {', '.join(names)})." for reason, names in found.items()
    )


def _too_few(rule: ExitRule, loops: int) -> str:
    """Why the rule cannot fire within so many loops, "" where it can."""
    if rule.fires_from() <= loops:
        return ""
    there = "1 loop" if loops == 1 else f"{loops} loops"
    if loops < rule.defined_from():
        return f"{rule.title} is undefined here: its first score is that of loop {rule.defined_from()}, and the run has {there}"
    if rule.patience > loops:
        cause = f"patience {rule.patience} exceeds the {there}"
    elif rule.minimum_loops > loops:
        cause = f"minimum loops {rule.minimum_loops} exceed the {there}"
    else:
        cause = f"it needs at least {rule.fires_from()} loops, and the run has {there}"
    return f"{rule.title} can never fire here: {cause}"
