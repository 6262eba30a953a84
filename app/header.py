"""The head of every page: which run is on screen, its tokens, and what a reader must know before looking at charts."""

import streamlit as st

from analysis.caption import counted, loops_words, nonfinite_words
from app import cache, state
from app.markdown import literal

_MOST_SENTENCES = 6


def header(title: str) -> None:
    """Title of the page, the run on screen in a line, its token ids on demand, and the banner for non-finite states."""
    current = state.shown()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.title(title, anchor=False, width="content")
        if current is not None:
            _source(current)
    if current is None:
        st.info(
            "The run that this link describes is being made; the charts appear when it is done.", icon=":material/hourglass:"
        )
        return
    trajectory = current.run.trajectories[state.selection()[0]]
    sentences = nonfinite_words(trajectory, range(len(trajectory.blocks)))
    if sentences:
        more = f" And {len(sentences) - _MOST_SENTENCES} more." if len(sentences) > _MOST_SENTENCES else ""
        st.warning(literal(" ".join(sentences[:_MOST_SENTENCES]) + more), icon=":material/warning:", title="Non-finite states")
    for reason in trajectory.left_out:
        st.caption(literal(f"Not recorded: {reason}"))


def _source(current: state.Shown) -> None:
    trajectory = current.run.trajectories[state.selection()[0]]
    provenance = trajectory.provenance
    blocks = range(len(trajectory.blocks))
    words = (
        f"{provenance.checkpoint}, {counted(len(trajectory.blocks), 'looped block')}, "
        f"{loops_words(trajectory, blocks)}, seed {provenance.seed}, {provenance.dtype} on {provenance.device}, "
        f"{provenance.mode}"
    )
    st.caption(literal(words), width="stretch")
    odd = () if current.request is None else cache.warnings(current.identity, current.request)
    icon = ":material/warning:" if odd else ":material/data_array:"
    with st.popover(counted(trajectory.tokens, "token"), icon=icon, key="tokens"):
        for sentence in odd:
            st.warning(literal(sentence), icon=":material/warning:", width=320)
        st.dataframe(
            {
                "position": list(range(trajectory.tokens)),
                "id": trajectory.token_ids.tolist(),
                "token": list(trajectory.labels),
            },
            hide_index=True,
            height=min(420, 38 + 35 * trajectory.tokens),
            width=320,
            alt="The token ids that went into the model, with their text",
        )
