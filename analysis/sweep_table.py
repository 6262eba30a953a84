"""A sweep as tables: every threshold of every rule, the exits at the given thresholds, and a summary to read."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.comparison import Compared
from analysis.exit_rule import NEVER
from analysis.floor import below_floor
from analysis.goal import Quality, Reached
from analysis.sweep import Interval, Swept

Row = tuple[str, ...]

_SETTINGS: Final = ("rule", "origin", "threshold", "patience", "minimum_loops", "scope", "block", "lens")
_COUNTS: Final = ("prompts", "tokens", "undefined")
_NUMBERS: Final = (
    "mean_loops",
    "never",
    "cross_entropy",
    "full_depth",
    "divergence",
    "agreement",
    "premature",
    "flops",
)
_BETWEEN: Final = ("mean_loops", "cross_entropy", "excess", "agreement")
SWEEP_HEADER: Final[Row] = (
    *_SETTINGS,
    *_COUNTS,
    *_NUMBERS,
    *(f"{name}_{end}" for name in _BETWEEN for end in ("lower", "upper")),
    "below_floor",
    *(f"{name}{end}" for name in ("gap", "gain") for end in ("", "_lower", "_upper")),
)
HISTOGRAM_HEADER: Final[Row] = ("rule", "threshold", "patience", "block", "exit_loop", "tokens")
CLOSE: Final = Quality(0.005)
"""The quality at which the summary compares what rules cost."""


def sweep_rows(swept: Sequence[Swept], given: Sequence[Compared]) -> list[Row]:
    """One row per rule and threshold under ``SWEEP_HEADER``: swept ones, then the one that the rule was given with.

    Numbers are exact; undefined is empty. ``excess`` is the cross-entropy above full depth; the gap and the gain are the
    rule's and stand in all of its rows.
    """
    rows: list[Row] = []
    for one, own in zip(swept, given, strict=True):
        ends = [getattr(one, name) for name in _BETWEEN]
        for number, point in enumerate(one.points):
            rows.append(_row(one, point, "swept", [cell(float(end[side, number])) for end in ends for side in (0, 1)]))
        rows.append(_row(one, own, "given", [""] * 2 * len(_BETWEEN)))
    return rows


def _row(one: Swept, point: Compared, origin: str, between: list[str]) -> Row:
    rule, prompts = point.rule, len(np.unique(one.ground.prompt[point.counted]))
    settings = (rule.name, origin, repr(rule.threshold), str(rule.patience), str(rule.minimum_loops), rule.scope)
    return (
        *settings,
        point.block,
        point.lens,
        *(str(count) for count in (prompts, point.tokens, point.undefined)),
        *(cell(float(getattr(point, name))) for name in _NUMBERS),
        *between,
        str(below_floor(rule, one.floor)).lower(),
        *(cell(value) for number in (one.gap, one.gain) for value in (number.value, number.lower, number.upper)),
    )


def histogram_rows(given: Sequence[Compared]) -> list[Row]:
    """Tokens per exit loop at the given thresholds under ``HISTOGRAM_HEADER``; ``never`` is a row of its own."""
    rows: list[Row] = []
    for own in given:
        keys = (own.rule.name, repr(own.rule.threshold), str(own.rule.patience), own.block)
        rows += [(*keys, str(loop), str(count)) for loop, count in enumerate(own.histogram.tolist(), start=1)]
        rows.append((*keys, "never", str(int((own.exit_loop[own.counted] == NEVER).sum()))))
    return rows


def cell(value: float) -> str:
    """A number that reads back the same; "" where it is undefined."""
    return repr(value) if math.isfinite(value) else ""


def summary(swept: Sequence[Swept]) -> tuple[Row, ...]:
    """One row per rule, the smallest gap to the oracle first, and what it costs at equal quality."""
    rows: list[Row] = [("rule", "gap (nats)", "95 % interval", "gain over fixed k", "95 % interval", "loops*", "operations*")]
    for one in sorted(swept, key=lambda one: math.inf if math.isnan(one.gap.value) else one.gap.value):
        close = next((point for point in one.points if CLOSE.met_by(point)), None)
        costs = ("", "") if close is None else (short(close.mean_loops), short(close.flops))
        rows.append((one.rule.name, short(one.gap.value), _range(one.gap), short(one.gain.value), _range(one.gain), *costs))
    return tuple(rows)


def reached_rows(reached: Sequence[Reached]) -> tuple[Row, ...]:
    """One row per rule: the calibrated threshold, what it gives on that text and on the held-out one, and whether it holds."""
    rows: list[Row] = [
        ("rule", "threshold", "loops", "cross-entropy", "held-out loops", "held-out cross-entropy", "full depth", "met there")
    ]
    for one in reached:
        if one.calibration is None:
            rows.append((one.rule.name, *[""] * 7))
            continue
        there, held = one.calibration, one.held_out
        held_cells = ("", "", "", "")
        if held is not None:
            met = "yes" if one.goal.met_by(held) else "no"
            held_cells = (short(held.mean_loops), short(held.cross_entropy), short(held.full_depth), met)
        threshold = f"{there.rule.threshold:.4g}"
        rows.append((one.rule.name, threshold, short(there.mean_loops), short(there.cross_entropy), *held_cells))
    return tuple(rows)


def short(value: float) -> str:
    """Four digits, "" where undefined."""
    return f"{value:.4g}" if math.isfinite(value) else ""


def _range(number: Interval) -> str:
    return f"{number.lower:.4g} to {number.upper:.4g}" if math.isfinite(number.lower) else ""
