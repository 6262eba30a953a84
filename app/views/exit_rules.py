"""Page Exit rules: each rule's score against its threshold, the exits on the map of loops, and a table per token."""

import streamlit as st

from analysis.chart import View, chart_builders
from analysis.exit_table import exit_table
from app import fields, state
from app.markdown import literal
from app.panel import Plot, panel

_NARROWEST = 440
"""Pixels below which map and table stand one above the other."""


def render() -> None:
    """Draw the page."""
    view = state.view()
    st.caption(
        "Thresholds are in the sidebar. Everything here is post hoc: it is read from one pass through all loops. A live run, "
        "in which earlier tokens really stop, can differ, because later tokens then see what the earlier ones left behind."
    )
    with st.container(horizontal=True, key="options_rule"):
        rule = fields.instance(chart_builders()["rule"], prefix="rule")
    panel(Plot("rule", rule))
    grid = st.grid(2, min_column_width=_NARROWEST, gap=("small", "medium"))
    with grid.cell():
        panel(Plot("exit_heatmap", chart_builders()["heatmap"](), height=520))
    with grid.cell():
        if view is not None:
            _table(view)


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
