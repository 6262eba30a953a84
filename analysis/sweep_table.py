"""A sweep as tables: every threshold of every rule, the exits at the given thresholds, and a summary to read."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.bootstrap import FEWEST_PROMPTS
from analysis.comparison import Compared
from analysis.exit_rule import NEVER
from analysis.floor import below_floor
from analysis.goal import Quality, Reached
from analysis.rule_columns import RULE_COLUMNS, rule_cells
from analysis.rule_name import titled
from analysis.sweep import GAP_WORDS, Interval, Swept

Row = tuple[str, ...]

_SETTINGS: Final = (*RULE_COLUMNS, "origin", "block", "lens", "mode", "loops")
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
HISTOGRAM_HEADER: Final[Row] = (*RULE_COLUMNS, "block", "mode", "loops", "exit_loop", "tokens")
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
    return (
        *rule_cells(rule),
        *(origin, point.block, point.lens, one.ground.provenance.mode, str(point.loops)),
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
        keys = (*rule_cells(own.rule), own.block, "post hoc", str(own.loops))
        rows += [(*keys, str(loop), str(count)) for loop, count in enumerate(own.histogram.tolist(), start=1)]
        rows.append((*keys, "never", str(int((own.exit_loop[own.counted] == NEVER).sum()))))
    return rows


def cell(value: float) -> str:
    """A number that reads back the same; "" where it is undefined."""
    return repr(value) if math.isfinite(value) else ""


def summary(swept: Sequence[Swept]) -> tuple[Row, ...]:
    """One row per rule, the smallest gap to the oracle first, and what it costs at equal quality.

    Too few prompts leave the gap and the gain blank, and the first interval says why.
    """
    rows: list[Row] = [("rule", "gap (nats)", "95 % interval", "gain over fixed k", "95 % interval", "loops*", "operations*")]
    for one in sorted(swept, key=lambda one: math.inf if math.isnan(one.gap.value) else one.gap.value):
        close = next((point for point in one.points if CLOSE.met_by(point)), None)
        costs = ("", "") if close is None else (short(close.mean_loops), short(close.flops))
        between = f"needs {FEWEST_PROMPTS} prompts, has {one.prompts}" if _too_few(one) else _range(one.gap)
        gap, gain = (short(one.gap.value), between), (short(one.gain.value), _range(one.gain))
        rows.append((titled(one.rule), *gap, *gain, *costs))
    return tuple(rows)


def ranking_words(swept: Sequence[Swept]) -> str:
    """What gap and gain are, or why they are blank: for the foot of the summary."""
    if any(math.isfinite(one.gap.value) for one in swept):
        return GAP_WORDS
    if any(one.ground.loops == 1 for one in swept):
        return "With one loop there is nothing to leave early, so no rule is ranked; give at least 2 loops."
    if not any(one.ground.lens for one in swept):
        return "No quality after an exit is known here, so no rule is ranked; sweep.csv has loops and operations."
    few = [one.prompts for one in swept if _too_few(one)]
    if few:
        return (
            f"gap and gain are blank and no rule is ranked: an interval resamples at least {FEWEST_PROMPTS} windows, and "
            f"there {'is' if max(few) == 1 else 'are'} {max(few)}; give a longer text, or a shorter --window."
        )
    return "No cross-entropy of a next token is known here; sweep.csv compares by agreement and divergence."


def _too_few(one: Swept) -> bool:
    """Whether too few prompts are why there is no gap."""
    known = one.oracle is not None and one.ground.loops > 1 and bool(one.points)
    return known and one.prompts < FEWEST_PROMPTS


def reached_rows(reached: Sequence[Reached]) -> tuple[Row, ...]:
    """One row per rule: the calibrated threshold, what it gives on that text and on the held-out one, and whether it holds."""
    rows: list[Row] = [
        ("rule", "threshold", "loops", "cross-entropy", "held-out loops", "held-out cross-entropy", "full depth", "met there")
    ]
    for one in reached:
        if one.calibration is None:
            rows.append((titled(one.rule), *[""] * 7))
            continue
        there, held = one.calibration, one.held_out
        held_cells = ("", "", "", "")
        if held is not None:
            met = "yes" if one.goal.met_by(held) else "no"
            held_cells = (short(held.mean_loops), short(held.cross_entropy), short(held.full_depth), met)
        threshold = f"{there.rule.threshold:.4g}"
        rows.append((titled(one.rule), threshold, short(there.mean_loops), short(there.cross_entropy), *held_cells))
    return tuple(rows)


def short(value: float) -> str:
    """Four digits, "" where undefined."""
    return f"{value:.4g}" if math.isfinite(value) else ""


def _range(number: Interval) -> str:
    return f"{number.lower:.4g} to {number.upper:.4g}" if math.isfinite(number.lower) else ""
