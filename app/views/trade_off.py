"""Page Trade-off: exit rules over all their thresholds on a text, at equal loops and equal quality; a point can be applied."""

from dataclasses import replace
from typing import cast

import streamlit as st

from analysis.chart import View, chart_builders
from analysis.comparison import EQUAL_TERMS, LAST_BLOCK
from analysis.exit_rule import ExitRule
from analysis.floor import floor_words
from analysis.points import POINT_HEADER, point_rows
from analysis.prompts import PromptError
from analysis.rule_name import sign
from analysis.study import KNOWN_ERRORS
from analysis.sweep import Swept
from analysis.sweep_table import CLOSE, summary
from app import cache, calibration, fields, live_part, marked, state, text, watch
from app import job as jobs
from app.markdown import literal
from app.panel import Plot, panel_of
from app.table import by_title, table

_EXIT_RULES = "views/exit_rules.py"
_COSTS = {"mean_loops": "Mean loops", "flops": "Operations"}
_QUALITIES = {"cross_entropy": "Cross-entropy", "agreement": "Agreement with full depth"}


def render() -> None:
    """Draw the page."""
    st.caption(f"{EQUAL_TERMS} {LAST_BLOCK} Everything here is post hoc.")
    if watch.settle(text.JOB) is not None:
        st.rerun()  # as buttons and notes were drawn for the state before
    with st.container():
        _controls()
    with st.container():
        watch.follow(text.JOB)
        calibration.mention()
        live_part.mention()
    recorded: text.Recorded | None = watch.result(text.JOB)
    notes = st.container()  # so that what follows keeps its place, as in the sidebar
    with notes:
        shown, view = _on_screen(recorded)
    if shown is None or view is None:
        return
    try:
        found = cache.sweep(shown.identity, view, flops=None if recorded is None else recorded.flops)
    except KNOWN_ERRORS as error:
        st.info(literal(str(error)), icon=":material/info:")
        return
    with notes:
        for sentence in found.missing:
            st.warning(literal(sentence), icon=":material/warning:")
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_pareto"):
        builder = fields.instance(chart_builders()["pareto"], prefix="pareto", options={"x": _COSTS, "y": _QUALITIES})
    panel_of(Plot("pareto", builder), replace(view, swept=found.swept), shown)
    _point(found.swept)
    _summary(found.swept)


