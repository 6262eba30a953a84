"""A panel: one chart with its title, warnings, caption, numbers and downloads. Every view is made of these."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from analysis import study
from analysis.caption import nonfinite_words
from analysis.chart import Chart, ChartBuilder, View, chart_rows
from analysis.export import KINDS, VENUES, Kind, export, file_name
from app import cache, looks, state
from app.components.viewer import clicked, viewer
from app.markdown import literal

_log = logging.getLogger(__name__)
_MIME: dict[Kind, str] = {
    "pdf": "application/pdf",
    "svg": "image/svg+xml",
    "png": "image/png",
    "csv": "text/csv",
    "json": "application/json",
}
_VENUE_WORDS = {"icml2024": "ICML column", "icml2024-wide": "ICML full width", "neurips2024": "NeurIPS text width"}


@dataclass(frozen=True)
class Plot:
    """What a panel is asked for.

    Attributes:
        name: key of the panel, unlike every other one on its page.
        builder: the chart with its options.
        overlay: whether it needs the demo's checkpoints along training.
        height: pixels, None is what the chart needs.
    """

    name: str
    builder: ChartBuilder
    overlay: bool = False
    height: int | None = None


def panel(plot: Plot) -> None:
    """Draw a chart of the run on screen. What cannot be drawn says why; nothing else on the page suffers."""
    view, current = state.view(overlay=plot.overlay), state.shown()
    if view is None or current is None:
        return
    panel_of(plot, view, current)


def panel_of(plot: Plot, view: View, current: state.Shown) -> None:
    """Draw a chart of another run than that on screen, as a panel does; ``current`` says which it is."""
    _panel(plot, view, current)


@st.fragment
def _panel(plot: Plot, view: View, current: state.Shown) -> None:
    with st.container(key=f"panel_{plot.name}", gap="small"):
        drawn = _drawn(plot, view, current)
        if drawn is None:
            return
        chart = drawn.chart
        st.header(literal(chart.title), anchor=False)
        banner = nonfinite_words(view.trajectory, range(len(view.trajectory.blocks)))  # stands above all charts
        for sentence in chart.warnings:
            if sentence not in banner:
                st.warning(literal(sentence), icon=":material/warning:")
        chart = _figure(plot, drawn, view, current)
        _below(plot, chart, current)


def _drawn(plot: Plot, view: View, current: state.Shown) -> cache.Drawn | None:
    """The chart, from the cache if it is there; None when it cannot be made and the page says why."""
    words = (current.identity, view.prompt, view.token, view.block, view.loop, view.rules, bool(view.swept), plot)
    try:
        return cache.drawn(
            repr(words), plot.builder, view, dark=looks.dark(), revision=_revision(plot, view, current), height=plot.height
        )
    except study.KNOWN_ERRORS as error:
        st.header(literal(plot.builder.title), anchor=False)
        st.info(literal(str(error)), icon=":material/info:")
    except Exception as error:
        _log.exception("Chart %s could not be drawn", plot.builder.name)
        st.header(literal(plot.builder.title), anchor=False)
        st.error(
            f"This chart could not be drawn ({type(error).__name__}). The other charts and the run are unharmed; "
            "change its options, or report it with the server's log."
        )
    return None


def _revision(plot: Plot, view: View, current: state.Shown) -> str:
    """As long as this stays the same, zoom and camera do: thresholds, loop, token and theme are not in it."""
    return repr((current.identity, view.prompt, plot))


def _figure(plot: Plot, drawn: cache.Drawn, view: View, current: state.Shown) -> Chart:
    """The figure on screen; the chart as seen from its camera, which is the one that gets exported."""
    key, revision = f"figure_{plot.name}", _revision(plot, view, current)

    def follow() -> None:
        click = clicked(state.clicked_in(key))
        if click is not None:
            state.select(click)

    seen = viewer(
        drawn.figure,
        key=key,
        alt=drawn.chart.alt,
        height=drawn.height,
        dark=looks.dark(),
        look=looks.look(plot.name, revision),
        on_click=follow,
    )
    if seen.look is not None:
        looks.keep_look(plot.name, revision, seen.look)
    if looks.keep_dark(seen.dark) or state.take_click():
        st.rerun()
    camera = looks.camera(plot.name) if drawn.chart.camera is not None else None
    return drawn.chart if camera is None else drawn.chart.seen_from(camera)


def _below(plot: Plot, chart: Chart, current: state.Shown) -> None:
    st.caption(literal(chart.caption))
    with st.container(horizontal=True, gap="small"):
        with st.popover("Download", icon=":material/download:", type="tertiary", key=f"download_{plot.name}"):
            _downloads(plot, chart, current)
        numbers = st.popover("Numbers", icon=":material/table:", type="tertiary", key=f"numbers_{plot.name}", on_change="rerun")
        if numbers.open:
            with numbers:
                st.dataframe(chart_rows(chart), hide_index=True, width=760, height=360, alt=f"Numbers behind: {chart.alt}")


def _downloads(plot: Plot, chart: Chart, current: state.Shown) -> None:
    """A button per format; the file is made when it is clicked, and the page does not run again."""
    venue = st.radio(
        "Size",
        list(VENUES),
        format_func=lambda name: _VENUE_WORDS.get(name, name),
        key=f"venue_{plot.name}",
    )
    with st.container(horizontal=True, gap="small"):
        for kind in KINDS:
            st.download_button(
                kind.upper(),
                data=_maker(chart, kind, venue, current),
                file_name=file_name(chart, kind, venue),
                mime=_MIME[kind],
                key=f"save_{plot.name}_{kind}",
                on_click="ignore",
            )
    st.caption("PDF, SVG and PNG on white, whatever the page's theme. CSV holds the chart's rows, JSON where they come from.")


def _maker(chart: Chart, kind: Kind, venue: str, current: state.Shown) -> Callable[[], bytes]:
    return lambda: export(chart, kind=kind, venue=venue, request=current.run.request)
