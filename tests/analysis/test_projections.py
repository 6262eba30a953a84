"""Projections: what every one promises, PCA against an SVD, UMAP with few, equal and repeated points."""

import dataclasses
import threading
from typing import Any, Literal

import numpy as np
import pytest

from analysis.projection import Points, Projected, ProjectionError, gather, projections
from analysis.projections.pca import PCA
from analysis.projections.umap import UMAP
from model.capture.trajectory import Trajectory
from tests.toys import toy_block, toy_run, toy_trajectory


def cloud(vectors: np.ndarray, *, position: np.ndarray | None = None, loop: np.ndarray | None = None) -> Points:
    rows = len(vectors)
    loops = np.ones(rows, dtype=np.int64) if loop is None else loop
    return Points(
        vectors=vectors.astype(np.float32),
        position=np.arange(rows) if position is None else position,
        block=np.zeros(rows, dtype=np.int64),
        loop=loops,
        fit=loops >= 1,
    )


def toy_points(**sizes: int) -> Points:
    trajectory = toy_trajectory(**sizes)  # type: ignore[arg-type]
    return gather(trajectory, range(len(trajectory.blocks)))


@pytest.mark.parametrize("name", sorted(projections()))
def test_registered_projection_is_documented_frozen_and_hashable(name: str) -> None:
    kind = projections()[name]
    one: Any = kind()
    assert kind.__doc__
    assert kind.project.__doc__
    assert hash(one) == hash(kind())
    assert one.name == name
    assert one.title
    assert not {field.name for field in dataclasses.fields(one)} & {"name", "title"}


def test_pca_matches_a_singular_value_decomposition() -> None:
    points = toy_points(loops=6, tokens=4, width=9)
    result = PCA().project(points, dims=3)
    fitted = points.vectors[points.fit].astype(np.float64)
    centre = fitted.mean(axis=0)
    _, singular, rows = np.linalg.svd(fitted - centre, full_matrices=False)
    expected = (points.vectors - centre) @ rows[:3].T
    np.testing.assert_allclose(np.abs(result.coordinates), np.abs(expected), atol=1e-8)
    shares = singular**2 / np.sum(singular**2)
    assert result.axis_titles == tuple(f"PC{i + 1} ({100 * shares[i]:.1f} % variance)" for i in range(3))
    assert result.equal


@pytest.mark.parametrize("width", [3, 40])  # more rows than width, and fewer: two ways to the same axes
def test_pca_sign_is_that_of_the_largest_loading(width: int) -> None:
    vectors = np.random.default_rng(1).normal(size=(12, width))
    for flipped in (vectors, -vectors):
        points = cloud(flipped)
        coordinates = PCA().project(points, dims=2).coordinates
        centred = points.vectors.astype(np.float64) - points.vectors.astype(np.float64).mean(axis=0)
        for column in coordinates.T:
            loading = column @ centred
            assert loading[np.abs(loading).argmax()] > 0


def test_pca_is_fitted_on_the_fit_rows_alone_and_projects_the_others() -> None:
    vectors = np.random.default_rng(2).normal(size=(10, 4))
    loop = np.repeat([1, 0], [8, 2])
    far = vectors.copy()
    far[8:] *= 1000
    near, moved = (PCA().project(cloud(v, loop=loop), dims=2) for v in (vectors, far))
    np.testing.assert_array_equal(near.coordinates[:8], moved.coordinates[:8])
    assert np.abs(moved.coordinates[8:]).max() > 100
    assert "8 states (k ≥ 1)" in near.caption


def outlier(loops: int) -> Trajectory:
    """64 tokens of noise of which the first is 50 times as large."""
    states = np.random.default_rng(0).normal(size=(loops + 1, 64, 64))
    states[:, 0] *= 50
    return dataclasses.replace(toy_trajectory(tokens=64, loops=loops, blocks=1), blocks=(toy_block(states),))


def first_share(result: Projected) -> float:
    return float(result.axis_titles[0].removeprefix("PC1 (").split(" ")[0])


def test_a_token_that_dwarfs_all_others_is_named_and_can_be_left_out() -> None:  # case S2
    with_it = PCA().project(gather(outlier(1), (0,)), dims=2)
    assert 96 < first_share(with_it) < 99.5
    assert [warning.split(" of the spread")[0] for warning in with_it.warnings] == ["Token #0 alone holds 97 %"]
    for points in (gather(outlier(1), (0,), leave_out=(0,)), gather(outlier(1), (0,), norm_limit=5.0)):
        without = PCA().project(points, dims=2)
        assert first_share(without) < 20
        assert without.warnings == ()
        assert points.left_out == ("1 token left out (#0)",)


def test_a_far_token_is_named_also_where_it_fills_several_axes() -> None:
    result = PCA().project(gather(outlier(2), (0,)), dims=2)
    assert first_share(result) < 60
    assert "Token #0 alone" in result.warnings[0]


def test_pca_gives_fewer_columns_where_the_states_span_fewer_dimensions() -> None:
    direction = np.random.default_rng(3).normal(size=5)
    result = PCA().project(cloud(np.outer(np.arange(4.0), direction)), dims=3)
    assert result.coordinates.shape == (4, 1)
    assert result.axis_titles == ("PC1 (100.0 % variance)",)
    assert result.warnings == ("The fitted states span 1 dimension only, not 3.",)


