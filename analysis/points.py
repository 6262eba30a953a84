"""One point of a sweep as a row to read: its settings, and what they give with their intervals."""

import math
from typing import Final

from analysis.sweep import Swept

POINT_HEADER: Final = (
    "threshold",
    "patience",
    "minimum loops",
    "scope",
    "mean loops",
    "mean loops, 95 %",
    "cross-entropy (nats)",
    "above full depth, 95 %",
    "agreement",
    "never",
    "operations",
)


def point_rows(one: Swept, number: int) -> tuple[str, ...]:
    """The cells of one point under ``POINT_HEADER``; "" where undefined."""
    point = one.points[number]
    return (
        f"{point.rule.threshold:.6g}",
        str(point.rule.patience),
        str(point.rule.minimum_loops),
        point.rule.scope,
        _number(point.mean_loops, ".3f"),
        _range(one.mean_loops[0, number], one.mean_loops[1, number], ".3f"),
        _number(point.cross_entropy, ".4f"),
        _range(one.excess[0, number], one.excess[1, number], "+.4f"),
        _number(point.agreement, ".1%"),
        _number(point.never, ".1%"),
        _number(point.flops, ".1%"),
    )


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else ""


def _range(lower: float, upper: float, form: str) -> str:
    return f"{lower:{form}} to {upper:{form}}" if math.isfinite(lower) else ""
