"""The headline's measurements as a chart: quality against mean loops and against time per token, a line per rule."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from analysis.chart import Axis, Band, Chart, ChartError, Line, Mark, Panel, Role, Rule
from analysis.exit_rule import exit_rules
from analysis.headline_plan import FIXED, FULL, PAPER, VARIANTS
from analysis.headline_table import Outcome
from model.capture.trajectory import Provenance

Across = Literal["loops", "milliseconds"]
_ACROSS: tuple[Across, ...] = ("loops", "milliseconds")


def headline_chart(rows: Sequence[Outcome], *, machine: str) -> Chart:
    """A row of panels at equal loops, with bands, and one at equal time; a model with one budget is left to the table.

    Raises ChartError when no model has two budgets.
    """
    budgets = {row.model: {other.budget for other in rows if other.model == row.model and other.rule != FULL} for row in rows}
    models = tuple(model for model, found in budgets.items() if len(found) > 1)
    if not models:
        raise ChartError("No model was measured at two budgets; give at least two for a line.")
    variants = ", ".join(exit_rules()[name].title for name in VARIANTS.values())
    return Chart(
        name="headline",
        title="Exit rules live, at equal loops and at equal time",
        panels=tuple(_panel(rows, model, x) for x in _ACROSS for model in models),
        caption=(
            "Live: the loops really stop. Every point is a budget of mean loops, its thresholds chosen post hoc on another "
            "text. Cross-entropy is that above full depth; bands are 95 % bootstrap intervals over windows. The public code of "
            f"the paper's authors has these in place of its three rules: {variants}. Milliseconds are medians per token. "
            f"{machine}"
        ),
        alt=f"Cross-entropy above full depth against mean loops and against milliseconds per token, for {', '.join(models)}.",
        provenance=Provenance(
            checkpoint=", ".join(models), digest="", architecture="", space="", dtype="float32", device="cpu", seed=0,
            initial_state="", loops_trained=None, noise_floor=0.0, mode="live",
        ),
    )  # fmt: skip


def _panel(rows: Sequence[Outcome], model: str, x: Across) -> Panel:
    across = Axis(title="mean loops") if x == "loops" else Axis(title="time per token", unit="ms")
    own = [row for row in rows if row.model == model]
    return Panel(x=across, y=Axis(title="above full depth", unit="nats"), marks=_marks(own, x), title=model)


def _marks(rows: Sequence[Outcome], x: Across) -> tuple[Mark, ...]:
    marks: list[Mark] = [Rule(at=0.0, across="horizontal", label=FULL, role=Role("ink"))]
    for name in (FIXED, *PAPER, *VARIANTS.values()):
        points = [row for row in rows if row.rule == name]
        if not points:
            continue
        across = np.array([getattr(row, x) for row in points], dtype=np.float64)
        keys = {
            "model": np.array([row.model for row in points]),
            "rule": np.array([row.rule for row in points]),
            "budget": np.array([row.budget for row in points]),
        }
        lower, upper = (np.array([getattr(row, f"above_full_{end}") for row in points]) for end in ("lower", "upper"))
        if x == "loops" and np.isfinite(lower).all() and name in PAPER:
            marks.append(Band(x=across, lower=lower, upper=upper, columns=keys, role=Role("rule", name=name)))
        marks.append(
            Line(
                x=across,
                y=np.array([row.above_full for row in points]),
                columns=keys,
                role=Role("rule", name=name),
                legend=exit_rules()[name].title,
                markers=True,
            )
        )
    return tuple(marks)