@pytest.mark.parametrize(("rows", "says"), [(1, "at least 2 states"), (5, "the same point")])
def test_pca_refuses_a_single_point_with_a_sentence(rows: int, says: str) -> None:
    with pytest.raises(ProjectionError, match=says):
        PCA().project(cloud(np.ones((rows, 4))), dims=2)


def test_projecting_does_not_change_its_input() -> None:
    points = toy_points(loops=3, tokens=3)
    before = points.vectors.copy()
    PCA().project(points, dims=2)
    np.testing.assert_array_equal(points.vectors, before)


def test_gather_needs_stored_states() -> None:
    trajectory = toy_trajectory(blocks=1)
    bare = dataclasses.replace(
        trajectory.blocks[0],
        loop_index=np.empty(0, dtype=np.int64),
        states=np.empty((0, 5, 6), dtype=np.float32),
    )
    with pytest.raises(ProjectionError, match="run again with states stored"):
        gather(dataclasses.replace(trajectory, blocks=(bare,)), (0,))


@pytest.mark.parametrize("distinct", [1, 2, 3])
def test_umap_refuses_fewer_than_four_distinct_points(distinct: int) -> None:  # case P1
    vectors = np.repeat(np.random.default_rng(0).normal(size=(distinct, 4)), 3, axis=0)
    with pytest.raises(ProjectionError, match=f"needs at least 4 distinct points and got {distinct}"):
        UMAP().project(cloud(vectors), dims=2)


def test_umap_counts_a_converged_tail_as_one_point() -> None:
    """Four loops of one token, the last two within float32 rounding of each other: three distinct points."""
    vectors = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    vectors[3] = vectors[2] * np.float32(1 + 2e-7)
    with pytest.raises(ProjectionError, match="got 3"):
        UMAP().project(cloud(vectors, position=np.zeros(4, dtype=np.int64), loop=np.arange(1, 5)), dims=2)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"neighbours": 1}, {"min_dist": 2.0}])
def test_umap_refuses_senseless_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProjectionError, match="give"):
        UMAP(**wrong)


@pytest.mark.slow
class TestUmapFits:
    """Every test here really fits; the first one compiles for tens of seconds."""

    @pytest.mark.parametrize("dims", [2, 3])
    def test_four_points_and_clamped_neighbours(self, dims: Literal[2, 3]) -> None:  # case P1
        result = UMAP().project(cloud(np.random.default_rng(0).normal(size=(4, 6))), dims=dims)
        assert result.coordinates.shape == (4, dims)
        assert np.isfinite(result.coordinates).all()
        assert "with 3 neighbours (15 asked for)" in result.caption
        assert "same machine and versions" in result.caption
        assert "seed 0" in result.caption
        assert result.axis_titles == tuple(f"UMAP {i + 1} (no unit)" for i in range(dims))
        assert not result.equal

    def test_same_input_same_coordinates_with_and_without_memory(self) -> None:  # case P2
        from analysis.projections import umap as adapter

        points = toy_points(loops=5, tokens=3)
        first = UMAP(seed=3).project(points, dims=2).coordinates
        again = UMAP(seed=3).project(points, dims=2).coordinates
        adapter._done.clear()  # pyright: ignore[reportPrivateUsage]
        fresh = UMAP(seed=3).project(points, dims=2).coordinates
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first, fresh)
        assert not np.allclose(first, UMAP(seed=4).project(points, dims=2).coordinates)

    def test_repeated_states_share_a_place_and_initial_states_are_placed(self) -> None:
        states = np.random.default_rng(0).normal(size=(8, 3, 5))
        states[6:] = states[5]
        trajectory = dataclasses.replace(toy_trajectory(tokens=3, loops=7, blocks=1), blocks=(toy_block(states),))
        points = gather(trajectory, (0,))
        result = UMAP().project(points, dims=2)
        assert np.isfinite(result.coordinates).all()
        for position in range(3):
            tail = result.coordinates[(points.position == position) & (points.loop >= 5)]
            np.testing.assert_array_equal(tail, np.repeat(tail[:1], 3, axis=0))
        assert "15 distinct states (k ≥ 1, 6 that repeat one of them were merged)" in result.caption
        assert "3 states outside the fit were placed afterwards" in result.caption

    def test_groups_that_share_no_neighbour_warn_of_nothing(self) -> None:
        generator = np.random.default_rng(0)
        groups = np.concatenate([generator.normal(size=(20, 8)) + 1000 * g * np.eye(8)[g] for g in range(4)])
        result = UMAP(neighbours=5).project(cloud(groups), dims=2)
        centres = result.coordinates.reshape(4, 20, 2).mean(axis=1)
        spread = result.coordinates.reshape(4, 20, 2).std(axis=1).max()
        apart = min(np.linalg.norm(centres[a] - centres[b]) for a in range(4) for b in range(a))
        assert apart > spread

    def test_two_threads_at_once(self) -> None:  # case P3
        done: list[np.ndarray] = []

        def work(seed: int) -> None:
            done.append(UMAP(seed=seed).project(toy_points(loops=4, tokens=3), dims=2).coordinates)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (11, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 2

    def test_trajectory_chart_draws_it_without_equal_axes(self) -> None:
        from analysis.chart import View
        from analysis.charts.trajectory import TrajectoryChart

        chart = TrajectoryChart(projection=UMAP()).build(View(run=toy_run(prompts=1, loops=5, tokens=3)))
        assert chart.panels[0].x.title == "UMAP 1 (no unit)"
        assert not chart.panels[0].equal
        assert "UMAP of" in chart.caption
