"""The Checkpoint part of the sidebar: a demo step, a path or an upload, and the card of what was chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from analysis import study
from app import access, cache, chosen, upload
from app import job as jobs
from app.card import card_rows
from app.markdown import literal

_POLL_SECONDS = 0.5
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
    """Where on the page things about the checkpoint go, once they are known: the card beside the upload, progress below.

    ``upload`` is within the form for uploads, which covers the rest of the sidebar while it is open.
    """

    card: Any
    progress: Any
    upload: Any


def field(first: study.Request) -> Place:
    """The field for a checkpoint, with the upload behind a button. ``first`` names the one that is chosen at first."""
    named, tools, progress = (
        st.container(gap="small"),
        st.container(horizontal=True, gap="small", key="checkpoint_tools"),
        st.container(),
    )
    with tools:
        card = st.container(width="content")
        with st.popover("Upload checkpoint", icon=":material/upload:", type="tertiary", key="upload"):
            trouble = upload.form()
    with named:  # after the upload, which chooses itself
        _choice(first)
        path_note()
    return Place(card=card, progress=progress, upload=trouble)


def _choice(first: study.Request) -> None:
    """The list, and a field of its own for a path: a list that takes new words empties while one types over its choice."""
    chosen.seed(first.checkpoint)
    choices = chosen.choices()
    st.selectbox(
        "Checkpoint",
        list(choices),
        format_func=choices.__getitem__,
        key="checkpoint",
        persist_state="session",
        help="A step of the bundled demo's training, an upload, or a path on the machine that serves this page.",
    )
    if chosen.by_path():
        st.text_input(
            "Path of a checkpoint",
            key="checkpoint_path",
            persist_state="session",
            placeholder="~/models/mine",
            help="A folder with weights and config.json, or a weights file.",
        )
    chosen.keep(first.checkpoint)


def path_note() -> None:
    """Which paths are open, where not all are."""
    said, more = access.paths_words()
    if said:
        st.caption(literal(said), help=more)


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


def refused(problem: str, place: Place) -> None:
    """Say beside an upload that it is no checkpoint."""
    if problem and chosen.by_upload():
        with place.upload:
            st.error(literal(problem))


def progress(job: jobs.Job[study.Card], place: Place) -> None:
    """How far the reading of a card is, in its place."""
    with place.progress:
        _progress(job)


@st.fragment(run_every=_POLL_SECONDS)
def _progress(job: jobs.Job[study.Card]) -> None:
    if job.over:
        st.rerun()
    name = chosen.name()
    st.progress(job.fraction, text=literal(f"{job.stage.capitalize()} {name}"))
