"""The README says what the code says."""

from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_table_of_families_is_that_of_the_registry() -> None:
    from model.families import architectures, with_table

    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text, "run: python -m model.families README.md"
    for name in architectures():
        assert f"(`{name}`)" in text


def test_a_text_without_marks_is_left_alone() -> None:
    from model.families import with_table

    with pytest.raises(ValueError, match="no table of families"):
        with_table("# Another text")
