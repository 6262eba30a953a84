"""Chart: data plus meaning. It knows no plotting library; draw/ renders it, export writes its rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped

from analysis.exit_rule import ExitRule
from analysis.registry import collect
from analysis.sweep import Swept
from model.capture.trajectory import Provenance, Run, Trajectory

Scale = Literal["linear", "log"]
Columns = Mapping[str, Shaped[np.ndarray, " rows"]]
"""Keys and hover fields of a mark's rows: ``prompt``, ``position``, ``token``, ``block``, ``loop`` and others."""


class ChartError(ValueError):
    """A chart that cannot be made of this run; the message is a sentence to show instead of it."""


@dataclass(frozen=True)
class Role:
    """What a colour, marker and dash stand for; theme.py turns it into looks.

    ``rule``: an exit rule (``name``), one fixed look everywhere. ``block``: looped block number ``index``.
    ``loop``: loop ``index`` of ``of``, sequential. ``series``: ordered or categorical series ``index`` of ``of``.
    ``muted``: background. ``ink``: the text colour.
    """

    kind: Literal["rule", "block", "loop", "series", "muted", "ink"]
    name: str = ""
    index: int = 0
    of: int = 1


@dataclass(frozen=True)
class Line:
    """A polyline through (x, y[, z]); NaN breaks it. ``legend`` "" keeps it out of the legend."""

    x: Float[np.ndarray, " rows"]
    y: Float[np.ndarray, " rows"]
    columns: Columns
    role: Role
    legend: str = ""
    z: Float[np.ndarray, " rows"] | None = None
    dash: Literal["solid", "dash", "dot"] = "solid"
    markers: bool = False
    width: float = 1.5
    opacity: float = 1.0


@dataclass(frozen=True)
class Band:
    """The area between ``lower`` and ``upper`` over x; NaN breaks it."""

    x: Float[np.ndarray, " rows"]
    lower: Float[np.ndarray, " rows"]
    upper: Float[np.ndarray, " rows"]
    columns: Columns
    role: Role


@dataclass(frozen=True)
class Points:
    """Marks at (x, y[, z]). ``value`` (one per row) colours them along the loop scale instead of by role.

    ``glyph``: ``start`` open circle, ``end`` filled square, ``loop`` small disc, ``exit`` the rule's own marker,
    ``hollow`` an open ring that marks a value to be read with care (it contains the first step).
    """

    x: Float[np.ndarray, " rows"]
    y: Float[np.ndarray, " rows"]
    columns: Columns
    role: Role
    glyph: Literal["start", "end", "loop", "exit", "hollow"] = "loop"
    legend: str = ""
    z: Float[np.ndarray, " rows"] | None = None
    value: Float[np.ndarray, " rows"] | None = None
    value_title: str = ""
    size: float = 6.0


@dataclass(frozen=True)
class Arrows:
    """Arrowheads half-way along segments from (x, y) by (dx, dy); 2-D only."""

    x: Float[np.ndarray, " rows"]
    y: Float[np.ndarray, " rows"]
    dx: Float[np.ndarray, " rows"]
    dy: Float[np.ndarray, " rows"]
    columns: Columns
    role: Role


@dataclass(frozen=True)
class Heatmap:
    """A grid of values, row r at y[r], column c at x[c] (numeric centres); NaN cells stay blank.

    ``text`` (optional) is written into the cells. ``columns`` have one entry per cell, in row-major order.
    ``palette`` names what the colours mean.
    """

    x: Float[np.ndarray, " cells_x"]
    y: Float[np.ndarray, " cells_y"]
    values: Float[np.ndarray, "cells_y cells_x"]
    columns: Columns
    value_title: str
    palette: Literal["sequential", "diverging", "probability"] = "sequential"
    text: Shaped[np.ndarray, "cells_y cells_x"] | None = None
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bars:
    """Bars from zero (or from the axis' lower end on a log axis) to y at numeric x, with optional whiskers."""

    x: Float[np.ndarray, " rows"]
    y: Float[np.ndarray, " rows"]
    columns: Columns
    role: Role
    legend: str = ""
    lower: Float[np.ndarray, " rows"] | None = None
    upper: Float[np.ndarray, " rows"] | None = None
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A straight line across the panel at ``at``: a threshold, the trained depth, the noise floor."""

    at: float
    across: Literal["horizontal", "vertical"]
    label: str
    role: Role
    dash: Literal["solid", "dash", "dot"] = "dash"


Mark = Line | Band | Points | Arrows | Heatmap | Bars | Rule


@dataclass(frozen=True)
class Axis:
    """An axis. ``ticks`` are (position, label) pairs for numeric positions that stand for names, else None.

    ``whole``: ticks only at whole numbers (loops). ``limits``: fixed range, None fits the data.
    """

    title: str
    unit: str = ""
    scale: Scale = "linear"
    ticks: tuple[tuple[float, str], ...] | None = None
    limits: tuple[float, float] | None = None
    whole: bool = False
    reversed: bool = False


@dataclass(frozen=True)
class Panel:
    """One coordinate system. With ``z`` it is three-dimensional; ``equal`` keeps one length unit on all axes."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    title: str = ""
    z: Axis | None = None
    equal: bool = False


