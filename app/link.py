"""What the page itself writes into its link, beside the widgets that are bound to it.

Everything that is written sends the browser the whole link as this pass knows it, over whatever a quick reader has moved
since. So only news is written.
"""

import streamlit as st


def read(name: str, default: str = "") -> str:
    """A part of the link; ``default`` where it has none of that name."""
    return st.query_params.get(name, default)


def every(name: str) -> list[str]:
    """All values that the link has under a name."""
    return st.query_params.get_all(name)


def has(name: str) -> bool:
    """Whether the link has a part of that name."""
    return name in st.query_params


def keep(name: str, value: str) -> None:
    """Put a part into the link."""
    if st.query_params.get(name) != value:
        st.query_params[name] = value


def drop(name: str) -> None:
    """Take a part out of the link."""
    if name in st.query_params:
        del st.query_params[name]
