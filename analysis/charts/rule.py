"""Rule chart: what each exit rule measures on one token, loop by loop, against its threshold."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from analysis import paths
from analysis.caption import counted, joined, nonfinite_words, source_words, token_words
from analysis.chart import Axis, Chart, ChartError, Line, Mark, Panel, Points, Role, Rule, View
from analysis.comparison import ComparisonError, ground_of
from analysis.exit_marks import RuleExits, exit_words, rule_exits, rule_words
from analysis.exit_rule import NEVER, ExitRule
from analysis.floor import floor_words, threshold_floor
from analysis.keys import first_step_rings, loop_axis, loop_numbers, loop_rules, token_keys
from analysis.rule_name import sign


@dataclass(frozen=True)
class RuleChart:
    """One panel per rule: the selected token's score, the threshold, where it exits and where it crosses back.

    Attributes:
        others: whether the scores of the other tokens are drawn behind it.
    """

    name: ClassVar[str] = "rule"
    title: ClassVar[str] = "Exit rules"

    others: bool = True

    def build(self, view: View) -> Chart:
        """The panels of the selected token (token 0 without one) and block.

        Raises ChartError without rules or without a defined score, and where the run lacks what all of them need.
        """
        if not view.rules:
            raise ChartError("No exit rule is chosen; choose at least one.")
        trajectory, trace = view.trajectory, view.trajectory.blocks[view.block]
        token = view.token or 0
        found, missing = rule_exits(trajectory, view.block, view.rules)
        if not found:
            raise ChartError(" ".join(missing))
        shown = tuple(one for one in found if not np.isnan(one.scores).all())
        blank = tuple(
            f"{one.rule.title} has no defined score in {counted(trace.loops, 'loop')}." for one in found if one not in shown
        )
        if not shown:
            raise ChartError(f"{' '.join(blank)} A rule needs at least 2 loops and finite states; run again with more loops.")
        verdicts = [f"{one.rule.title} {exit_words(one, token)}{_back(one, token)}" for one in shown]
        who = f"{token_words(trajectory, token)} in block {trace.name}"
        return Chart(
            name=self.name,
            title=f"{self.title}, {who}",
            panels=tuple(self._panel(view, token, one) for one in shown),
            caption=joined(
                f"Scores of {who}, K = {trace.loops}; a rule stops on the stated side of the dashed threshold:",
                "; ".join(rule_words(one.rule, trajectory, (view.block,)) for one in shown) + ".",
                "Open rings contain the step away from the initial state.",
                "Thin lines are the other tokens of the prompt." if self.others and trajectory.tokens > 1 else "",
                f"{'; '.join(verdicts)}.",
                source_words(trajectory.provenance),
            ),
            alt=f"Scores of {len(shown)} exit rules on {who} over {counted(trace.loops, 'loop')}: {'; '.join(verdicts)}.",
            provenance=trajectory.provenance,
            warnings=(*nonfinite_words(trajectory, (view.block,)), *blank, *missing, *_floors(view, shown)),
        )

    def _panel(self, view: View, token: int, found: RuleExits) -> Panel:
        rule, loops = found.rule, len(found.scores)
        line = _score_line(view, token, found)
        unit = f" {rule.unit}" if rule.unit else ""
        # In words above the panel: beside the line they would cover other lines, in a legend two rules may look alike.
        threshold = Rule(at=rule.threshold, across="horizontal", label="", role=_look(rule))
        background = _others(view, token, found) if self.others else ()
        return Panel(
            x=loop_axis(loops),
            y=Axis(title=rule.title, unit=rule.unit, scale=rule.scale),
            marks=(
                *background,
                threshold,
                line,
                *first_step_rings(rule.holds_first_step, line),
                *_events(view, token, found),
                *loop_rules(view, loops, across="vertical"),
            ),
            title=f"stops {sign(rule)} {rule.threshold:.4g}{unit}\n{exit_words(found, token)}",
        )


def _floors(view: View, shown: tuple[RuleExits, ...]) -> tuple[str, ...]:
    """A sentence for each threshold below what the run's dtype resolves; none for runs that are not compared, live ones say."""
    try:
        ground = ground_of(view.run.trajectories, view.block)
    except ComparisonError:
        return ()
    dtype = ground.provenance.dtype
    said = (floor_words(one.rule, threshold_floor(one.rule, ground), dtype) for one in shown)
    return tuple(sentence for sentence in said if sentence)


def _look(rule: ExitRule) -> Role:
    return Role("rule", name=rule.name)


def _score_line(view: View, token: int, found: RuleExits) -> Line:
    loop = loop_numbers(len(found.scores))
    keys = token_keys(view, position=np.full(len(loop), token), block=view.block, loop=loop)
    legend = f"#{token} {view.trajectory.labels[token]}"
    columns = keys | {"rule": np.full(len(loop), found.rule.name)}
    y = found.scores[:, token].astype(np.float64)
    return Line(x=loop.astype(np.float64), y=y, columns=columns, role=_look(found.rule), legend=legend, markers=True, width=2.0)


def _others(view: View, token: int, found: RuleExits) -> tuple[Mark, ...]:
    """The scores of all other tokens as one mark with gaps."""
    loops, tokens = found.scores.shape
    position = np.repeat([other for other in range(tokens) if other != token], loops)
    if not len(position):
        return ()
    loop = np.tile(loop_numbers(loops), tokens - 1)
    keys = token_keys(view, position=position, block=view.block, loop=loop)
    order = paths.gapped(position)
    x, y = (paths.coordinates(values, order) for values in (loop.astype(np.float64), found.scores[loop - 1, position]))
    columns = paths.columns(keys | {"rule": np.full(len(loop), found.rule.name)}, order)
    return (Line(x=x, y=y, columns=columns, role=Role("muted"), width=0.7, opacity=0.5),)


def _events(view: View, token: int, found: RuleExits) -> tuple[Mark, ...]:
    """The exit, and the loop at which the score leaves the stopping side again."""
    loop, back = int(found.exits.loop[token]), int(found.exits.crosses_back[token])
    if loop == NEVER:
        return ()
    rule = found.rule
    keys = token_keys(view, position=np.array([token]), block=view.block, loop=np.array([loop]))
    settings = {"threshold": np.array([rule.threshold]), "patience": np.array([rule.patience])}
    mark = Points(
        x=np.array([float(loop)]),
        y=found.scores[loop - 1 : loop, token].astype(np.float64),
        columns=keys | {"rule": np.array([rule.name]), "exit_loop": np.array([loop]), **settings},
        role=_look(rule),
        glyph="exit",
        legend=f"exit: {rule.title}",
        size=11.0,
    )
    if back == NEVER:
        return (mark,)
    return (mark, Rule(at=float(back), across="vertical", label=f"crosses back at {back}", role=_look(rule), dash="dot"))


def _back(found: RuleExits, token: int) -> str:
    back = int(found.exits.crosses_back[token])
    return "" if back == NEVER else f" and crosses back at {back}"
