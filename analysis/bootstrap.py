"""Bootstrap over prompts: how much a number depends on which prompts happened to be in the text."""

import numpy as np
from jaxtyping import Float64, Int64

RESAMPLES = 1_000
FEWEST_PROMPTS = 5
"""With fewer prompts the resamples are too alike for an interval, and it is left blank."""

_OUTSIDE = 2.5  # per cent on either side of a 95 % interval


def resamples(prompts: int, *, seed: int = 0, count: int = RESAMPLES) -> Float64[np.ndarray, "resamples prompts"]:
    """How often each prompt is drawn, when as many are drawn with replacement; equal seeds give equal draws."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(prompts, np.full(prompts, 1 / prompts), size=count).astype(np.float64)


def per_prompt(
    values: Float64[np.ndarray, "rows tokens"], prompt: Int64[np.ndarray, " tokens"], prompts: int
) -> Float64[np.ndarray, "rows prompts"]:
    """Sums over each prompt's tokens: all that a mean over resampled prompts needs."""
    member = (prompt[:, None] == np.arange(prompts)).astype(np.float64)
    return values @ member


def resampled_means(
    sums: Float64[np.ndarray, "rows prompts"],
    tokens: Float64[np.ndarray, " prompts"],
    weights: Float64[np.ndarray, "resamples prompts"],
) -> Float64[np.ndarray, "resamples rows"]:
    """Mean over tokens in every resample; a prompt brings all its tokens. NaN of no token."""
    drawn = np.broadcast_to((weights @ tokens)[:, None], (len(weights), len(sums)))
    return np.divide(weights @ sums.T, drawn, out=np.full(drawn.shape, np.nan), where=drawn > 0)


def interval(values: Float64[np.ndarray, "resamples ..."]) -> Float64[np.ndarray, "two ..."]:
    """Lower and upper end of the 95 % percentile interval (Efron's); NaN where there are no resamples."""
    if not len(values):
        return np.full((2, *values.shape[1:]), np.nan)
    return np.percentile(values, [_OUTSIDE, 100 - _OUTSIDE], axis=0)
