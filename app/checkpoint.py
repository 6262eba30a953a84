"""The Checkpoint part of the sidebar: a demo step, a path or an upload, and the card of what was chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, BinaryIO, cast

import streamlit as st

from analysis import study
from app import access, cache, wanted
from app import job as jobs
from app.card import card_rows
from app.markdown import literal

_POLL_SECONDS = 0.5
_MIB = 2**20
_CARD = """
<style>
.stHtml .loopscope-card { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; font-size: 0.875rem; }
.stHtml .loopscope-card, .loopscope-card dt, .loopscope-card dd { margin: 0; padding: 0; }
.loopscope-card dt { opacity: 0.75; }
.loopscope-card dd { overflow-wrap: anywhere; }
</style>
"""


@dataclass(frozen=True)
class Place:
    """Where on the page things about the checkpoint go, once they are known: the card beside the upload, progress below."""

    card: Any
    progress: Any


def field(first: study.Request) -> Place:
    """The field for a checkpoint, with the upload behind a button. ``first`` names the one that is chosen at first."""
    named, tools, progress = (
        st.container(gap="small"),
        st.container(horizontal=True, gap="small", key="checkpoint_tools"),
        st.container(),
    )
    with tools:
        place = Place(card=st.container(width="content"), progress=progress)
        with st.popover("Upload", icon=":material/upload:", type="tertiary", key="upload"):
            _upload()
    with named:  # after the upload, which chooses itself
        _choice(first)
        path_note()
    return place


def _choice(first: study.Request) -> None:
    steps = {name: name.replace("demo@", "Demo, training step ") for name in study.checkpoints()}
    others = [name for name in wanted.other_checkpoints() if name not in steps and name not in steps.values()]
    names = [*steps, *others]

    def words(name: str) -> str:
        return steps.get(name, name)  # these words go into the link

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


def path_note() -> None:
    """Which paths are open, where not all are."""
    said, more = access.paths_words()
    if said:
        st.caption(literal(said), help=more)


def _upload() -> None:
    """A folder or its files, kept until the browser leaves; what is wrong with them stands beside them."""
    kind = st.segmented_control(
        "What to upload",
        ["folder", "files"],
        default="folder",
        required=True,
        format_func=str.capitalize,
        key="upload_kind",
        label_visibility="collapsed",
    )
    cap = int(st.get_option("server.maxUploadSize"))
    label = "Folder of a checkpoint" if kind == "folder" else "Files of a checkpoint"
    given = cast(
        "Sequence[Any]",
        st.file_uploader(label, accept_multiple_files="directory" if kind == "folder" else True, key=f"upload_{kind}"),
    )
    st.caption(
        f"Up to {cap} MiB together: weights with config.json, and tokenizer.json where there is one. Kept in a private folder, "
        "removed when this tab closes. For larger ones type a path."
    )
    if not given:
        return
    files: list[tuple[str, BinaryIO]] = [(file.name, file) for file in given]
    try:
        wanted.choose_upload(cache.upload(tuple(file.file_id for file in given), files, limit=cap * _MIB))
    except study.KNOWN_ERRORS as error:
        st.error(literal(str(error)))


def named_block() -> None:
    """For models of the transformers library that no family here knows: which modules are the loop."""
    st.caption(
        "For other models of the transformers library: name the modules that are looped. Leave the first field empty for the "
        "families that Loopscope knows."
    )
    for part, title, example, more in (
        (
            "block",
            "Looped block",
            "model.layers",
            "Module path, or several with commas; model.layers.2:5 is part of a list.",
        ),
        ("count", "Field of the config that sets the loops", "num_hidden_layers", "Empty: the model's own number."),
        ("norm", "Before the head", "model.norm", "Modules between an iterate and the head, in order, with commas."),
        ("head", "Head", "lm_head", "The linear module that gives the logits. Empty: nothing is decoded."),
    ):
        st.text_input(title, key=f"named_{part}", bind="query-params", placeholder=example, help=more)


def card(shown: study.Card, asked: study.Request | None, place: Place) -> None:
    """The card behind a button; with the memory of the run that is asked for, if one is."""
    with place.card, st.popover("Card", icon=":material/badge:", type="tertiary", key="card"):
        st.html(_CARD + _listed(card_rows(shown, _needed(asked))))


def _needed(asked: study.Request | None) -> study.Estimate | None:
    try:
        return None if asked is None else cache.estimate(asked.key(), asked)
    except study.KNOWN_ERRORS:
        return None  # stands above Run as a sentence


def _listed(rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(f"<dt>{escape(label)}</dt><dd>{escape(value)}</dd>" for label, value in rows)
    return f'<dl class="loopscope-card">{lines}</dl>'


def progress(job: jobs.Job[study.Card], place: Place) -> None:
    """How far the reading of a card is, in its place."""
    with place.progress:
        _progress(job)


@st.fragment(run_every=_POLL_SECONDS)
def _progress(job: jobs.Job[study.Card]) -> None:
    if job.over:
        st.rerun()
    name = wanted.checkpoint()
    st.progress(job.fraction, text=literal(f"{job.stage.capitalize()} {name}"))
