"""The sidebar's settings of a run: prompts, checkpoint, loops, initial state, what is recorded and where it is computed."""

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from analysis import study
from analysis.prompts import PromptError
from app import cache, checkpoint, fields, suggested, wanted
from app import job as jobs
from app.markdown import literal

_POLL_SECONDS = 0.8
_STARTS: Mapping[study.InitialKind, str] = {
    "trained": "As trained",
    "zeros": "Zeros",
    "normal": "Gaussian noise",
    "file": "From a file",
}


@dataclass(frozen=True)
class Settings:
    """The Request that the widgets describe, or the sentence that says why they describe none.

    Not ``complete`` while the checkpoint is still being read.
    """

    request: study.Request | None = None
    trouble: str = ""
    complete: bool = True


def run_settings() -> Settings:
    """Widgets for a run, and what they describe."""
    st.segmented_control(
        "Prompts from",
        list(wanted.SOURCES),
        default="type",
        required=True,
        format_func=wanted.SOURCES.__getitem__,
        key="input",
        bind="query-params",
        label_visibility="collapsed",
        width="stretch",
    )
    if wanted.source() == "folder":
        st.text_input(
            "Path of a run folder",
            key="folder",
            bind="query-params",
            placeholder="runs/my-run",
            help="A folder that `loopscope run` wrote, on the machine that serves this page.",
        )
        checkpoint.path_note()
        return Settings()
    first = study.bundled_request()
    suggested.place()
    with st.container():
        trouble = _prompt(first)
    with st.container():
        below = checkpoint.field(first)
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
    with st.expander("Initial state, lenses, more", key="more", on_change="rerun") as more:
        _more(opened=bool(more.open))
    return _described(trouble, first, below)


def _described(trouble: str, first: study.Request, below: checkpoint.Place) -> Settings:
    """What the widgets describe, with the checkpoint's card put into its place."""
    reading = wanted.read_card()
    if suggested.suggest(reading.card, first):
        st.rerun()
    checkpoint.refused(reading.problem, below)
    if reading.job is not None:
        checkpoint.progress(reading.job, below)
        return Settings(complete=False)
    asked, said = None, trouble or reading.problem
    try:
        asked = None if said else wanted.request()
    except study.KNOWN_ERRORS as error:
        said = str(error)
    if asked is not None:
        wanted.forget_card(asked.digest)
    if reading.card is not None:
        checkpoint.card(reading.card, asked, below)
    return Settings(asked, said)


def _prompt(first: study.Request) -> str:
    """The prompt, typed as text or ids, or uploaded; a sentence when it cannot be read."""
    if wanted.source() == "type":
        default = first.prompts[0].text or ""
        wanted.seed_typed("prompt", default)
        st.text_area(
            "Prompt", height=100, key="prompt", persist_state="session", placeholder="One prompt; it may have many lines."
        )
        return wanted.keep_typed("prompt", default)
    if wanted.source() == "ids":
        wanted.seed_typed("ids", "")
        st.text_area(
            "Token ids",
            height=100,
            key="ids",
            persist_state="session",
            placeholder="5, 6, 7",
            help="One prompt as numbers, which every model takes, also one without a tokenizer.",
        )
        return wanted.keep_typed("ids", "")
    given = st.file_uploader(
        "Prompt file",
        type=["txt", "jsonl", "csv"],
        max_upload_size=4,
        key="prompt_file",
        help="One prompt per line or row. CSV: a column named prompt, text or ids; JSON lines: an object with one of them.",
    )
    if given is not None:
        try:
            wanted.keep_prompt_file(given.name, given.getvalue())
        except PromptError as error:
            return str(error)
    held = wanted.prompt_file()
    if held is not None:
        st.caption(f"{len(held[1])} prompts from {literal(held[0])}")
    return ""


def _more(*, opened: bool) -> None:
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
    left, right = st.columns(2, vertical_alignment="bottom")
    left.number_input("Store every n-th state", value=1, min_value=1, step=1, key="every", bind="query-params")
    right.text_input("Tokens to store", key="store", bind="query-params", placeholder="all, or 0:32")
    st.toggle("Statistics only", key="no_states", bind="query-params", help="No states: curves and exits, but no trajectories.")
    left, right = st.columns(2, vertical_alignment="bottom")
    with left:
        fields.one_of(
            "Computed in", {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16"}, key="dtype", default="float32"
        )
    with right:
        _device(look=opened)
    with st.popover("Looped block by hand", icon=":material/conversion_path:", width="stretch", key="named"):
        checkpoint.named_block()


def _device(*, look: bool) -> None:
    """Devices that this machine has; they are looked for once these settings are unfolded."""
    names, searching = wanted.devices(look=look)
    fields.one_of("Computed on", {name: name for name in names}, key="device", default="cpu", listed=True)
    if searching:
        _poll(cache.devices())


@st.fragment(run_every=_POLL_SECONDS)
def _poll(job: jobs.Job[tuple[str, ...]]) -> None:
    """Have the page drawn anew once the devices are known."""
    if job.over:
        st.rerun()
    st.caption("Looking for devices …")
