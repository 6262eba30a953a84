"""Curves chart: how a statistic changes from loop to loop, one panel per looped block."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis import paths
from analysis.caption import block_words, counted, joined, loops_words, movement, nonfinite_words, source_words, token_words
from analysis.chart import Axis, Band, Chart, ChartError, Line, Mark, Panel, Role, Rule, View
from analysis.keys import first_step_rings, loop_axis, loop_numbers, loop_rules, pooled_keys, token_keys
from analysis.named import loop_statistic
from analysis.statistic import Statistic, Summary, per_prompt, pooled, statistics

_NEAR_FLOOR = 100.0
"""The rounding floor is drawn where the median comes within this factor of it; further away it would only flatten curves."""


@dataclass(frozen=True)
class CurvesChart:
    """Median and inter-quartile range over all tokens of all prompts, against the loop.

    Attributes:
        statistic: name of a statistic with a value per loop.
        blocks: a panel for every looped block, or for the selected one.
        per_prompt: adds a thin line for the median of each prompt.
    """

    name: ClassVar[str] = "curves"
    title: ClassVar[str] = "Curves"

    statistic: str = "step_norm"
    blocks: Literal["all", "selected"] = "all"
    per_prompt: bool = False

    def build(self, view: View) -> Chart:
        """One panel per block that has a value. Raises ChartError where none has."""
        statistic, trajectory = loop_statistic(self.statistic), view.trajectory
        asked = (view.block,) if self.blocks == "selected" else tuple(range(len(trajectory.blocks)))
        summaries = {g: pooled(statistic, view.run, g) for g in asked}
        shown = tuple(g for g in asked if not np.isnan(summaries[g].median).all())
        if not shown:
            raise ChartError(
                f"The {statistic.title} needs at least {counted(statistic.first_loop, 'loop')} and finite states; this run has "
                f"{loops_words(trajectory, asked)}. Run again with more loops."
            )
        panels = tuple(self._panel(view, statistic, g, summary=summaries[g]) for g in shown)
        blank = tuple(g for g in asked if g not in shown)
        return Chart(
            name=self.name,
            title=f"{statistic.title} over loops",
            panels=panels,
            caption=self._caption(view, statistic, shown, blank=blank),
            alt=f"{statistic.title} in {counted(len(shown), 'looped block')}. "
            + " ".join(f"{trajectory.blocks[g].name}: the median {movement(summaries[g].median)}." for g in shown),
            provenance=trajectory.provenance,
            warnings=nonfinite_words(trajectory, shown),
        )

    def _panel(self, view: View, statistic: Statistic, block: int, *, summary: Summary) -> Panel:
        loops = len(summary.median)
        thin = _prompt_lines(view, statistic, block) if self.per_prompt else ()
        return Panel(
            x=loop_axis(loops),
            y=Axis(title=statistic.title, unit=statistic.unit, scale=statistic.scale),
            marks=(
                *thin,
                *_pooled_marks(view, statistic, block, summary=summary),
                *_token_line(view, statistic, block),
                *_floor(view, statistic, block, summary=summary),
                *loop_rules(view, loops, across="vertical"),
            ),
            title=view.trajectory.blocks[block].name,
        )

    def _caption(self, view: View, statistic: Statistic, shown: tuple[int, ...], *, blank: tuple[int, ...]) -> str:
        tokens = sum(trajectory.tokens for trajectory in view.run.trajectories)
        held, provenance = statistic.holds_first_step, view.trajectory.provenance
        one = "" if view.token is None else f"The single line is {token_words(view.trajectory, view.token)}."
        return joined(
            f"{statistic.title}: median and inter-quartile range over {counted(tokens, 'token')} of "
            f"{counted(len(view.run.trajectories), 'prompt')}, {block_words(view.trajectory, shown)}, "
            f"{loops_words(view.trajectory, shown)}.",
            "Thin lines are the medians of single prompts." if self.per_prompt else "",
            one,
            f"Open rings (up to loop {held}) contain the step away from the initial state." if held else "",
            f"Blank for {block_words(view.trajectory, blank)}: too few loops." if blank else "",
            f"Steps below {provenance.noise_floor:.2g} of the state are rounding of {provenance.dtype}."
            if _floor_value(view, statistic, shown[0]) is not None
            else "",
            source_words(provenance),
        )


def _pooled_marks(view: View, statistic: Statistic, block: int, *, summary: Summary) -> tuple[Mark, ...]:
    loop = loop_numbers(len(summary.median))
    x = loop.astype(np.float64)
    role = Role("block", index=block, of=len(view.trajectory.blocks))
    keys = pooled_keys(view.trajectory, block, loop) | {"tokens": summary.count}
    band = Band(x=x, lower=summary.lower, upper=summary.upper, columns=keys, role=role)
    spread = {"lower_quartile": summary.lower, "upper_quartile": summary.upper}
    line = Line(x=x, y=summary.median, columns=keys | spread, role=role, legend="median", markers=len(x) <= 40, width=2.0)
    return (band, line, *first_step_rings(statistic.holds_first_step, line))


def _prompt_lines(view: View, statistic: Statistic, block: int) -> tuple[Mark, ...]:
    """The medians of all prompts as one mark with gaps."""
    medians = [summary.median for summary in per_prompt(statistic, view.run, block)]
    prompt = np.repeat(np.arange(len(medians)), [len(median) for median in medians])
    loop = np.concatenate([loop_numbers(len(median)) for median in medians])
    keys = {"prompt": prompt, **pooled_keys(view.trajectory, block, loop)}
    order = paths.gapped(prompt)
    x, y = (paths.coordinates(values, order) for values in (loop.astype(np.float64), np.concatenate(medians)))
    columns = paths.columns(keys, order)
    return (Line(x=x, y=y, columns=columns, role=Role("muted"), legend="prompts", width=0.8, opacity=0.7),)


def _token_line(view: View, statistic: Statistic, block: int) -> tuple[Mark, ...]:
    if view.token is None:
        return ()
    y: Float64[np.ndarray, " loops"] = statistic.values(view.trajectory, block)[:, view.token]
    loop = loop_numbers(len(y))
    keys = token_keys(view, position=np.full(len(y), view.token), block=block, loop=loop)
    legend = f"#{view.token} {view.trajectory.labels[view.token]}"
    x = loop.astype(np.float64)
    return (Line(x=x, y=y, columns=keys, role=Role("ink"), legend=legend, dash="dot", markers=len(y) == 1),)


def _floor_value(view: View, statistic: Statistic, block: int) -> float | None:
    """Below this a step is rounding; known for the step norm and its relative form."""
    floor = view.trajectory.provenance.noise_floor
    if statistic.name == "relative_step_norm":
        return floor
    if statistic.name == "step_norm":
        return floor * float(np.nanmedian(pooled(statistics()["state_norm"], view.run, block).median))
    return None


def _floor(view: View, statistic: Statistic, block: int, *, summary: Summary) -> tuple[Rule, ...]:
    floor = _floor_value(view, statistic, block)
    if floor is None or np.nanmin(summary.median) > _NEAR_FLOOR * floor:
        return ()
    label = f"rounding of {view.trajectory.provenance.dtype}"
    return (Rule(at=floor, across="horizontal", label=label, role=Role("muted"), dash="dot"),)
