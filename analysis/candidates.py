"""Thresholds of an exit rule that are worth trying on a text, and where it fires at each of them."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float64, Int64

from analysis.exit_rule import NEVER, ExitRule
from analysis.rule_fields import counts_loops


def exit_loops(
    rule: ExitRule, scores: Float64[np.ndarray, "loops tokens"], thresholds: Float64[np.ndarray, " points"]
) -> Int64[np.ndarray, "points tokens"]:
    """Where the rule fires at each threshold, NEVER where it does not: ``exits_from_scores`` for many thresholds at once."""
    worst = _signed(rule, scores)
    for lag in range(1, rule.patience):
        earlier = np.full(scores.shape, np.inf)
        earlier[lag:] = _signed(rule, scores)[: len(scores) - lag] if lag < len(scores) else np.inf
        worst = np.maximum(worst, earlier)
    worst[: rule.minimum_loops - 1] = np.inf
    best = np.minimum.accumulate(worst, axis=0)
    strict = rule.stops in ("<", ">")
    found = np.empty((len(thresholds), scores.shape[1]), dtype=np.int64)
    for row, threshold in enumerate(thresholds if rule.stops in ("<", "<=") else -thresholds):
        waits = (best >= threshold) if strict else (best > threshold)
        found[row] = (waits | np.isinf(best)).sum(axis=0) + 1
    return np.where(found > len(scores), NEVER, found)


def _signed(rule: ExitRule, scores: np.ndarray) -> np.ndarray:
    """Scores whose stopping side is below the threshold; what is not finite never stops anything."""
    return np.where(np.isfinite(scores), scores if rule.stops in ("<", "<=") else -scores, np.inf)


def score_quantiles(
    rule: ExitRule, scores: Float64[np.ndarray, "loops tokens"], *, points: int
) -> Float64[np.ndarray, " thresholds"]:
    """Thresholds worth trying, the loosest first: quantiles of the scores, one that none reaches and one that all do.

    Quantiles are scores that occur, each once, so that ties of a rule with few values give few thresholds. A threshold that
    none reaches is left out where it would lie below the range of the score: an oracle has no use for it. Of a rule that
    counts loops all are whole.
    """
    signed = _signed(rule, scores)
    values = np.unique(signed[np.isfinite(signed)])
    if not len(values):
        return np.zeros(0)
    if len(values) > max(points, len(scores)):  # a rule that counts loops is tried at every loop
        found = np.quantile(signed[np.isfinite(signed)], np.linspace(0, 1, points), method="inverted_cdf")
        values = np.unique(found)
    ends = (
        np.append(values, _past(rule, values[-1])) if rule.stops in ("<", ">") else np.append(-_past(rule, -values[0]), values)
    )
    found = ends[::-1].copy() if rule.stops in ("<", "<=") else -ends[::-1]
    return found[found >= rule.lowest]


def _past(rule: ExitRule, value: float) -> float:
    """The next threshold above a score: a loop more where loops are counted, else a step of float32, in which some compare."""
    if counts_loops(rule):
        return value + 1.0
    with np.errstate(over="ignore"):
        past = float(np.nextafter(np.float32(value), np.float32(np.inf)))
    return past if np.isfinite(past) else float(np.nextafter(value, np.inf))


def with_threshold(rule: ExitRule, threshold: float) -> ExitRule:
    """The same rule with another threshold."""
    return cast("ExitRule", replace(cast("Any", rule), threshold=threshold))
