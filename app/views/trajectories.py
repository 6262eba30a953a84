"""Page Trajectories: paths through latent space, distance to the end by token and loop, and what the model says."""

import streamlit as st

from analysis.chart import ChartBuilder, chart_builders
from analysis.projection import Projection, projections
from analysis.statistic import statistics
from app import fields, state
from app.panel import Plot, panel

_HEIGHT = 560
"""Pixels: the two upper charts are read together, so they are equally high."""

_READABLE = 24
"""Tokens side by side whose words can be read."""

_NARROWEST = 440
"""Pixels of a chart below which the two stand one above the other."""


def render() -> None:
    """Draw the page."""
    upper = st.grid(2, min_column_width=_NARROWEST, gap=("small", "medium"))
    left, right = upper.cell(), upper.cell()
    with left:
        trajectory = _trajectory()
    with right:
        panel(Plot("heatmap", _heatmap(), height=_HEIGHT))
    panel(Plot("says", _says()))
    with left:
        panel(Plot("trajectory", trajectory, height=_HEIGHT))  # last, as a projection such as UMAP can take its time


def _trajectory() -> ChartBuilder:
    """Widgets of the trajectory chart: dimensions and projection in the open, the rest behind a button."""
    kind, kinds, view = chart_builders()["trajectory"], projections(), state.view()
    tokens = {} if view is None else {i: f"{i} {label}" for i, label in enumerate(view.trajectory.labels)}
    with st.container(horizontal=True, vertical_alignment="bottom", key="options_trajectory"):
        flat = fields.values(kind, prefix="trajectory", only=("dims",))
        name = fields.one_of(
            "Projection", {n: one.title for n, one in kinds.items()}, key="projection", default="pca", listed=True, width=120
        )
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


def _says() -> ChartBuilder:
    """Lens, and for a long prompt the tokens whose cells still have room for a word."""
    view = state.view()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium", key="options_says"):
        lens = fields.values(chart_builders()["says"], prefix="says", only=("lens",))
        tokens = 0 if view is None else view.trajectory.tokens
        window: tuple[int, int] | None = None
        if tokens > _READABLE:
            window = st.slider(
                "Tokens shown", 0, tokens, (tokens - _READABLE, tokens), key=state.WINDOW, bind="query-params", width=420
            )
        return chart_builders()["says"](**lens, **{"window": window})


if __name__ == "__main__":
    render()
