"""Exit histogram: how many tokens leave after each number of loops, rule by rule, and how many never do."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from analysis.caption import counted, joined, source_words
from analysis.chart import Axis, Bars, Chart, ChartError, Panel, Role, View
from analysis.exit_marks import rule_words
from analysis.exit_rule import NEVER, ExitRule, MissingReadout, exits

_MOST_TICKS = 8


@dataclass(frozen=True)
class ExitHistogramChart:
    """One panel per rule: a bar per number of loops over the tokens of all prompts, and one for those that never exit."""

    name: ClassVar[str] = "exit_histogram"
    title: ClassVar[str] = "Tokens per exit loop"

    def build(self, view: View) -> Chart:
        """The panels of the selected block. Raises ChartError without rules, and where the run lacks what all need."""
        if not view.rules:
            raise ChartError("No exit rule is chosen; choose at least one.")
        found: list[_Counts] = []
        missing: list[str] = []
        for rule in view.rules:
            try:
                found.append(_count(view, rule))
            except MissingReadout as error:
                missing.append(f"{rule.title}: {error}")
        if not found:
            raise ChartError(" ".join(missing))
        trace = view.trajectory.blocks[view.block]
        highest = max(int(one.tokens.max()) for one in found)
        undefined = [f"{one.rule.title} {counted(one.undefined, 'token')}" for one in found if one.undefined]
        return Chart(
            name=self.name,
            title=f"{self.title}, block {trace.name}",
            panels=tuple(_panel(view, one, highest=highest) for one in found),
            caption=joined(
                f"Tokens of {counted(len(view.run.trajectories), 'prompt')} by the number of loops after which a rule stops "
                f"them in block {trace.name}, K = {trace.loops}:",
                "; ".join(rule_words(one.rule, view.trajectory, (view.block,)) for one in found) + ".",
                f"Undefined, in no bar: {', '.join(undefined)}." if undefined else "",
                source_words(view.trajectory.provenance),
            ),
            alt=f"Tokens by exit loop, block {trace.name}: {'; '.join(f'{one.rule.title} {one.words()}' for one in found)}.",
            provenance=view.trajectory.provenance,
            warnings=tuple(missing),
        )


@dataclass(frozen=True)
class _Counts:
    """Tokens per exit loop, 1..K and then those that never exit; tokens at which the rule is undefined are in none."""

    rule: ExitRule
    tokens: Int64[np.ndarray, " bars"]
    median: float
    undefined: int

    def words(self) -> str:
        """``median 6 loops, 2 tokens never``."""
        median = "no exit" if np.isnan(self.median) else f"median {self.median:g} loops"
        return f"{median}, {counted(int(self.tokens[-1]), 'token')} never"


def _count(view: View, rule: ExitRule) -> _Counts:
    loops = max(trajectory.blocks[view.block].loops for trajectory in view.run.trajectories)
    found = [exits(rule, trajectory, view.block) for trajectory in view.run.trajectories]
    loop, defined = (np.concatenate([getattr(one, name) for one in found]) for name in ("loop", "defined"))
    fired = loop[loop != NEVER]
    bars = np.append(np.bincount(fired - 1, minlength=loops), int((defined & (loop == NEVER)).sum()))
    median = float(np.median(fired)) if len(fired) else float("nan")
    return _Counts(rule, bars.astype(np.int64), median, int((~defined).sum()))


def _panel(view: View, found: _Counts, *, highest: int) -> Panel:
    bars = len(found.tokens)
    place = np.arange(1.0, bars + 1)
    words = np.array([*(str(loop) for loop in range(1, bars)), "never"])
    columns = {
        "rule": np.full(bars, found.rule.name),
        "threshold": np.full(bars, found.rule.threshold),
        "block": np.full(bars, view.trajectory.blocks[view.block].name),
        "exit_loop": words,
        "tokens": found.tokens,
    }
    step = -(-(bars - 1) // _MOST_TICKS)
    ticks = (*((float(loop), str(loop)) for loop in range(1, bars - step // 2, step)), (float(bars), "never"))
    return Panel(
        x=Axis(title="exit loop", ticks=ticks, limits=(0.25, bars + 0.75)),
        y=Axis(title="tokens", limits=(0.0, highest * 1.05 + 0.5)),
        marks=(Bars(x=place, y=found.tokens.astype(np.float64), columns=columns, role=Role("rule", name=found.rule.name)),),
        title=f"{found.rule.title}: {found.words()}",
    )
