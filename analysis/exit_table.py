"""The exits of one block as a table for the page: per token and rule the loop, ``never``, or nothing where undefined."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.caption import counted, joined
from analysis.chart import View
from analysis.exit_marks import rule_exits, rule_words
from analysis.exit_rule import NEVER
from analysis.rule_fields import never_words


@dataclass(frozen=True)
class ExitTable:
    """Columns of equal length by name, a sentence on how to read them, and one per rule that cannot be answered."""

    columns: Mapping[str, tuple[object, ...]]
    caption: str
    missing: tuple[str, ...]


def exit_table(view: View) -> ExitTable:
    """Where each rule of the view stops each token of its prompt in its block, and where the score crosses back."""
    trajectory = view.trajectory
    columns: dict[str, tuple[object, ...]] = {"position": tuple(range(trajectory.tokens)), "token": trajectory.labels}
    found, missing = rule_exits(trajectory, view.block, view.rules)
    trace, live = trajectory.blocks[view.block], trajectory.provenance.mode == "live"
    if live:
        columns["loops run, live"] = tuple(int(loops) for loops in trace.loops_run)
    counts: list[str] = []
    for one in found:
        columns[one.rule.title] = one.exits.words()
        back = one.exits.crosses_back
        if (back != NEVER).any():
            columns[f"{one.rule.title}, crosses back"] = tuple("" if k == NEVER else str(int(k)) for k in back)
        fired = one.exits.loop[one.exits.fired]
        never = int(np.sum(one.exits.defined & ~one.exits.fired))
        median = f"median {np.median(fired):g} loops" if len(fired) else "no exit"
        counts.append(
            f"{rule_words(one.rule, trajectory, (view.block,))}: {median}, {counted(never, 'token')} never"
            + (f", {counted(int(np.sum(~one.exits.defined)), 'token')} undefined" if not one.exits.defined.all() else "")
        )
    how = "read from what a live run ran" if live else "post hoc"
    caption = joined(
        f"Loops run when a rule stops, of K = {trace.loops}; {how}. "
        '"never": no loop reaches the threshold. Empty: the rule is undefined there.',
        f"{'; '.join(counts)}." if counts else "",
        *(words for one in found for words in never_words(one.rule, trajectory, (view.block,))),
    )
    return ExitTable(columns=columns, caption=caption, missing=missing)
