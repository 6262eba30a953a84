"""Statistics by the name that a chart was given, or a sentence that says which names would do."""

from typing import Literal

from analysis.chart import ChartError
from analysis.statistic import Statistic, statistics


def loop_statistic(name: str) -> Statistic:
    """The statistic with a value per loop of that name. Raises ChartError listing the names that exist."""
    return _at_level(name, "loop")


def handoff_statistic(name: str) -> Statistic:
    """The statistic with a value per hand-off of that name. Raises ChartError listing the names that exist."""
    return _at_level(name, "handoff")


def _at_level(name: str, level: Literal["loop", "handoff"]) -> Statistic:
    known = statistics()
    fitting = sorted(key for key, statistic in known.items() if statistic.level == level)
    if name in fitting:
        return known[name]
    unit = {"loop": "loop", "handoff": "hand-off"}
    reason = f"has one value per {unit[known[name].level]}, not per {unit[level]}" if name in known else "is unknown"
    raise ChartError(f"Statistic {name!r} {reason}; this chart shows one of: {', '.join(fitting)}.")
