"""Checkpoints chart: how the steps of one block change along training."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from analysis.caption import counted, joined, movement, source_words
from analysis.chart import Axis, Chart, ChartError, Line, Mark, Panel, Role, View
from analysis.keys import first_step_rings, loop_axis, loop_numbers, pooled_keys, trained_rules
from analysis.named import loop_statistic
from analysis.statistic import Statistic, Summary, pooled
from model.capture.trajectory import Provenance, Run


@dataclass(frozen=True)
class CheckpointsChart:
    """Median over all tokens of all prompts against the loop, a line per checkpoint, a panel per statistic.

    With the defaults it is the picture of arXiv 2509.23314, section 3: step norm and step cosine along training.

    Attributes:
        statistics: names of statistics with a value per loop, a panel each.
    """

    name: ClassVar[str] = "checkpoints"
    title: ClassVar[str] = "Along training"

    statistics: tuple[str, ...] = ("step_norm", "step_cosine")

    def build(self, view: View) -> Chart:
        """The overlay for the selected block. Raises ChartError without further runs or without any value."""
        if not self.statistics:
            raise ChartError("No statistic is chosen; choose at least one.")
        if not view.others:
            raise ChartError(
                "There are no other checkpoints to compare with; run the same prompt on several of them, "
                "and name the run folders (--other LABEL=DIR)."
            )
        runs = tuple((label, run) for label, run in view.others if view.block < len(run.trajectories[0].blocks))
        if not runs:
            raise ChartError(f"None of the other checkpoints has a looped block {view.block}; choose another block.")
        panels: list[Panel] = []
        told: list[str] = []
        for name in self.statistics:
            statistic = loop_statistic(name)
            summaries = [pooled(statistic, run, view.block) for _, run in runs]
            if all(np.isnan(summary.median).all() for summary in summaries):
                continue
            panels.append(_panel(view, statistic, runs, summaries=summaries, legend=not panels))
            told.append(_movements(statistic, runs, summaries))
        if not panels:
            raise ChartError("The runs of the other checkpoints need at least 2 loops and finite states; run more loops.")
        block = view.trajectory.blocks[view.block].name
        return Chart(
            name=self.name,
            title=f"{self.title}, block {block}",
            panels=tuple(panels),
            caption=_caption(view, runs, block=block),
            alt=f"{counted(len(runs), 'checkpoint')}, block {block}. {' '.join(told)}",
            provenance=_provenance(runs),
            warnings=() if len(runs) == len(view.others) else ("Checkpoints without this block are not shown.",),
        )


def _panel(
    view: View, statistic: Statistic, runs: tuple[tuple[str, Run], ...], *, summaries: list[Summary], legend: bool
) -> Panel:
    marks: list[Mark] = []
    for index, ((label, run), summary) in enumerate(zip(runs, summaries, strict=True)):
        loop = loop_numbers(len(summary.median))
        keys = {"checkpoint": np.full(len(loop), label), **pooled_keys(run.trajectories[0], view.block, loop)}
        line = Line(
            x=loop.astype(np.float64),
            y=summary.median,
            columns=keys | {"tokens": summary.count, "lower_quartile": summary.lower, "upper_quartile": summary.upper},
            role=Role("series", index=index, of=len(runs)),
            legend=label if legend else "",
            markers=len(loop) == 1,
        )
        marks += [line, *first_step_rings(statistic.holds_first_step, line)]
    loops = max(len(summary.median) for summary in summaries)
    return Panel(
        x=loop_axis(loops),
        y=Axis(title=f"median {statistic.title}", unit=statistic.unit, scale=statistic.scale),
        marks=(*marks, *trained_rules(runs[-1][1].trajectories[0].provenance, loops, across="vertical")),
        title=statistic.name.replace("_", " "),
    )


def _movements(statistic: Statistic, runs: tuple[tuple[str, Run], ...], summaries: list[Summary]) -> str:
    ends = [(runs[i][0], movement(summaries[i].median)) for i in sorted({0, len(runs) - 1})]
    return f"The {statistic.name.replace('_', ' ')} " + "; ".join(f"{how} at {label}" for label, how in ends) + "."


def _caption(view: View, runs: tuple[tuple[str, Run], ...], *, block: str) -> str:
    first = runs[0][1].trajectories
    tokens = sum(trajectory.tokens for trajectory in first)
    return joined(
        f"Medians over {counted(tokens, 'token')} of {counted(len(first), 'prompt')} in block {block}, "
        f"K = {first[0].blocks[view.block].loops}, for {', '.join(label for label, _ in runs)}.",
        "Open rings contain the step away from the initial state.",
        source_words(_provenance(runs)),
    )


def _provenance(runs: tuple[tuple[str, Run], ...]) -> Provenance:
    """Of the last checkpoint shown, with the names of all: the run on screen may be of another one."""
    found = [run.trajectories[0].provenance for _, run in runs]
    return replace(found[-1], checkpoint=", ".join(one.checkpoint for one in found))