@dataclass(frozen=True)
class Camera:
    """Where a 3-D chart is looked at from. Degrees; azimuth from the x axis, elevation from the x-y plane."""

    azimuth: float = 45.0
    elevation: float = 25.0

    def __post_init__(self) -> None:
        if not np.isfinite(self.azimuth):
            raise ChartError(f"The camera's azimuth is {self.azimuth}; give degrees, such as 45.")
        if not -90 <= self.elevation <= 90:
            raise ChartError(f"The camera's elevation is {self.elevation}; give degrees from -90 to 90.")


@dataclass(frozen=True)
class Chart:
    """One figure: panels side by side, with the words that make it readable on its own.

    Attributes:
        caption: what is shown, in which lens and space, post hoc or live, and what was left out.
        alt: one or two sentences for someone who cannot see it.
        warnings: sentences that the page shows above the chart.
        camera: set for 3-D charts.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    caption: str
    alt: str
    provenance: Provenance
    warnings: tuple[str, ...] = ()
    camera: Camera | None = None

    def seen_from(self, camera: Camera) -> "Chart":
        """The same chart from another camera."""
        return replace(self, camera=camera)


@dataclass(frozen=True)
class View:
    """What all charts share: the run, the selected prompt, token, block and loop, and the exit rules.

    Attributes:
        token: selected token position; None shows all tokens.
        block: selected looped block.
        loop: selected loop, None is the last one.
        rules: exit rules with their thresholds.
        others: further runs (label, run), for charts that compare checkpoints; in order of training.
        swept: exit rules over their thresholds, for charts that compare rules; they sweep the run themselves without it.
    """

    run: Run
    prompt: int = 0
    token: int | None = None
    block: int = 0
    loop: int | None = None
    rules: tuple[ExitRule, ...] = ()
    others: tuple[tuple[str, Run], ...] = field(default=())
    swept: tuple[Swept, ...] = ()

    def __post_init__(self) -> None:
        prompts = len(self.run.trajectories)
        if not 0 <= self.prompt < prompts:
            raise ChartError(f"Prompt {self.prompt} was asked for; this run has prompts 0 to {prompts - 1}.")
        blocks, tokens = len(self.trajectory.blocks), self.trajectory.tokens
        if not 0 <= self.block < blocks:
            raise ChartError(f"Block {self.block} was asked for; this run has blocks 0 to {blocks - 1}.")
        if self.token is not None and not 0 <= self.token < tokens:
            raise ChartError(f"Token {self.token} was asked for; this prompt has tokens 0 to {tokens - 1}.")

    @property
    def trajectory(self) -> Trajectory:
        """The selected prompt's trajectory."""
        return self.run.trajectories[self.prompt]


@runtime_checkable
class ChartBuilder(Protocol):
    """One chart, one file in charts/: a frozen dataclass whose fields are the chart's own options."""

    name: ClassVar[str]
    title: ClassVar[str]

    def build(self, view: View) -> Chart:
        """The chart of this view. Raises ChartError or MissingReadout with a sentence for the reader."""
        ...


if TYPE_CHECKING:
    ChartBuilderClass = type[ChartBuilder]
else:
    ChartBuilderClass = type  # a protocol with fields cannot be asked about subclasses, so run-time checks go no deeper


def chart_builders() -> dict[str, ChartBuilderClass]:
    """Every chart builder class by name."""
    return collect("analysis.charts")


def chart_rows(chart: Chart) -> list[dict[str, Any]]:
    """Every row of every mark as a flat record: panel, mark, legend, keys, coordinates; undefined is None."""
    return [row for number, panel in enumerate(chart.panels) for mark in panel.marks for row in _mark_rows(number, mark)]


_COORDINATES = ("x", "y", "z", "dx", "dy", "lower", "upper", "value")


def _mark_rows(panel: int, mark: Mark) -> list[dict[str, Any]]:
    kind = type(mark).__name__.lower()
    if isinstance(mark, Rule):
        axis = "y" if mark.across == "horizontal" else "x"
        return [{"panel": panel, "mark": kind, "legend": mark.label, axis: float(mark.at)}]
    arrays: dict[str, np.ndarray] = dict(mark.columns)
    if isinstance(mark, Heatmap):
        ys, xs = np.meshgrid(mark.y, mark.x, indexing="ij")
        arrays |= {"x": xs.ravel(), "y": ys.ravel(), "value": mark.values.ravel()}
        if mark.text is not None:
            arrays["text"] = mark.text.ravel()
    else:
        for name in _COORDINATES:
            array = getattr(mark, name, None)
            if array is not None:
                arrays[name] = array
    legend = getattr(mark, "legend", "")
    count = len(next(iter(arrays.values()))) if arrays else 0
    # A row of a line without coordinates is the gap between two paths and no datum.
    shown = range(count) if not isinstance(mark, Line) else np.flatnonzero(~(np.isnan(mark.x) & np.isnan(mark.y))).tolist()
    return [
        {"panel": panel, "mark": kind, "legend": legend} | {name: _plain(array[i]) for name, array in arrays.items()}
        for i in shown
    ]


def _plain(value: Any) -> Any:
    """A numpy scalar as a Python value, NaN and Inf as None."""
    plain: Any = cast(Any, value).item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not np.isfinite(plain) else plain
