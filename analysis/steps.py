"""Kernels on plain arrays of iterates, computed in float64: differences, norms, cosines."""

import numpy as np
from jaxtyping import Float, Float64


def steps(states: Float[np.ndarray, "stored *tokens width"]) -> Float64[np.ndarray, "steps *tokens width"]:
    """Loop steps x^(k) - x^(k-1), k = 1..K, of the states x^(0)..x^(K)."""
    return np.diff(states.astype(np.float64), axis=0)


def norms(vectors: Float[np.ndarray, "*shape width"]) -> Float64[np.ndarray, "*shape"]:
    """Euclidean norm over the last axis; NaN where a component is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        values = np.sqrt(np.sum(np.square(vectors.astype(np.float64)), axis=-1))
    return np.where(np.isfinite(values), values, np.nan)


def step_norms(states: Float[np.ndarray, "stored *tokens width"]) -> Float64[np.ndarray, " steps *tokens"]:
    """||x^(k) - x^(k-1)||_2 for k = 1..K."""
    with np.errstate(invalid="ignore"):
        return norms(steps(states))


def relative_step_norms(states: Float[np.ndarray, "stored *tokens width"]) -> Float64[np.ndarray, " steps *tokens"]:
    """||x^(k) - x^(k-1)|| / ||x^(k)|| for k = 1..K; NaN where the state is zero."""
    return ratio(step_norms(states), norms(states[1:]))


def step_cosines(states: Float[np.ndarray, "stored *tokens width"]) -> Float64[np.ndarray, " steps *tokens"]:
    """Cosine of consecutive steps, row r is loop r + 1; the first row is NaN, and so is every pair with a zero step."""
    with np.errstate(invalid="ignore"):
        delta = steps(states)
        sizes = norms(delta)
        products = np.sum(delta[1:] * delta[:-1], axis=-1)
    cosines = np.full(sizes.shape, np.nan)
    cosines[1:] = np.clip(ratio(products, sizes[1:] * sizes[:-1]), -1.0, 1.0)
    return cosines


def accelerations(states: Float[np.ndarray, "stored *tokens width"]) -> Float64[np.ndarray, " steps *tokens"]:
    """a^(k) = ||step k - step k-1||_2, row r is loop r + 1; the first row is NaN (arXiv 2509.23314, section 4)."""
    with np.errstate(invalid="ignore"):
        delta = steps(states)
        values = np.full(delta.shape[:-1], np.nan)
        values[1:] = norms(np.diff(delta, axis=0))
    return values


def angles(cosines: Float[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Angles in degrees; cosines that rounding pushed past 1 are clipped first."""
    return np.degrees(np.arccos(np.clip(cosines.astype(np.float64), -1.0, 1.0)))


def ratio(numerator: Float[np.ndarray, "*shape"], denominator: Float[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Elementwise quotient; NaN where the denominator is zero or anything is not finite."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = numerator.astype(np.float64) / denominator.astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)
