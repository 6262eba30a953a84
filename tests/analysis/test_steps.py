"""Kernels against closed forms, against their own algebra, and at the edges where a value is undefined."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import steps

DEGREES = math.pi / 180


def contraction(loops: int) -> np.ndarray:
    """x* = (10, 0), x_0 = (18, 0), each offset half as long and turned by 30 degrees: one token, width 2."""
    offset = np.array([8.0, 0.0])
    turn = 0.5 * np.array([[math.cos(30 * DEGREES), -math.sin(30 * DEGREES)], [math.sin(30 * DEGREES), math.cos(30 * DEGREES)]])
    rows = [offset := offset if k == 0 else turn @ offset for k in range(loops + 1)]
    return (np.stack(rows) + np.array([10.0, 0.0]))[:, None, :]


STEP_NORMS = [4.957255, 2.478627, 1.239314, 0.619657, 0.309828, 0.154914]
ACCELERATIONS = [3.071797, 1.535898, 0.767949, 0.383975, 0.191987]
RELATIVE = [0.364187, 0.222587, 0.123316, 0.063492, 0.031666, 0.015688, 0.007788]


def test_contraction_with_a_known_answer() -> None:
    states = contraction(7)
    np.testing.assert_allclose(steps.step_norms(states)[:6, 0], STEP_NORMS, atol=1e-6, rtol=0)
    np.testing.assert_allclose(steps.accelerations(states)[1:6, 0], ACCELERATIONS, atol=1e-6, rtol=0)
    np.testing.assert_allclose(steps.relative_step_norms(states)[:, 0], RELATIVE, atol=1e-6, rtol=0)
    np.testing.assert_allclose(steps.angles(steps.step_cosines(states))[1:, 0], 30.0, atol=1e-6, rtol=0)


@pytest.mark.parametrize("eigenvalues", [(0.9, 0.5), (0.5, -0.25), (0.99, 0.1)])
def test_linear_map_with_known_eigenvalues(eigenvalues: tuple[float, float]) -> None:
    """Along eigenvectors the k-th step is lambda^(k-1) (lambda - 1) times the start, so everything is known."""
    loops, values = 9, np.array(eigenvalues)
    start = np.array([3.0, 2.0])
    states = np.stack([values**k * start for k in range(loops + 1)])
    expected = np.stack([values ** (k - 1) * (values - 1) * start for k in range(1, loops + 1)])
    np.testing.assert_allclose(steps.steps(states), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(steps.step_norms(states), np.linalg.norm(expected, axis=1), rtol=1e-12)
    turned = np.stack([values ** (k - 2) * (values - 1) ** 2 * start for k in range(2, loops + 1)])
    np.testing.assert_allclose(steps.accelerations(states)[1:], np.linalg.norm(turned, axis=1), rtol=1e-10)


@pytest.mark.parametrize(("eigenvalue", "cosine"), [(0.5, 1.0), (-0.5, -1.0)])
def test_one_eigenvalue_keeps_or_flips_the_direction(eigenvalue: float, cosine: float) -> None:
    states = np.stack([eigenvalue**k * np.array([1.0, -2.0, 3.0]) for k in range(6)]).astype(np.float32)
    np.testing.assert_allclose(steps.step_cosines(states)[1:], cosine, atol=1e-6)


def test_float32_input_is_computed_in_float64() -> None:
    """Small steps of long states: sums of squares in float32 would be off by far more than 1e-12."""
    generator = np.random.default_rng(0)
    states = np.cumsum(generator.normal(size=(6, 4, 4096)) * 1e-3, axis=0).astype(np.float32) + np.float32(1.0)
    exact = states.astype(np.float64)
    for kernel in (steps.step_norms, steps.step_cosines, steps.accelerations, steps.relative_step_norms):
        found = kernel(states)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, kernel(exact))
    np.testing.assert_allclose(steps.step_norms(states), np.linalg.norm(np.diff(exact, axis=0), axis=-1), rtol=1e-12)


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("loops", [1, 2, 3])
def test_short_runs_keep_their_axes(loops: int, tokens: int) -> None:
    """K step norms; K-1 cosines and accelerations, with the undefined first row kept in place."""
    states = np.random.default_rng(loops).normal(size=(loops + 1, tokens, 3)).astype(np.float32)
    for kernel, undefined in ((steps.step_norms, 0), (steps.step_cosines, 1), (steps.accelerations, 1)):
        found = kernel(states)
        assert found.shape == (loops, tokens)
        assert np.isnan(found[:undefined]).all()
        assert np.isfinite(found[undefined:]).all()


def test_undefined_is_nan_never_zero() -> None:
    still = np.zeros((4, 1, 3))
    assert np.isnan(steps.step_cosines(still)).all()  # a step of length zero has no direction
    assert np.isnan(steps.relative_step_norms(still)).all()  # nor has a zero state a scale
    np.testing.assert_array_equal(steps.step_norms(still), 0.0)
    np.testing.assert_array_equal(steps.ratio(np.array([1.0, 0.0, np.inf]), np.array([0.0, 0.0, 2.0])), [np.nan] * 3)


def test_a_non_finite_state_spoils_its_own_loops_only() -> None:
    states = np.random.default_rng(0).normal(size=(9, 3, 4))
    clean = states.copy()
    states[5:, 2, 1] = np.inf
    for kernel in (steps.step_norms, steps.step_cosines, steps.accelerations):
        found, wanted = kernel(states), kernel(clean)
        np.testing.assert_array_equal(found[:4], wanted[:4])
        np.testing.assert_array_equal(found[:, :2], wanted[:, :2])
        assert np.isnan(found[4:, 2]).all()


def test_cosines_past_one_are_clipped() -> None:
    assert steps.angles(np.array([1.0 + 1e-7, -1.0 - 1e-7])).tolist() == [0.0, 180.0]
    generator = np.random.default_rng(1)
    direction = generator.normal(size=(1, 200, 64)).astype(np.float32)
    states = np.concatenate([direction * k for k in range(4)])
    cosines = steps.step_cosines(states)[1:]
    assert (cosines <= 1.0).all()
    assert np.isfinite(steps.angles(cosines)).all()


shapes = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(0, 2**32 - 1))


def made(shape: tuple[int, int, int, int]) -> np.ndarray:
    loops, tokens, width, seed = shape
    return np.random.default_rng(seed).normal(size=(loops + 1, tokens, width))


@given(shapes, st.floats(1e-3, 1e3))
def test_scaling_scales_norms_and_leaves_angles(shape: tuple[int, int, int, int], factor: float) -> None:
    states = made(shape)
    np.testing.assert_allclose(steps.step_norms(states * factor), steps.step_norms(states) * factor, rtol=1e-9)
    np.testing.assert_allclose(steps.accelerations(states * factor), steps.accelerations(states) * factor, rtol=1e-9)
    np.testing.assert_allclose(steps.step_cosines(states * factor), steps.step_cosines(states), rtol=0, atol=1e-9)
    np.testing.assert_allclose(steps.relative_step_norms(states * factor), steps.relative_step_norms(states), rtol=1e-9)


@given(shapes)
def test_shifting_and_rotating_change_no_step(shape: tuple[int, int, int, int]) -> None:
    states = made(shape)
    rotation, _ = np.linalg.qr(np.random.default_rng(7).normal(size=(states.shape[-1],) * 2))
    moved = states @ rotation + 5.0
    for kernel in (steps.step_norms, steps.accelerations, steps.step_cosines):
        np.testing.assert_allclose(kernel(moved), kernel(states), rtol=0, atol=1e-9)


@given(shapes)
def test_acceleration_follows_from_norms_and_cosine(shape: tuple[int, int, int, int]) -> None:
    """Law of cosines: a^2 = d_k^2 + d_(k-1)^2 - 2 d_k d_(k-1) cos."""
    states = made(shape)
    size, cosine = steps.step_norms(states), steps.step_cosines(states)
    squared = size[1:] ** 2 + size[:-1] ** 2 - 2 * size[1:] * size[:-1] * cosine[1:]
    np.testing.assert_allclose(steps.accelerations(states)[1:] ** 2, squared, rtol=1e-7, atol=1e-12)
    assert (steps.accelerations(states)[1:] <= size[1:] + size[:-1] + 1e-12).all()
