"""Page Two scales: small steps within a block, large jumps between blocks, and how both change along training."""

import streamlit as st

from analysis.chart import ChartBuilder, chart_builders
from analysis.statistic import statistics
from app import fields
from app.panel import Plot, panel

_NARROWEST = 400
"""Pixels of a chart below which two stand one above the other."""


def render() -> None:
    """Draw the page."""
    panel(Plot("curves", _curves()))
    panel(Plot("checkpoints", _checkpoints(), overlay=True))
    grid = st.grid(2, min_column_width=_NARROWEST, gap=("small", "medium"))
    for name in _names("handoff"):
        with grid.cell():
            panel(Plot(f"drift_{name}", chart_builders()["drift"](**{"statistic": name})))


def _names(level: str) -> dict[str, str]:
    return {name: name.replace("_", " ") for name, one in statistics().items() if one.level == level}


def _curves() -> ChartBuilder:
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_curves"):
        return fields.instance(chart_builders()["curves"], prefix="curves", options={"statistic": _names("loop")})


def _checkpoints() -> ChartBuilder:
    with st.container(horizontal=True, key="options_checkpoints"):
        return fields.instance(chart_builders()["checkpoints"], prefix="checkpoints", options={"statistics": _names("loop")})


if __name__ == "__main__":
    render()
