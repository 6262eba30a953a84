"""The sidebar: starting a run and following it, what to look at, and the exit rules with their thresholds."""

import logging

import streamlit as st

from analysis import study
from analysis.needs import quantities_of
from app import cache, marked, state, wanted, watch
from app.markdown import literal
from app.settings import Settings, run_settings

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.8


def sidebar(*, rules_open: bool) -> None:
    """Draw the sidebar, take over finished runs and start new ones. ``rules_open`` unfolds the exit rules.

    Each part has a container of its own, so that it keeps its place whatever stands above it: a widget whose place changes
    is made anew in the browser, and while the old one goes, its tie to the link is cut (Streamlit 1.67).
    """
    state.settle()
    with st.sidebar:
        known, needed = state.rules_known(), quantities_of(state.rules())
        with st.container():
            settings = run_settings()
        if settings.complete and known:
            state.open_first(settings.request, folder=wanted.folder() if wanted.source() == "folder" else "")
        with st.container():
            _run_buttons(settings)
        with st.container():
            _selection()
        marked.rules(opened=rules_open)
        if not known or quantities_of(state.rules()) != needed:
            st.rerun()  # a run records what the marked rules read, and they have just said it
        with st.container(key="run_counter"):
            st.caption(f"runs: {state.runs()}", help="Runs of the model in this session. Moving a slider adds none.")


def _run_buttons(settings: Settings) -> None:
    """Estimate, Run, progress with Cancel, and what went wrong."""
    if wanted.source() == "folder":
        if st.button("Open", type="primary", width="stretch", disabled=not wanted.folder(), key="open"):
            state.open_folder(wanted.folder())
        if state.problem():
            st.error(literal(state.problem()))
        return
    asked, refused = settings.request, settings.trouble
    if asked is not None:
        said, refused = _memory(asked)
        _before_running(asked, said)
    busy = state.job() is not None
    pressed = st.button(
        "Run",
        type="primary",
        width="stretch",
        disabled=busy or bool(refused) or asked is None,
        key="run",
        icon=":material/play_arrow:",
    )
    if pressed and asked is not None:
        state.launch(asked)
        st.rerun()  # so that Run shows at once that it cannot be pressed again
    if state.job() is not None:
        _progress()
    elif refused or state.problem():
        st.error(literal(refused or state.problem()))
    elif state.notice():
        st.info(literal(state.notice()), icon=":material/stop_circle:")


def _before_running(asked: study.Request, said: str) -> None:
    """What is odd about the prompt, what the run takes, and whether it is another one than that on screen."""
    if not said:
        return
    for sentence in cache.warnings(asked.key(), asked):
        st.caption(f":material/warning: {literal(sentence)}")
    current = state.shown()
    changed = current is not None and asked.key() != current.identity
    st.caption(f"{said} **Changed since the run on screen.**" if changed else said)


def _memory(wanted: study.Request) -> tuple[str, str]:
    """What the run takes, and why it is refused ("" when it is not)."""
    try:
        found = cache.estimate(wanted.key(), wanted)
    except study.KNOWN_ERRORS as error:
        return "", str(error)
    except Exception as error:
        _log.exception("The estimate of a run failed")
        return "", f"This checkpoint could not be read ({type(error).__name__}); the server's log has the details."
    return (found.sentence(), "") if found.fits else ("", found.sentence())


@st.fragment(run_every=_POLL_SECONDS)
def _progress() -> None:
    """How far the run is; looks again by itself, and has the page drawn anew once it is over."""
    current = state.job()
    if current is None or current.over:
        st.rerun()
    st.progress(current.fraction, text=literal(watch.progress_words(current)))
    st.button("Cancel", width="stretch", key="cancel", on_click=current.cancel, disabled=current.stopping)


def _selection() -> None:
    """Prompt, token, block and loop of the run on screen."""
    current = state.shown()
    if current is None:
        return
    prompt = 0
    if len(current.run.trajectories) > 1:
        prompts = {i: f"{i} {_start_of(t)}" for i, t in enumerate(current.run.trajectories)}
        prompt = (
            st.selectbox("Prompt shown", list(prompts), format_func=prompts.__getitem__, key="of", bind="query-params") or 0
        )
    trajectory = current.run.trajectories[prompt]
    tokens: dict[int | str, str] = {"all": "All tokens"} | {i: f"{i} {label}" for i, label in enumerate(trajectory.labels)}
    left, right = st.columns(2)
    with left:
        st.selectbox(
            "Token", list(tokens), index=len(tokens) - 1, format_func=tokens.__getitem__, key="token", bind="query-params"
        )
    with right:
        names = [block.name for block in trajectory.blocks]
        st.selectbox("Block", names, index=len(names) - 1, key="block", bind="query-params")
    deepest = max(block.loops for block in trajectory.blocks)
    st.select_slider(
        "Loop",
        [None, *range(1, deepest + 1)],
        format_func=lambda loop: "off" if loop is None else str(loop),
        key="loop",
        bind="query-params",
        help="Marks one loop on every chart. A click on a chart selects its token, block and loop.",
    )


def _start_of(trajectory: study.Trajectory) -> str:
    text = trajectory.prompt if trajectory.prompt is not None else "ids " + " ".join(str(i) for i in trajectory.token_ids[:8])
    return text if len(text) <= 40 else f"{text[:39]}…"
