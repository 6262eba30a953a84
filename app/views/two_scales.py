"""Page Two scales: small steps within a block, large jumps between blocks, and how both change along training."""

import streamlit as st

from analysis.chart import ChartBuilder, chart_builders
from analysis.statistic import statistics
from app import fields
from app.panel import Plot, panel

_SHARES = (0.4, 0.6)
_SIDE_BY_SIDE = 430


def render() -> None:
    """Draw the page."""
    panel(Plot("curves", _curves()))
    left, right = st.columns(_SHARES, gap="medium", vertical_alignment="bottom")
    with left:
        drift = _drift()
    with right:
        overlay = _overlay()
    left, right = st.columns(_SHARES, gap="medium")
    with left:
        panel(Plot("drift", drift, height=_SIDE_BY_SIDE))
    with right:
        panel(Plot("checkpoints", overlay, overlay=True, height=_SIDE_BY_SIDE))


def _names(level: str) -> dict[str, str]:
    return {name: name.replace("_", " ") for name, one in statistics().items() if one.level == level}


def _curves() -> ChartBuilder:
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_curves"):
        return fields.instance(chart_builders()["curves"], prefix="curves", options={"statistic": _names("loop")})


def _overlay() -> ChartBuilder:
    with st.container(horizontal=True, key="options_checkpoints"):
        return fields.instance(chart_builders()["checkpoints"], prefix="checkpoints", options={"statistics": _names("loop")})


def _drift() -> ChartBuilder:
    with st.container(horizontal=True, key="options_drift"):
        return fields.instance(chart_builders()["drift"], prefix="drift", options={"statistic": _names("handoff")})


if __name__ == "__main__":
    render()
