"""Pareto chart: what each exit rule costs and keeps over all its thresholds, against fixed depth and the oracle."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from analysis.caption import counted, joined, source_words
from analysis.chart import Axis, Band, Chart, ChartError, Columns, Line, Mark, Panel, Points, Role, Rule, View
from analysis.comparison import EQUAL_TERMS, LAST_BLOCK, Compared
from analysis.floor import below_floor, floor_words
from analysis.sweep import Swept
from analysis.sweep_view import sweep_view

Cost = Literal["mean_loops", "flops"]
Quality = Literal["cross_entropy", "agreement"]
_FIXED = "fixed_k"


@dataclass(frozen=True)
class ParetoChart:
    """A line per exit rule, a point per threshold: cost to the right, quality upwards; one must look along a vertical line.

    Without a sweep in the view, the rules are swept over the thresholds on the prompts of the run.

    Attributes:
        x: mean loops per token, or the share of full depth's operations with the rule's own readouts.
        y: cross-entropy in nats per token, or the share of tokens whose likeliest next token is that of full depth.
        bands: whether 95 % bootstrap intervals over prompts are drawn, where there are at least 5 prompts.
    """

    name: ClassVar[str] = "pareto"
    title: ClassVar[str] = "Exit rules at equal cost"

    x: Cost = "mean_loops"
    y: Quality = "cross_entropy"
    bands: bool = True

    def build(self, view: View) -> Chart:
        """The curves of the last looped block. Raises ChartError where quality or cost is undefined."""
        swept, missing = (view.swept, ()) if view.swept else sweep_view(view)
        self._check(swept)
        ground = swept[0].ground
        marks: list[Mark] = [*self._null(swept[0]), *self._reference(swept[0])]
        for one in swept:
            if one.rule.name != _FIXED:
                marks += self._marks(one)
        said = [floor_words(one.rule, one.floor, ground.provenance.dtype) for one in swept]
        return Chart(
            name=self.name,
            title=f"{self.title}, block {ground.name}",
            panels=(Panel(x=self._x_axis(), y=self._y_axis(), marks=tuple(marks)),),
            caption=self._caption(swept),
            alt=f"{_words(self.y)} against {_words(self.x)}: {counted(len(swept), 'exit rule')}, fixed depth and full depth.",
            provenance=ground.provenance,
            warnings=(*missing, *(sentence for sentence in said if sentence)),
        )

    def _caption(self, swept: tuple[Swept, ...]) -> str:
        ground = swept[0].ground
        costs = "Operations are 2 per weight of a matrix, with one readout per check; attention scores are left out."
        return joined(
            f"Every point is a threshold of a rule, over {counted(int(ground.counted.sum()), 'token')} of "
            f"{counted(len(ground.trajectories), 'prompt')}, K = {ground.loops}, block {ground.name}, {ground.lens} lens.",
            EQUAL_TERMS,
            LAST_BLOCK if len(ground.trajectories[0].blocks) > 1 else "",
            costs if self.x == "flops" else "",
            self._band_words() if self.bands and _has_intervals(swept) else "",
            f"Open rings: thresholds below what {ground.provenance.dtype} resolves." if _has_rings(swept) else "",
            _gap_words(swept),
            source_words(ground.provenance),
        )

    def _band_words(self) -> str:
        of = "" if self.y == "agreement" else ", of the difference to full depth"
        return f"Bands are 95 % bootstrap intervals over prompts{of}."

    def _check(self, swept: tuple[Swept, ...]) -> None:
        ground = swept[0].ground
        if ground.loops == 1:
            raise ChartError("With one loop there is nothing to leave early; run again with at least 2 loops.")
        if np.isnan(getattr(swept[0].fixed, self.y)).all():
            raise ChartError(
                f"{_words(self.y).capitalize()} is undefined here. Masked models have none: compare by agreement. For others, "
                "run again with prompts of at least 2 tokens and a lens that reads the last looped block (--lens coda)."
            )
        if self.x == "flops" and np.isnan(swept[0].fixed.flops).all():
            raise ChartError(
                "What the loops cost is not known for this run: it is read from the checkpoint when a text is swept, with "
                "Sweep on the page or by loopscope sweep."
            )

    def _null(self, one: Swept) -> tuple[Mark, ...]:
        """Fixed depths, and what hindsight would give."""
        fixed, block = one.fixed, one.ground.name
        depth = fixed.loops.astype(np.int64)
        line = Line(
            x=getattr(fixed, "loops" if self.x == "mean_loops" else "flops"),
            y=getattr(fixed, self.y),
            columns={"rule": np.full(len(depth), _FIXED), "threshold": fixed.loops, "block": np.full(len(depth), block)},
            role=Role("rule", name=_FIXED),
            legend="fixed k: the null",
            markers=True,
        )
        if one.oracle is None or self.x != "mean_loops" or self.y != "cross_entropy":
            return (line,)
        x, y = one.oracle.curve()
        keys = {"rule": np.full(len(x), "oracle"), "block": np.full(len(x), block)}
        return (line, Line(x=x, y=y, columns=keys, role=Role("muted"), legend="oracle: best loops per token", dash="dot"))

    def _reference(self, one: Swept) -> tuple[Mark, ...]:
        at = 1.0 if self.y == "agreement" else float(one.fixed.cross_entropy[-1])
        return (Rule(at=at, across="horizontal", label="full depth", role=Role("ink")),)

    def _marks(self, one: Swept) -> tuple[Mark, ...]:
        if not one.points:
            return ()
        x, y, role = _values(one, self.x), _values(one, self.y), Role("rule", name=one.rule.name)
        # Of the difference to full depth: how hard a prompt is would hide what a rule does to it.
        lower, upper = one.agreement if self.y == "agreement" else one.fixed.cross_entropy[-1] + one.excess
        keys = point_keys(one)
        marks: list[Mark] = []
        if self.bands and np.isfinite(lower).all() and len(lower):
            marks.append(Band(x=x, lower=lower, upper=upper, columns=keys, role=role))
        marks.append(Line(x=x, y=y, columns=keys, role=role, legend=one.rule.title, markers=True))
        rings = np.array([below_floor(point.rule, one.floor) for point in one.points])
        if rings.any():
            ringed = {name: column[rings] for name, column in keys.items()}
            marks.append(Points(x=x[rings], y=y[rings], columns=ringed, role=role, glyph="hollow", size=11.0))
        return tuple(marks)

    def _x_axis(self) -> Axis:
        return Axis(title="mean loops" if self.x == "mean_loops" else "share of full-depth operations")

    def _y_axis(self) -> Axis:
        if self.y == "agreement":
            return Axis(title="agreement with full depth")
        return Axis(title="cross-entropy", unit="nats")


def point_keys(one: Swept) -> Columns:
    """What leads from a point back to the rule and its settings, and the numbers behind it."""
    count = len(one.points)
    return {
        "block": np.full(count, one.ground.name),
        "rule": np.full(count, one.rule.name),
        "point": np.arange(count),
        "threshold": np.array([point.rule.threshold for point in one.points], dtype=np.float64),
        "patience": np.full(count, one.rule.patience),
        "minimum_loops": np.full(count, one.rule.minimum_loops),
        "scope": np.full(count, one.rule.scope),
        "mean_loops": _values(one, "mean_loops"),
        "cross_entropy": _values(one, "cross_entropy"),
        "agreement": _values(one, "agreement"),
        "never": np.array([point.never for point in one.points], dtype=np.float64),
    }


def _values(one: Swept, name: Cost | Quality) -> np.ndarray:
    return np.array([_value(point, name) for point in one.points], dtype=np.float64)


def _value(point: Compared, name: Cost | Quality) -> float:
    return float(getattr(point, name))


def _words(name: Cost | Quality) -> str:
    words = {"mean_loops": "mean loops", "flops": "operations", "cross_entropy": "cross-entropy", "agreement": "agreement"}
    return words[name]


def _has_intervals(swept: tuple[Swept, ...]) -> bool:
    return any(np.isfinite(one.gap.lower) for one in swept)


def _has_rings(swept: tuple[Swept, ...]) -> bool:
    return any(below_floor(point.rule, one.floor) for one in swept for point in one.points)


def _gap_words(swept: tuple[Swept, ...]) -> str:
    """Every rule's one number, best first."""
    known = sorted((one for one in swept if np.isfinite(one.gap.value)), key=lambda one: one.gap.value)
    if not known:
        return ""
    each = [
        f"{one.rule.title} {one.gap.value:.4f}"
        + (f" ({one.gap.lower:.4f} to {one.gap.upper:.4f})" if np.isfinite(one.gap.lower) else "")
        for one in known
    ]
    return f"Nats above the oracle at equal mean loops, mean over budgets from 1 loop to K: {'; '.join(each)}."