def _controls() -> None:
    """Which text, how much of it, and the button that runs it."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_text"):
        source = cast("text.Source", fields.one_of("Text", text.SOURCES, key="text", default="report", listed=True, width=330))
        tokens = st.number_input(
            "Tokens", text.FEWEST, None, text.TOKENS, 128, key="text.tokens", bind="query-params", width=150,
            help="They are run in windows, every window with all loops. Windows that ran before are not run again.",
        )  # fmt: skip
        chosen, problem = _uploaded() if source == "upload" else (text.bundled(source), "")
        refused = problem or _refused(chosen)
        pressed = st.button(
            "Sweep", type="primary", icon=":material/play_arrow:", key="sweep", disabled=bool(refused) or watch.busy(text.JOB)
        )
    if problem:
        st.error(literal(problem))
    elif refused:
        st.info(literal(refused), icon=":material/info:")
    elif pressed and chosen is not None:
        _start(chosen, int(tokens))
        st.rerun()


def _uploaded() -> tuple[text.Text | None, str]:
    """The text that was uploaded, and why a file that was given is none."""
    given = st.file_uploader("Text file", type=["txt"], max_upload_size=4, key="text_upload", width=330)
    if given is not None:
        try:
            text.keep_upload(given.name, given.getvalue())
        except PromptError as error:
            return None, str(error)
    return text.uploaded(), ""


def _refused(chosen: text.Text | None) -> str:
    """Why nothing can be swept now; "" when it can."""
    current = state.shown()
    if current is None or current.request is None:
        return "A run folder may have no model here; make a run in this session to sweep a text with its model."
    if not state.rules():
        return "No exit rule is marked; choose at least one in the sidebar."
    return text.missing_words() if chosen is None else ""


def _start(chosen: text.Text, tokens: int) -> None:
    current, rules, kept = state.shown(), state.rules(), cache.shelf()
    if current is None or current.request is None:
        return
    base, before = current.request, cast("text.Recorded | None", watch.result(text.JOB))

    def work(progress: jobs.Progress, cancel: jobs.Cancel) -> text.Recorded:
        try:
            return text.record(chosen, base, rules, tokens=tokens, last=True, kept=kept, progress=progress, cancel=cancel)
        except text.Interrupted as halt:
            words = halt.words("sweep", button="Sweep")
            raise jobs.Stopped(words, text.saying_more(halt.recorded, before)) from halt

    watch.begin(text.JOB, jobs.start("sweep", work))


def _on_screen(recorded: text.Recorded | None) -> tuple[state.Shown | None, View | None]:
    """The text that was swept, or before that the prompt of the run on screen; and what the chart sees of it."""
    current, view = state.shown(), state.view()
    if recorded is None:
        if view is not None:
            st.caption("Below: the prompts of the run on screen. Press Sweep for a text, which is what rules are compared on.")
        last = 0 if view is None else len(view.trajectory.blocks) - 1
        return current, None if view is None else replace(view, block=last, token=None, loop=None)
    st.caption(
        literal(
            f"Swept: {recorded.text.name}, {text.windows_words(recorded)}, checkpoint {recorded.base.checkpoint}, "
            f"loops {', '.join(map(str, recorded.base.loops))}."
        )
    )
    if current is not None and current.request is not None and not text.same_model(current.request, recorded.base):
        st.info(
            "The run on screen has another model or other settings; press Sweep to compare rules there.", icon=":material/info:"
        )
    last = len(recorded.run.trajectories[0].blocks) - 1
    view = View(run=recorded.run, block=last, rules=state.rules())
    return state.Shown(recorded.identity, recorded.run, None), view


def _point(swept: tuple[Swept, ...]) -> None:
    """The settings of one point, which a click on the chart chooses, and the button that applies them."""
    rules = {one.rule.name: one for one in swept if one.points}
    if not rules:
        return
    with st.container(key="point_settings", gap="small"):
        st.header("Chosen point", anchor=False)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            state.keep_among(state.POINT_RULE, list(rules))
            name = st.selectbox(
                "Rule", list(rules), format_func=lambda name: rules[name].rule.title, key=state.POINT_RULE,
                bind="query-params", width=250,
            )  # fmt: skip
            one = rules[name or next(iter(rules))]
            count = len(one.points)
            state.keep_within(state.POINT, count)
            number = st.number_input(
                "Point, from fewest loops", 0, count - 1, 0, 1, key=state.POINT, bind="query-params", width=220
            )
            point = one.points[int(number)]
            applied = point.rule.causal and st.button(
                "Apply to Exit rules",
                icon=":material/logout:",
                key="apply_point",
                on_click=marked.apply,
                args=(point.rule, point.rule.threshold),
            )
        if applied:
            _applied(point.rule)
        if not point.rule.causal:
            st.caption("An oracle looks ahead, so that no model can stop by it: it has no threshold to apply.")
        table(POINT_HEADER, [point_rows(one, int(number))], alt="Settings and results of the chosen point")
        words = floor_words(point.rule, one.floor, one.ground.provenance.dtype)
        if words:
            st.warning(literal(words), icon=":material/warning:")


def _applied(rule: ExitRule) -> None:
    """Say that it is done, with the way to the page; the sidebar's slider stands there already."""
    with st.container(horizontal=True, vertical_alignment="center", key="applied_point"):
        st.success(literal(f"{rule.title} now stops {sign(rule)} {rule.threshold:.4g}."), icon=":material/check:")
        st.page_link(_EXIT_RULES, label="Open Exit rules", icon=":material/logout:")


def _summary(swept: tuple[Swept, ...]) -> None:
    header, *rows = by_title(summary(swept))
    names = [name if header.index(name) == i else f"{name} of the gain" for i, name in enumerate(header)]
    st.header("Rules at equal loops", anchor=False)
    table(names, rows, alt="Each rule's distance to the oracle and gain over a fixed number of loops, smallest distance first")
    st.caption(
        literal(
            "gap: nats above the oracle at equal mean loops, the mean over budgets; gain: the gap of a fixed number of loops "
            f"less the rule's, above 0 where the rule is worth its name. * at {CLOSE.words()}, as mean loops and as a share of "
            "full depth's operations."
        )
    )


if __name__ == "__main__":
    render()
