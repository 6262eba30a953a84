"""UMAP: a neighbour-preserving picture of the iterates; its lengths and axes mean nothing."""

import hashlib
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64

from analysis.projection import Points, Projected, ProjectionError

_MERGE = 1e-6
"""Relative distance below which two iterates of one path are one point: float32 rounding of a converged state."""

_FEWEST = 4
_REMEMBERED = 16
_lock = threading.Lock()
"""Two fits at once can abort the process (numba's threading layer), so there is one at a time."""

_done: "OrderedDict[str, Float64[np.ndarray, 'rows dims']]" = OrderedDict()
"""Coordinates of recent fits: a moved threshold and an export show what is on screen and do not fit again."""


@dataclass(frozen=True)
class UMAP:
    """UMAP of the fitted states, started from their PCA (McInnes, Healy, Melville 2018, arXiv 1802.03426).

    States of one token that no longer move are merged before the fit and share their coordinates. The result
    depends on the order of the rows, which is fixed, on the seed, the machine and the versions of the libraries.
    """

    name: ClassVar[str] = "umap"
    title: ClassVar[str] = "UMAP"

    seed: int = 0
    neighbours: int = 15
    min_dist: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ProjectionError(f"The seed of UMAP is {self.seed}; give a whole number from 0 to 2^32 - 1.")
        if self.neighbours < 2:
            raise ProjectionError(f"UMAP was given {self.neighbours} neighbours; give 2 or more.")
        if not 0 <= self.min_dist <= 1:
            raise ProjectionError(f"The min_dist of UMAP is {self.min_dist}; give a number from 0 to 1.")

    def project(self, points: Points, *, dims: Literal[2, 3]) -> Projected:
        """Coordinates without unit, ``rows dims``; rows outside the fit are placed by UMAP's transform.

        Raises ProjectionError when the fitted states hold fewer than 4 distinct points.
        """
        fitted = np.flatnonzero(points.fit)
        members = fitted[_representatives(points, fitted)]
        distinct, owner = np.unique(members, return_inverse=True)
        if len(distinct) < _FEWEST:
            raise ProjectionError(
                f"UMAP needs at least {_FEWEST} distinct points and got {len(distinct)}; "
                "choose more tokens, blocks or loops, or PCA."
            )
        used = min(self.neighbours, len(distinct) - 1)
        others = np.flatnonzero(~points.fit)
        placed = self._place(points.vectors[distinct], points.vectors[others], neighbours=used, dims=dims)
        coordinates = np.empty((len(points.vectors), dims))
        coordinates[fitted] = placed[: len(distinct)][owner]
        coordinates[others] = placed[len(distinct) :]
        return Projected(
            coordinates=coordinates,
            axis_titles=tuple(f"UMAP {i + 1} (no unit)" for i in range(dims)),
            equal=False,
            caption=self._caption(fitted=len(fitted), distinct=len(distinct), others=len(others), used=used),
        )

    def _caption(self, *, fitted: int, distinct: int, others: int, used: int) -> str:
        asked = f" ({self.neighbours} asked for)" if used < self.neighbours else ""
        merged = f", {fitted - distinct} that repeat one of them were merged" if fitted > distinct else ""
        placed = f" The {others} states outside the fit were placed afterwards." if others else ""
        return (
            f"UMAP of {distinct} distinct states (k ≥ 1{merged}) with {used} neighbours{asked}, min_dist {self.min_dist:g}, "
            f"seed {self.seed}, started from PCA; distances between groups mean little, and the picture can only be had "
            f"again on the same machine and versions.{placed}"
        )

    def _place(self, fit: np.ndarray, others: np.ndarray, *, neighbours: int, dims: int) -> Float64[np.ndarray, "rows dims"]:
        """Coordinates of the fit rows, then of the others; remembered for the same input."""
        digest = hashlib.sha256(f"{self}{neighbours}{dims}{fit.shape}{others.shape}".encode())
        digest.update(np.ascontiguousarray(fit).data)
        digest.update(np.ascontiguousarray(others).data)
        key = digest.hexdigest()
        with _lock:
            if key not in _done:
                _done[key] = _fit(self, fit, others, neighbours=neighbours, dims=dims)
                while len(_done) > _REMEMBERED:
                    _done.popitem(last=False)
            _done.move_to_end(key)
            return _done[key]


def _fit(options: UMAP, fit: np.ndarray, others: np.ndarray, *, neighbours: int, dims: int) -> Float64[np.ndarray, "rows dims"]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tensorflow not installed", category=ImportWarning)
        # The import compiles and takes tens of seconds; PCA, which one sees first, must not wait for it.
        import umap
    mapper: Any = umap.UMAP(
        n_components=dims,
        n_neighbors=neighbours,
        min_dist=options.min_dist,
        random_state=options.seed,
        transform_seed=options.seed,
        # Paths of different blocks are often unconnected in the neighbour graph, which the spectral start handles badly
        # (and refuses for a handful of points); starting from PCA keeps the large scale (Kobak, Linderman 2021).
        init="pca" if min(fit.shape) >= dims else "random",
        n_jobs=1,
    )
    placed: list[np.ndarray] = [np.asarray(mapper.fit_transform(fit))]
    if len(others):
        placed.append(np.asarray(mapper.transform(others)))
    return np.concatenate(placed).astype(np.float64)


def _representatives(points: Points, rows: Int64[np.ndarray, " fitted"]) -> Int64[np.ndarray, " fitted"]:
    """For each fitted row the index (into ``rows``) of the row that stands for it.

    Along each token's path through one block a state within rounding of the path's last kept state is merged into it;
    states that are equal to the bit are merged wherever they are.
    """
    vectors = points.vectors[rows].astype(np.float64)
    keeper = np.arange(len(rows), dtype=np.int64)
    order = np.lexsort((points.loop[rows], points.position[rows], points.block[rows]))
    for before, here in pairwise(order):
        same_path = points.position[rows[before]] == points.position[rows[here]]
        if not (same_path and points.block[rows[before]] == points.block[rows[here]]):
            continue
        candidate = keeper[before]
        if np.linalg.norm(vectors[here] - vectors[candidate]) <= _MERGE * np.linalg.norm(vectors[candidate]):
            keeper[here] = candidate
    _, first, group = np.unique(vectors[keeper], axis=0, return_index=True, return_inverse=True)
    return keeper[first][group.ravel()]
