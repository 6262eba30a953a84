"""A rule's threshold in quantiles of its own scores: which share of them stops, and the threshold at which a share does."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from analysis.exit_rule import ExitRule, rule_scores
from model.capture.trajectory import Trajectory

Levels = Float64[np.ndarray, " levels"]
"""A threshold per level, the strictest first."""

HIGHEST = 100
"""Levels are whole per cents, 0 to 100."""


def score_levels(rule: ExitRule, trajectories: Sequence[Trajectory], block: int) -> Levels:
    """The threshold at each level: that many per cent of the block's defined scores are strictly on its stopping side.

    Thresholds are scores that occur, the strictest first. Empty where no score is defined. Raises MissingReadout when the
    runs lack what the rule needs.
    """
    scores = np.concatenate([rule_scores(rule, trajectory, block).ravel() for trajectory in trajectories])
    signed = _signed(rule, scores[np.isfinite(scores)])
    if not len(signed):
        return np.zeros(0)
    return _signed(rule, np.quantile(signed, np.linspace(0, 1, HIGHEST + 1), method="inverted_cdf"))


def threshold_at(levels: Levels, level: int) -> float:
    """The threshold of a level."""
    return float(levels[level])


def level_of(rule: ExitRule, levels: Levels, threshold: float) -> int:
    """The lowest level whose threshold is at least as loose as this one; the highest level where none is."""
    found = int(np.searchsorted(_signed(rule, levels), _signed(rule, np.float64(threshold))))
    return min(found, HIGHEST)


def _signed(rule: ExitRule, values: np.ndarray | np.float64) -> np.ndarray:
    """Values whose stopping side is below."""
    return np.asarray(values if rule.stops in ("<", "<=") else -values)
