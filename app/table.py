"""A small table of words: a plain HTML one, as two of Streamlit's grids on a page share the ids of their cells."""

from collections.abc import Sequence

import streamlit as st

from analysis.exit_rule import exit_rules
from analysis.rule_name import titled
from app.markdown import literal


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, alt: str) -> None:
    """Draw rows of words under a header whose words differ."""
    columns = {literal(name): [literal(row[i]) for row in rows] for i, name in enumerate(header)}
    st.table(columns, hide_index=True, border="horizontal", alt=alt)


def by_title(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Rows of which the first cell may name an exit rule as options do, with its title alone, as all of the page has it."""
    titles = {titled(kind()): kind.title for kind in exit_rules().values()}
    return tuple((titles.get(row[0], row[0]), *row[1:]) for row in rows)
