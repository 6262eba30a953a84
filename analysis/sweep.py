"""Exit rules x thresholds x prompts -> table: each rule at every threshold that its own scores suggest, post hoc."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from analysis.bootstrap import FEWEST_PROMPTS, interval, per_prompt, resampled_means, resamples
from analysis.candidates import exit_loops, score_quantiles, with_threshold
from analysis.comparison import Compared, ComparisonError, Ground, flops_share, ground_of, measured
from analysis.exit_rule import NEVER, ExitRule, rule_scores
from analysis.floor import threshold_floor
from analysis.frontier import Oracle, envelope_area, oracle
from model.capture.trajectory import Trajectory
from model.card import Flops

POINTS = 32


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % bootstrap interval over prompts, in nats; all NaN where undefined or of fewer than 5 prompts."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Fixed:
    """Every token after the same number of loops, 1..K: the null of every comparison. Undefined is NaN."""

    loops: Float64[np.ndarray, " loops"]
    cross_entropy: Float64[np.ndarray, " loops"]
    agreement: Float64[np.ndarray, " loops"]
    flops: Float64[np.ndarray, " loops"]


GAP_WORDS = (
    "gap: cross-entropy above the oracle (the best loop of every token within a budget), the mean over budgets from 1 loop to "
    "K. At each budget a rule has the best that mixing its thresholds gives (its lower convex hull, chosen on this very text), "
    "and one loop where it cannot stop that early. gain: the gap of fixed k minus the rule's. Few tokens rank nothing."
)
"""What the two numbers per rule are, for the foot of a table."""


@dataclass(frozen=True)
class Swept:
    """One rule over its thresholds on one block.

    Attributes:
        rule: as it was given. points: one per threshold, the fewest mean loops first, none of equal thresholds.
        mean_loops, cross_entropy, agreement: ends of the 95 % interval of each point.
        excess: likewise of the cross-entropy above full depth, prompt by prompt: what prompts differ in cancels.
        prompts: those with a counted token. Of fewer than 5 there are no intervals, and neither gap nor gain: a number that
            cannot say how far it can be trusted ranks nothing.
        gap: cross-entropy above the oracle at the same mean loops, the mean over all budgets from 1 loop to K. The rule may
            mix neighbouring thresholds, one loop and full depth by chance (its lower convex envelope), so it is never
            below 0. 0 would be hindsight.
        gain: the gap of a fixed number of loops minus the rule's: above 0 the rule is worth its name.
        oracle: what no rule can be better than, None where there is no cross-entropy.
        fixed: every fixed number of loops, 1..K, on the same tokens: the null.
        floor: threshold below which the scores are rounding of the run's dtype; NaN where none is known.
    """

    rule: ExitRule
    ground: Ground
    points: tuple[Compared, ...]
    mean_loops: Float64[np.ndarray, "two points"]
    cross_entropy: Float64[np.ndarray, "two points"]
    agreement: Float64[np.ndarray, "two points"]
    excess: Float64[np.ndarray, "two points"]
    prompts: int
    gap: Interval
    gain: Interval
    oracle: Oracle | None
    fixed: Fixed
    floor: float


def sweep(
    rules: Sequence[ExitRule],
    trajectories: Sequence[Trajectory],
    block: int,
    *,
    points: int = POINTS,
    flops: Flops | None = None,
    seed: int = 0,
) -> tuple[Swept, ...]:
    """Every rule at up to ``points`` quantiles of its own scores, at the strictest and at the loosest threshold.

    Raises MissingReadout when the runs lack what a rule needs, ComparisonError when they cannot be put side by side.
    """
    if points < 2:
        raise ComparisonError(f"{points} thresholds per rule were asked for; give at least 2.")
    ground = ground_of(trajectories, block, flops=flops)
    shared: dict[bytes, _Shared] = {}
    return tuple(_swept(ground, rule, points=points, seed=seed, shared=shared) for rule in rules)


@dataclass(frozen=True)
class _Shared:
    """What rules that are judged on the same tokens share: oracle, null, resamples and the areas under both curves.

    Row 0 of the weights is the text as it is; the others are resamples, none for fewer than 5 prompts.
    """

    counted: Bool[np.ndarray, " tokens"]
    prompt: Int64[np.ndarray, " counted"]
    weights: Float64[np.ndarray, "weights prompts"]
    fixed: Fixed
    fixed_losses: Float64[np.ndarray, "weights loops"]
    fixed_areas: Float64[np.ndarray, " weights"]
    oracle: Oracle | None
    oracle_areas: Float64[np.ndarray, " weights"]

    def means(self, values: Float64[np.ndarray, "rows counted"]) -> Float64[np.ndarray, "weights rows"]:
        """Means over the counted tokens, for every row of the weights."""
        return _means(values, self.prompt, self.weights)


def _means(values: np.ndarray, prompt: np.ndarray, weights: np.ndarray) -> np.ndarray:
    prompts = weights.shape[1]
    tokens = np.bincount(prompt, minlength=prompts).astype(np.float64)
    return resampled_means(per_prompt(values, prompt, prompts), tokens, weights)


def _shared_by(ground: Ground, counted: np.ndarray, *, seed: int) -> _Shared:
    prompt, loss = ground.prompt[counted], ground.loss[:, counted]
    weights = _weights(prompt, len(ground.trajectories), seed=seed)
    losses = _means(loss, prompt, weights)
    depth = np.arange(1.0, ground.loops + 1)
    bound = oracle(loss) if len(prompt) and np.isfinite(loss).all() else None
    return _Shared(
        counted=counted,
        prompt=prompt,
        weights=weights,
        fixed=Fixed(
            loops=depth,
            cross_entropy=losses[0],
            agreement=_means(ground.agrees[:, counted], prompt, weights)[0],
            flops=np.array([flops_share(ground, "", loops) for loops in depth.tolist()]),
        ),
        fixed_losses=losses,
        fixed_areas=envelope_area(np.broadcast_to(depth, losses.shape), losses),
        oracle=bound,
        oracle_areas=np.full(len(weights), np.nan) if bound is None else bound.area(prompt, weights),
    )


def _weights(prompt: np.ndarray, prompts: int, *, seed: int) -> np.ndarray:
    used = np.unique(prompt)
    whole = np.ones((1, prompts))
    if len(used) < FEWEST_PROMPTS:
        return whole
    drawn = resamples(len(used), seed=seed)
    placed = np.zeros((len(drawn), prompts))
    placed[:, used] = drawn
    return np.concatenate([whole, placed])


def _swept(ground: Ground, rule: ExitRule, *, points: int, seed: int, shared: dict[bytes, _Shared]) -> Swept:
    scores = np.concatenate([rule_scores(rule, trajectory, ground.block) for trajectory in ground.trajectories], axis=1)
    counted = ground.counted & np.isfinite(scores[-1])
    key = counted.tobytes()
    if key not in shared:
        shared[key] = _shared_by(ground, counted, seed=seed)
    on = shared[key]
    thresholds = score_quantiles(rule, scores[:, counted], points=points)
    exit_loop = exit_loops(rule, scores, thresholds)
    ran = np.where(exit_loop == NEVER, ground.loops, exit_loop)[:, counted]
    at = (ran - 1, np.flatnonzero(counted))
    means, losses = on.means(ran.astype(np.float64)), on.means(ground.loss[at])
    areas = _area(on, means, losses)
    return Swept(
        rule=rule,
        ground=ground,
        points=tuple(
            measured(ground, with_threshold(rule, threshold), row, counted=counted)
            for threshold, row in zip(thresholds.tolist(), exit_loop, strict=True)
        ),
        mean_loops=interval(means[1:]),
        cross_entropy=interval(losses[1:]),
        agreement=interval(on.means(ground.agrees[at])[1:]),
        excess=interval((losses - on.fixed_losses[:, -1:])[1:]),
        prompts=len(np.unique(on.prompt)),
        gap=_per_budget(areas - on.oracle_areas, ground.loops),
        gain=_per_budget(on.fixed_areas - areas, ground.loops),
        oracle=on.oracle,
        fixed=on.fixed,
        floor=threshold_floor(rule, ground),
    )


def _area(on: _Shared, means: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Area under the envelope of the thresholds, one loop and full depth."""
    one, full = np.ones((len(means), 1)), np.full((len(means), 1), on.fixed.loops[-1])
    x = np.concatenate([one, means, full], axis=1)
    y = np.concatenate([on.fixed_losses[:, :1], losses, on.fixed_losses[:, -1:]], axis=1)
    return envelope_area(x, y)


def _per_budget(areas: np.ndarray, loops: int) -> Interval:
    """An area between one loop and K as a mean over budgets; NaN where there is one loop, or no resample for an interval."""
    if loops == 1 or len(areas) == 1:
        return Interval(float("nan"), float("nan"), float("nan"))
    lower, upper = interval(areas[1:] / (loops - 1))
    return Interval(float(areas[0] / (loops - 1)), float(lower), float(upper))
