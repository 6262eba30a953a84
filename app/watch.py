"""A job on the page: how far it is, a button that cancels it, and the page drawn anew once it is over."""

from typing import Any

import streamlit as st

from app import job as jobs
from app import state
from app.markdown import literal

_POLL_SECONDS = 0.8


def problem_of(name: str) -> str:
    """Why the last job of this name did not come about; "" when it did."""
    return str(state.get(f"_{name}_problem", ""))


def notice_of(name: str) -> str:
    """What was kept of the last job of this name when it was cancelled; "" when it was not."""
    return str(state.get(f"_{name}_notice", ""))


def begin(name: str, job: jobs.Job[Any]) -> None:
    """Keep a job of the session under a name; what an earlier one has brought stays until this one brings something."""
    state.put(f"_{name}_problem", "")
    state.put(f"_{name}_notice", "")
    state.put(f"_{name}_job", job)


def busy(name: str) -> bool:
    """Whether a job of this name is on its way."""
    return state.get(f"_{name}_job") is not None


def result(name: str) -> Any:
    """What the last job of this name that brought something has brought; None while there was none."""
    return state.get(f"_{name}")


def settle(name: str) -> Any:
    """Take over what a job has brought. Gives it once, None at all other times."""
    job: jobs.Job[Any] | None = state.get(f"_{name}_job")
    if job is None or not job.over:
        return None
    state.put(f"_{name}_job", None)
    state.put(f"_{name}_problem", job.problem)
    state.put(f"_{name}_notice", job.notice)
    if job.result is None:
        return None
    state.put(f"_{name}", job.result)
    return job.result


def follow(name: str) -> None:
    """Progress with Cancel while a job is on its way, and the sentence of one that failed or was cancelled."""
    if busy(name):
        _progress(name)
    elif problem_of(name):
        st.error(literal(problem_of(name)))
    elif notice_of(name):
        st.info(literal(notice_of(name)), icon=":material/stop_circle:")


def mention(name: str, words: str) -> None:
    """While a job of another page is on its way: say so, with its progress and Cancel."""
    if busy(name):
        st.caption(literal(words))
        _progress(name)


@st.fragment(run_every=_POLL_SECONDS)
def _progress(name: str) -> None:
    job: jobs.Job[Any] | None = state.get(f"_{name}_job")
    if job is None or job.over:
        st.rerun()
    st.progress(job.fraction, text=literal(progress_words(job)))
    st.button("Cancel", key=f"cancel_{name}", on_click=job.cancel, disabled=job.stopping)


def progress_words(job: jobs.Job[Any]) -> str:
    """What a job is at, or that it is about to stop."""
    return "Stopping after the step that is on its way" if job.stopping else job.stage.capitalize()
