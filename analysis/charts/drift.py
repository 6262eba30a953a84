"""Drift chart: how far the state jumps from one looped block to the next, beside the steps inside a block."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from analysis.caption import counted, joined, nonfinite_words, source_words, token_words
from analysis.chart import Axis, Bars, Chart, ChartError, Mark, Panel, Points, Role, Scale, View
from analysis.keys import token_keys
from analysis.named import handoff_statistic
from analysis.statistic import Statistic, Summary, pooled

_DECADES = 100.0
"""Largest over smallest quartile past which a linear axis would hide the small bars."""


@dataclass(frozen=True)
class DriftChart:
    """A bar per hand-off: the median over all tokens of all prompts, whiskers from the first to the third quartile.

    Attributes:
        statistic: ``drift_to_loop_ratio``, ``drift``, or another statistic with a value per hand-off.
    """

    name: ClassVar[str] = "drift"
    title: ClassVar[str] = "Drift"

    statistic: str = "drift_to_loop_ratio"

    def build(self, view: View) -> Chart:
        """The bars. Raises ChartError for a model with one block, or where no hand-off has a value."""
        statistic, trajectory = handoff_statistic(self.statistic), view.trajectory
        count = len(trajectory.blocks) - 1
        if count < 1:
            raise ChartError(
                f"This model has one looped block ({trajectory.blocks[0].name}), so there is no hand-off and the "
                f"{statistic.title} is blank; choose a model with several looped blocks, or another chart."
            )
        summaries = [pooled(statistic, view.run, g) for g in range(count)]
        blank = [g for g, summary in enumerate(summaries) if np.isnan(summary.median[0])]
        if len(blank) == count:
            raise ChartError(_why_blank(view, statistic))
        bars = tuple(_bar(view, g, summaries[g]) for g in range(count))
        names = [_hand_off(view, g) for g in range(count)]
        blocks = trajectory.blocks
        ticks = tuple((float(g), f"{blocks[g].name} →\n{blocks[g + 1].name}\nK = {blocks[g].loops}") for g in range(count))
        return Chart(
            name=self.name,
            title=statistic.title,
            panels=(
                Panel(
                    x=Axis(title="hand-off", ticks=ticks, limits=(-0.5, count - 0.5)),
                    y=Axis(title=statistic.title, unit=statistic.unit, scale=_scale(statistic, summaries)),
                    marks=(*bars, *_token_points(view, statistic, count)),
                ),
            ),
            caption=_caption(view, statistic, [names[g] for g in blank]),
            alt=f"{statistic.title} at {counted(count, 'hand-off')}: "
            + "; ".join(
                f"{name} {_number(summary.median[0])} (K = {blocks[g].loops})"
                for g, (name, summary) in enumerate(zip(names, summaries, strict=True))
            )
            + ".",
            provenance=trajectory.provenance,
            warnings=nonfinite_words(trajectory, range(len(trajectory.blocks))),
        )


def _scale(statistic: Statistic, summaries: list[Summary]) -> Scale:
    """From zero, so that lengths compare, unless the bars lie decades apart."""
    ends = np.concatenate([values for summary in summaries for values in (summary.lower, summary.upper)])
    ends = ends[ends > 0]
    return statistic.scale if len(ends) and ends.max() > _DECADES * ends.min() else "linear"


def _bar(view: View, block: int, summary: Summary) -> Bars:
    trace = view.trajectory.blocks[block]
    keys = {"block": np.array([trace.name]), "to_block": np.array([view.trajectory.blocks[block + 1].name])}
    return Bars(
        x=np.array([float(block)]),
        y=summary.median,
        columns=keys | {"loops": np.array([trace.loops]), "tokens": summary.count},
        role=Role("block", index=block, of=len(view.trajectory.blocks)),
        lower=summary.lower,
        upper=summary.upper,
        text=(_number(summary.median[0]),),
    )


def _token_points(view: View, statistic: Statistic, count: int) -> tuple[Mark, ...]:
    """The selected token's own values, where they are defined."""
    if view.token is None:
        return ()
    block = np.arange(count)
    own = np.array([statistic.values(view.trajectory, g)[view.token] for g in range(count)])
    block, own = block[~np.isnan(own)], own[~np.isnan(own)]
    if not len(own):
        return ()
    keys = token_keys(view, position=np.full(len(own), view.token), block=block)
    legend = f"#{view.token} {view.trajectory.labels[view.token]}"
    return (Points(x=block.astype(np.float64), y=own, columns=keys, role=Role("ink"), legend=legend, size=8.0),)


def _hand_off(view: View, block: int) -> str:
    return f"{view.trajectory.blocks[block].name} → {view.trajectory.blocks[block + 1].name}"


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3g}"


def _why_blank(view: View, statistic: Statistic) -> str:
    if max(trace.loops for trace in view.trajectory.blocks[:-1]) < 2:
        return (
            f"The {statistic.title} is blank: every block before a hand-off ran one loop (K = 1), and its mean loop step is "
            "taken over k = 2..K. Run again with at least 2 loops, or show the drift itself."
        )
    return f"The {statistic.title} is blank: no token has a finite value at any hand-off."


def _caption(view: View, statistic: Statistic, blank: list[str]) -> str:
    tokens = sum(trajectory.tokens for trajectory in view.run.trajectories)
    ratio = statistic.name == "drift_to_loop_ratio"
    return joined(
        f"{statistic.title}: median and quartiles over {counted(tokens, 'token')} of "
        f"{counted(len(view.run.trajectories), 'prompt')}.",
        "The drift is ‖x⁽¹⁾ of the next block − x⁽ᴷ⁾ of this one‖ per token"
        + (", over the mean step norm of block g for k = 2..K." if ratio else "."),
        "The ratio grows with K, which stands beside each hand-off." if ratio else "",
        f"Blank: {', '.join(blank)}." if blank else "",
        "" if view.token is None else f"The point is {token_words(view.trajectory, view.token)}.",
        source_words(view.trajectory.provenance),
    )
