"""PCA: the straight view onto the iterates that shows most of their variance."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64

from analysis.caption import counted
from analysis.projection import Points, Projected, ProjectionError

_RANK_FLOOR = 1e-12
"""Share of the variance below which an axis is rounding of float64 and float32 states, and is not shown."""

_ALONE = 0.9
"""Share of the squared distances from the median state past which one token is said to make the axes alone."""


@dataclass(frozen=True)
class PCA:
    """Exact principal components of the fitted states, in float64 (Pearson 1901; Jolliffe 2002, chapter 2).

    The eigenvectors of the smaller one of X^T X and X X^T, so that neither many states nor a wide model makes it
    slow. A component's largest loading is positive: the picture never flips from run to run.
    """

    name: ClassVar[str] = "pca"
    title: ClassVar[str] = "PCA"

    def project(self, points: Points, *, dims: Literal[2, 3]) -> Projected:
        """Coordinates in units of the state, ``rows dims``; fewer columns where the states span fewer dimensions.

        Raises ProjectionError when the fitted states are one single point.
        """
        fitted = points.vectors[points.fit].astype(np.float64)
        if len(fitted) < 2:
            raise ProjectionError(
                f"PCA needs at least 2 states after loop 1 or later and got {len(fitted)}; choose more tokens, blocks or loops."
            )
        centre = fitted.mean(axis=0)
        components, shares = _axes(fitted - centre, dims)
        coordinates = (points.vectors.astype(np.float64) - centre) @ components
        found = coordinates.shape[1]
        notes = [] if found == dims else [f"The fitted states span {counted(found, 'dimension')} only, not {dims}."]
        notes += _token_alone(points.position[points.fit], fitted)
        percent = [f"{100 * share:.1f} %" for share in shares]
        tokens = len(np.unique(points.position[points.fit]))
        return Projected(
            coordinates=coordinates,
            axis_titles=tuple(f"PC{i + 1} ({text} variance)" for i, text in enumerate(percent)),
            equal=True,
            caption=f"PCA fitted on {len(fitted)} states (k ≥ 1) of {counted(tokens, 'token')}; "
            f"the axes hold {', '.join(percent)} of their variance.",
            warnings=tuple(notes),
        )


def _axes(
    centred: Float64[np.ndarray, "rows width"], dims: int
) -> tuple[Float64[np.ndarray, "width found"], Float64[np.ndarray, " found"]]:
    """Leading components as columns, and the share of the variance that each holds."""
    rows, width = centred.shape
    total = float(np.sum(np.square(centred)))
    if total == 0.0:
        raise ProjectionError(
            f"All {rows} states are the same point, so PCA has no axis to show; choose more tokens or more loops."
        )
    if rows < width:
        values, vectors = np.linalg.eigh(centred @ centred.T)
        vectors = centred.T @ vectors[:, ::-1][:, :dims]
    else:
        values, vectors = np.linalg.eigh(centred.T @ centred)
        vectors = vectors[:, ::-1][:, :dims]
    shares = values[::-1][:dims] / total
    kept = shares > _RANK_FLOOR
    components, shares = vectors[:, kept], shares[kept]
    components = components / np.linalg.norm(components, axis=0)
    largest = np.abs(components).argmax(axis=0)
    signs = np.sign(components[largest, np.arange(components.shape[1])])
    return components * signs, shares


def _token_alone(position: Int64[np.ndarray, " rows"], fitted: Float64[np.ndarray, "rows width"]) -> list[str]:
    """A warning when one token's states lie so far from all others that the axes show nothing else."""
    tokens, owner = np.unique(position, return_inverse=True)
    if len(tokens) < 3:
        return []
    # Around the median, not the mean: the far token pulls the mean towards itself.
    spread = np.bincount(owner, weights=np.sum(np.square(fitted - np.median(fitted, axis=0)), axis=1))
    far = int(spread.argmax())
    share = float(spread[far] / spread.sum())
    if share <= _ALONE:
        return []
    return [
        f"Token #{tokens[far]} alone holds {100 * share:.0f} % of the spread, so the axes show little else; "
        f"leave out position {tokens[far]}, or tokens far above the median norm, to see the others."
    ]
