"""The network families by name, from the files in architectures/; `python -m model.families README.md` renews its table."""

import sys
from functools import cache
from pathlib import Path

from model.architecture import Architecture, LibraryArchitecture
from model.capture.registry import collect

_START, _STOP = "<!-- families: made by python -m model.families -->", "<!-- end of families -->"


@cache
def architectures() -> dict[str, Architecture]:
    """One instance of every family. Raises TypeError when a file does not define exactly one public class."""
    return {name: family() for name, family in collect("model.architectures").items()}


def family_table() -> str:
    """The families as a Markdown table: how each is recognised, what its iterate is, what was verified."""
    rows = ["| family | recognised by | iterate | injection | verified within 1e-4 |", "|---|---|---|---|---|"]
    for name, family in architectures().items():
        title = f"{family.title} (`{name}`)"
        if isinstance(family, LibraryArchitecture):
            title += ", through transformers"
        rows.append(f"| {title} | {family.recognised_by} | {family.space} | {family.injection} | {family.verified} |")
    return "\n".join(rows)


def with_table(text: str) -> str:
    """A Markdown text with the table between its two marks made new. Raises ValueError when it has no marks."""
    before, mark, rest = text.partition(_START)
    _, end, after = rest.partition(_STOP)
    if not mark or not end:
        raise ValueError(f"The text has no table of families: it needs the lines {_START} and {_STOP}.")
    return f"{before}{_START}\n\n{family_table()}\n\n{_STOP}{after}"


if __name__ == "__main__":
    readme = Path(sys.argv[1])
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
