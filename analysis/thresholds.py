"""The thresholds that a slider offers for an exit rule: fine steps on the scale that suits its score."""

from functools import cache

from analysis.exit_rule import ExitRuleClass

_STEPS = ("1", "1.25", "1.6", "2", "2.5", "3.2", "4", "5", "6.3", "8")
"""Ten steps per decade, close to equal ratios, each with few digits."""

_LOOPS = (*range(1, 33), *range(34, 65, 2), *range(72, 129, 8))

_DECADES_BELOW = 6
_DECADES_ABOVE = 4


@cache
def ladder(kind: ExitRuleClass) -> tuple[float, ...]:
    """Thresholds of a rule with a logarithmic score, or one that counts loops, rising, its default among them.

    Empty for another linear score.

    They depend on the rule alone and not on a run, so that a link means the same threshold everywhere.
    """
    default = kind().threshold
    if kind.unit == "loops":
        return tuple(sorted({float(loops) for loops in _LOOPS} | {default}))
    if kind.scale != "log":
        return ()
    decade = int(f"{default:e}".partition("e")[2])
    steps = {float(f"{step}e{decade + n}") for n in range(-_DECADES_BELOW, _DECADES_ABOVE) for step in _STEPS}
    return tuple(sorted(steps | {default}))


def threshold_words(value: float) -> str:
    """A threshold with as many digits as it has: ``0.87``, ``5e-04``."""
    return f"{value:.3g}"
