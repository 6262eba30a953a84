"""The sidebar: what to run, what to look at, and the exit rules with their thresholds."""

import logging
from collections.abc import Mapping

import streamlit as st

from analysis import study
from analysis.exit_rule import ExitRule, exit_rules
from analysis.prompts import PromptError
from analysis.thresholds import ladder
from app import cache, fields, state
from app.markdown import literal

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.8
_STARTS: Mapping[study.InitialKind, str] = {
    "trained": "As trained",
    "zeros": "Zeros",
    "normal": "Gaussian noise",
    "file": "From a file",
}


def sidebar(*, rules_open: bool) -> None:
    """Draw the sidebar, take over finished runs and start new ones. ``rules_open`` unfolds the exit rules."""
    state.settle()
    with st.sidebar:
        wanted, trouble = _run_settings()
        state.open_first(wanted)
        _run_buttons(wanted, trouble)
        if state.shown() is not None:
            _selection()
        _rules(opened=rules_open)
        with st.container(key="run_counter"):
            st.caption(f"runs: {state.runs()}", help="Runs of the model in this session. Moving a slider adds none.")


def _run_settings() -> tuple[study.Request | None, str]:
    """Widgets for a run; the Request they describe, or the sentence that says why they describe none."""
    st.segmented_control(
        "Prompts from",
        list(state.SOURCES),
        default="type",
        required=True,
        format_func=state.SOURCES.__getitem__,
        key="input",
        bind="query-params",
        label_visibility="collapsed",
        width="stretch",
    )
    if state.source() == "folder":
        st.text_input(
            "Path of a run folder",
            key="folder",
            bind="query-params",
            placeholder="runs/my-run",
            help="A folder that `loopscope run` wrote, on the machine that serves this page.",
        )
        return None, ""
    first = study.bundled_request()
    trouble = _prompt(first)
    _checkpoint(first)
    left, right = st.columns(2)
    with left:
        st.text_input(
            "Loops",
            value=str(first.loops[0]),
            key="loops",
            bind="query-params",
            help="One number for all looped blocks, or one per block: 8, 16, 8.",
        )
    with right:
        st.number_input("Seed", value=first.seed, min_value=0, step=1, key="seed", bind="query-params", help="Keys the noise.")
    with st.expander("Initial state, lenses, memory"):
        _more()
    if trouble:
        return None, trouble
    try:
        return state.request(), ""
    except study.KNOWN_ERRORS as error:
        return None, str(error)


def _prompt(first: study.Request) -> str:
    """The prompt, typed or uploaded; a sentence when the upload cannot be read."""
    if state.source() == "type":
        default = first.prompts[0].text or ""
        state.seed_prompt(default)
        st.text_area(
            "Prompt", height=100, key="prompt", persist_state="session", placeholder="One prompt; it may have many lines."
        )
        return state.keep_prompt(default)
    given = st.file_uploader(
        "Prompt file",
        type=["txt", "jsonl", "csv"],
        max_upload_size=4,
        help="One prompt per line or row. CSV: a column named prompt, text or ids; JSON lines: an object with one of them.",
    )
    if given is not None:
        try:
            state.keep_upload(given.name, given.getvalue())
        except PromptError as error:
            return str(error)
    held = state.uploaded()
    if held is not None:
        st.caption(f"{len(held[1])} prompts from {literal(held[0])}")
    return ""


def _checkpoint(first: study.Request) -> None:
    names = list(study.checkpoints())

    def words(name: str) -> str:
        return name.replace("demo@", "Demo, training step ") if name in names else name

    st.selectbox(
        "Checkpoint",
        names,
        index=names.index(first.checkpoint),
        format_func=words,
        accept_new_options=True,
        key="checkpoint",
        bind="query-params",
        placeholder="A demo step, or a path",
        help="A step of the bundled demo's training, or type the path of a checkpoint on the machine that serves this page.",
    )


def _more() -> None:
    kind = fields.one_of("Initial state", _STARTS, key="start", default="trained")
    if kind == "normal":
        st.number_input("Standard deviation", value=0.02, min_value=0.0, step=0.01, format="%g", key="std", bind="query-params")
    if kind == "file":
        st.text_input(
            "Path of a .npz file",
            key="start_file",
            bind="query-params",
            help="Arrays initial_state_0 and so on, tokens x width.",
        )
    st.pills(
        "Lenses",
        ["logit", "coda"],
        selection_mode="multi",
        default=["logit", "coda"],
        format_func=str.capitalize,
        key="lenses",
        bind="query-params",
        help="How iterates are decoded. Logit: the model's own norm and head. Coda: the rest of the network, last block only.",
    )
    left, right = st.columns(2)
    left.number_input("Store every n-th state", value=1, min_value=1, step=1, key="every", bind="query-params")
    right.text_input("Tokens to store", key="store", bind="query-params", placeholder="all, or 0:32")
    st.toggle("Statistics only", key="no_states", bind="query-params", help="No states: curves and exits, but no trajectories.")
    fields.one_of(
        "Computed in", {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16"}, key="dtype", default="float32"
    )


def _run_buttons(wanted: study.Request | None, trouble: str) -> None:
    """Estimate, Run, progress with Cancel, and what went wrong."""
    if state.source() == "folder":
        if st.button("Open", type="primary", width="stretch", disabled=not state.folder(), key="open"):
            state.open_folder()
        if state.problem():
            st.error(literal(state.problem()))
        return
    said, refused = ("", trouble) if wanted is None else _memory(wanted)
    busy = state.job() is not None
    if said:
        current = state.shown()
        changed = wanted is not None and current is not None and wanted.key() != current.identity
        st.caption(f"{said} **Changed since the run on screen.**" if changed else said)
    pressed = st.button(
        "Run", type="primary", width="stretch", disabled=busy or bool(refused), key="run", icon=":material/play_arrow:"
    )
    if pressed and wanted is not None:
        state.launch(wanted)
        st.rerun()  # so that Run shows at once that it cannot be pressed again
    if state.job() is not None:
        _progress()
    elif refused or state.problem():
        st.error(literal(refused or state.problem()))


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
    st.progress(current.fraction, text=literal(current.stage.capitalize()))
    st.button("Cancel", width="stretch", key="cancel", on_click=current.cancel)


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


def _rules(*, opened: bool) -> None:
    """Which exit rules are marked, and a slider and numbers for each, made from the rule's own fields."""
    kinds = exit_rules()
    with st.expander("Exit rules", expanded=opened):
        marked = st.pills(
            "Marked",
            list(kinds),
            selection_mode="multi",
            default=list(kinds),
            format_func=lambda name: kinds[name].title,
            key="rules",
            bind="query-params",
            label_visibility="collapsed",
        )
        rules: list[ExitRule] = []
        for name, kind in kinds.items():
            if name not in marked:
                continue
            with st.container(key=f"rule_{name}", gap="small"):
                st.markdown(f"**{kind.title}** &nbsp; {literal(kind.formula)}", help=f"{kind.source}. Post hoc.")
                rules.append(fields.instance(kind, prefix=name, ladders={"threshold": ladder(kind)}, across=2))
        state.keep_rules(tuple(rules))
