"""Calibrate, on the page Exit rules: thresholds that meet a quality or a budget on one text, reported on another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import streamlit as st

from analysis import study
from analysis.aim import Aimed, GoalKind, aim, goal_of, halves
from analysis.exit_rule import ExitRule
from analysis.goal import Goal, Quality
from analysis.sweep_table import reached_rows
from analysis.texts import BundledText
from app import cache, fields, marked, state, text, watch
from app import job as jobs
from app.markdown import literal
from app.table import by_title, table

_JOB: Final = "calibration"
_POPOVER: Final = "calibrate"
_GOALS: Final[Mapping[GoalKind, str]] = {"quality": "Quality", "budget": "Budget"}
_On = Literal["bundled", "sweep"]
_TEXTS: Final[Mapping[_On, str]] = {
    "bundled": "Bundled calibrate.txt; report.txt is held out",
    "sweep": "The text of the sweep; its second half is held out",
}


@dataclass(frozen=True)
class Calibrated:
    """What came of it, and for which block on which texts."""

    aimed: Aimed
    block: str
    on: str


def settle() -> None:
    """Set the thresholds that a finished calibration has found. Before the sidebar is drawn."""
    found: Calibrated | None = watch.settle(_JOB)
    for one in () if found is None else found.aimed.reached:
        if one.calibration is not None:
            marked.apply(one.rule, one.calibration.rule.threshold)


def button() -> None:
    """The button with its settings behind it."""
    with st.popover("Calibrate", icon=":material/target:", key=_POPOVER, on_change="rerun"):
        st.caption("Finds the threshold of every marked rule that meets a goal on a text, and sets its slider.")
        kind = cast("GoalKind", fields.one_of("Goal", _GOALS, key="goal", default="quality"))
        if kind == "quality":
            percent = st.number_input(
                "Cross-entropy within % of full depth",
                0.0,
                100.0,
                0.5,
                0.1,
                format="%g",
                key="goal.percent",
                bind="query-params",
            )
            goal = goal_of(kind, percent=percent, loops=0.0)
        else:
            loops = st.number_input(
                "Mean loops per token, at most", 1.0, None, 6.0, 0.5, format="%g", key="goal.loops", bind="query-params"
            )
            goal = goal_of(kind, percent=0.0, loops=loops)
        on = cast("_On", fields.one_of("Text", _TEXTS, key="goal.text", default="bundled", listed=True))
        tokens = st.number_input(
            "Tokens of each text", text.FEWEST, None, text.TOKENS, 128, key="goal.tokens", bind="query-params"
        )
        refused = _refused(on)
        if st.button(
            "Calibrate", type="primary", key="calibrate_now", disabled=bool(refused) or watch.busy(_JOB), on_click=_close
        ):
            _start(goal, on, int(tokens))
            st.rerun()
        if refused:
            st.caption(literal(refused))


def _close() -> None:
    """Fold the settings away, as they would cover how far the calibration is."""
    state.put(_POPOVER, False)


def mention() -> None:
    """On another page: how far a calibration is that is on its way."""
    watch.mention(_JOB, "A calibration is on its way. It sets the thresholds in the sidebar once it is done.")


def outcome() -> None:
    """Progress, and the table of what the last calibration has found."""
    watch.follow(_JOB)
    found: Calibrated | None = watch.result(_JOB)
    if found is None:
        return
    with st.container(key="calibrated", gap="small"):
        header, *rows = by_title(reached_rows(found.aimed.reached))
        st.header(literal(f"Calibrated to {found.aimed.goal.words()}, block {found.block}"), anchor=False)
        table(header, rows, alt="Calibrated thresholds, and what they give on both texts")
        st.caption(
            literal(
                f"{found.on} Post hoc. The sliders stand at these thresholds; a rule without one has none that meets the goal, "
                "and its slider was left alone."
            )
        )
        for sentence in found.aimed.missing:
            st.warning(literal(sentence), icon=":material/warning:")


def _refused(on: _On) -> str:
    """Why there can be no calibration now; "" when there can."""
    current = state.shown()
    if current is None or current.request is None:
        return "A run folder may have no model here; make a run in this session to calibrate with its model."
    if not state.rules():
        return "No exit rule is marked; choose at least one in the sidebar."
    if on == "sweep" and watch.result(text.JOB) is None:
        return "There is no sweep yet; make one on the page Trade-off."
    return ""


def _start(goal: Goal, on: _On, tokens: int) -> None:
    """Begin a calibration with the settings of the popover."""
    current, swept = state.shown(), cast("text.Recorded | None", watch.result(text.JOB))
    if current is None or current.request is None:
        return
    base, rules, kept = current.request, state.rules(), cache.shelf()
    blocks = [block.name for block in current.run.trajectories[0].blocks]
    # Quality is defined on the last block only; a budget can be met on any.
    block = len(blocks) - 1 if isinstance(goal, Quality) else state.selection()[2]

    def work(progress: jobs.Progress, cancel: jobs.Cancel) -> Calibrated:
        if on == "sweep" and swept is not None:
            first, second = halves(swept.run.trajectories)
            aimed = aim(rules, first, second, block, goal=goal, flops=swept.flops)
            return Calibrated(
                aimed, first[0].blocks[block].name, f"On the first half of {swept.text.name}; the second is held out."
            )
        last = block == len(blocks) - 1
        there, held = _bundled(base, rules, tokens=tokens, last=last, kept=kept, progress=progress, cancel=cancel)
        aimed = aim(rules, there.run.trajectories, held.run.trajectories, block, goal=goal, flops=there.flops)
        return Calibrated(aimed, blocks[block], f"On {tokens} tokens of calibrate.txt, held out {tokens} of report.txt.")

    watch.begin(_JOB, jobs.start("calibration", work))


def _bundled(
    base: study.Request,
    rules: Sequence[ExitRule],
    *,
    tokens: int,
    last: bool,
    kept: cache.Shelf,
    progress: jobs.Progress,
    cancel: jobs.Cancel,
) -> tuple[text.Recorded, text.Recorded]:
    """The bundled text to calibrate on, and the one that is held out. Raises Stopped when it is cancelled."""

    def ran(number: int, name: BundledText) -> text.Recorded:
        part = jobs.part(progress, number, of=2)
        return text.record(text.bundled(name), base, rules, tokens=tokens, last=last, kept=kept, progress=part, cancel=cancel)

    try:
        return ran(0, "calibrate"), ran(1, "report")
    except text.Interrupted as halt:
        raise jobs.Stopped(f"{halt.words('calibration', button='Calibrate')} No threshold was changed.") from halt
