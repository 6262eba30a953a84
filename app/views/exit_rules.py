"""Page Exit rules: each rule's score against its threshold, exits on the map of loops, per token and counted, and live."""

import streamlit as st

from analysis.chart import View, chart_builders
from analysis.comparison import EQUAL_TERMS, LAST_BLOCK
from analysis.exit_table import exit_table
from app import calibration, fields, live_part, state, text, watch
from app.markdown import literal
from app.panel import Plot, panel

_NARROWEST = 440
"""Pixels below which map and table stand one above the other."""


def render() -> None:
    """Draw the page."""
    view = state.view()
    _reading(view)
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_rule"):
        rule = fields.instance(chart_builders()["rule"], prefix="rule")
        calibration.button()
    with st.container():
        calibration.outcome()
    watch.settle(text.JOB)
    watch.mention(text.JOB, "A sweep is on its way on the page Trade-off. What needs the model here waits for its turn.")
    panel(Plot("rule", rule))
    grid = st.grid(2, min_column_width=_NARROWEST, gap=("small", "medium"))
    with grid.cell():
        panel(Plot("exit_heatmap", chart_builders()["heatmap"](), height=520))
    with grid.cell():
        if view is not None:
            _table(view)
    panel(Plot("exit_histogram", chart_builders()["exit_histogram"]()))
    live_part.part()


def _reading(view: View | None) -> None:
    """How the page is to be read: post hoc or live, and on what terms rules are compared."""
    if view is not None and view.trajectory.provenance.mode == "live":
        how = (
            "This run is live: its loops really stopped, so scores end where the tokens left, and the rules are read from what "
            "was run."
        )
    else:
        how = (
            "Thresholds are in the sidebar. Charts and table are post hoc: read from one pass through all loops. A live run, "
            "in which earlier tokens really stop, can differ, as later tokens then see what the earlier ones left."
        )
    blocks = 0 if view is None else len(view.trajectory.blocks)
    st.caption(f"{how} {EQUAL_TERMS}{f' {LAST_BLOCK}' if blocks > 1 else ''}")


def _table(view: View) -> None:
    """Loops after which each rule stops each token of the selected block."""
    trace = view.trajectory.blocks[view.block]
    with st.container(key="exit_table", gap="small"):
        st.header(literal(f"Exits per token, block {trace.name}"), anchor=False)
        found = exit_table(view)
        if not view.rules:
            st.info("No exit rule is marked; choose at least one in the sidebar.", icon=":material/info:")
            return
        st.dataframe(found.columns, hide_index=True, height=460, alt=f"Exit loops of every token in block {trace.name}")
        st.caption(literal(found.caption))
        for sentence in found.missing:
            st.warning(literal(sentence), icon=":material/warning:")


if __name__ == "__main__":
    render()
