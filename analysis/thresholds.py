"""The thresholds that a slider offers for an exit rule: fine steps on the scale that suits its score."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cache

from analysis.candidates import with_threshold
from analysis.exit_rule import ExitRule, ExitRuleClass, exit_rules

_STEPS = ("1", "1.25", "1.6", "2", "2.5", "3.2", "4", "5", "6.3", "8")
"""Ten steps per decade, close to equal ratios, each with few digits."""

_LOOPS = (*range(1, 33), *range(34, 65, 2), *range(72, 129, 8))

_DIGITS = 9
"""Digits that tell any two float32 numbers apart."""

_DECADES_BELOW = 6
_DECADES_ABOVE = 4


@cache
def ladder(kind: ExitRuleClass) -> tuple[float, ...]:
    """Thresholds of a rule with a logarithmic score, or one that counts loops, rising, its default among them.

    Empty for another linear score. None lies outside the range of the score.

    They depend on the rule alone and not on a run, so that a link means the same threshold everywhere.
    """
    default = kind().threshold
    if kind.unit == "loops":
        return tuple(sorted({float(loops) for loops in _LOOPS} | {default}))
    if kind.scale != "log":
        return ()
    decade = int(f"{default:e}".partition("e")[2])
    steps = {float(f"{step}e{decade + n}") for n in range(-_DECADES_BELOW, _DECADES_ABOVE) for step in _STEPS}
    return tuple(sorted(step for step in steps | {default} if kind.lowest <= step <= kind.highest))


def threshold_words(value: float) -> str:
    """A threshold with as many digits as it has, nine at most: ``0.87``, ``0.0005``, ``0.0321712345``."""
    return f"{value:.{_DIGITS}g}"


def applied(rule: ExitRule, threshold: float) -> float:
    """A threshold that was found on a text, as it can be written into a link and read back equal.

    It is rounded away from the scores that it must not let through: with scores in float32, the same ones stop.
    """
    down = rule.stops in ("<", ">=")
    exact = Decimal(threshold)
    return float(Context(prec=_DIGITS, rounding=ROUND_FLOOR if down else ROUND_CEILING).plus(exact))


def at_default(rule: ExitRule) -> ExitRule:
    """The same rule with its kind's default threshold: equal for rules that differ in nothing else."""
    return with_threshold(rule, exit_rules()[rule.name]().threshold)


def steps_with(kind: ExitRuleClass, *others: float | None) -> tuple[float, ...]:
    """The ladder of a rule with further thresholds on it, rising; empty where the rule has no ladder."""
    steps = ladder(kind)
    return tuple(sorted({*steps, *(other for other in others if other is not None)})) if steps else ()
