"""Page Trajectories: paths through latent space, distance to the end by token and loop, and what the model says."""

import streamlit as st

from analysis.chart import ChartBuilder, chart_builders
from analysis.projection import Projection, projections
from analysis.statistic import statistics
from app import fields, state
from app.panel import Plot, panel

_SHARES = (0.54, 0.46)
_SIDE_BY_SIDE = 560
"""Pixels: the two upper charts are read together, so they are equally high."""


def render() -> None:
    """Draw the page."""
    left, right = st.columns(_SHARES, gap="medium", vertical_alignment="bottom")
    with left:
        trajectory = _trajectory()
    with right:
        heatmap = _heatmap()
    left, right = st.columns(_SHARES, gap="medium")
    with left:
        panel(Plot("trajectory", trajectory, height=_SIDE_BY_SIDE))
    with right:
        panel(Plot("heatmap", heatmap, height=_SIDE_BY_SIDE))
    says = chart_builders()["says"]
    with st.container(horizontal=True, key="options_says"):
        builder = fields.instance(says, prefix="says", only=("lens",))
    panel(Plot("says", builder))


def _trajectory() -> ChartBuilder:
    """Widgets of the trajectory chart: dimensions and projection in the open, the rest behind a button."""
    kind, kinds, view = chart_builders()["trajectory"], projections(), state.view()
    tokens = {} if view is None else {i: f"{i} {label}" for i, label in enumerate(view.trajectory.labels)}
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_trajectory"):
        flat = fields.values(kind, prefix="trajectory", only=("dims",))
        name = fields.one_of("Projection", {n: one.title for n, one in kinds.items()}, key="projection", default="pca")
        with st.popover("Options", icon=":material/tune:", key="more_trajectory"):
            projection: Projection = fields.instance(kinds[name], prefix=name)
            return fields.instance(
                kind,
                prefix="trajectory",
                only=("fit", "chosen", "show", "blocks", "show_start", "leave_out", "norm_limit"),
                options={"leave_out": tokens, "chosen": tokens},
                others=flat | {"projection": projection},
            )


def _heatmap() -> ChartBuilder:
    names = {name: name.replace("_", " ") for name, one in statistics().items() if one.level == "loop"}
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_heatmap"):
        return fields.instance(
            chart_builders()["heatmap"],
            prefix="heatmap",
            options={"statistic": {"distance_to_last": "distance to the last iterate"} | names},
        )


if __name__ == "__main__":
    render()
