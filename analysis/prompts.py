"""read_prompts: the prompts in an uploaded or named file; every complaint names the file, the line and the way out."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, cast

from model.request import Prompt, RequestError

MAX_PROMPTS = 512
"""Prompts in one file; each becomes a full pass, so more of them belong into several runs."""

MAX_BYTES = 4 * 1024 * 1024
"""Bytes of one file: far more than 512 prompts of any demo-sized context need."""

_TEXT_FIELDS = ("prompt", "text")
_FIELDS = (*_TEXT_FIELDS, "ids")
_KINDS = ".txt (one prompt per line), .jsonl (one object per line) or .csv (a column named prompt)"


class PromptError(ValueError):
    """A prompt file that cannot be read; the message names the file, the line and what to do."""


def read_prompts(name: str, data: bytes) -> tuple[Prompt, ...]:
    """Prompts of a .txt, .jsonl or .csv file called ``name``, in the order of the file.

    Text files have one prompt per line, spaces kept, blank lines skipped. JSON lines are objects with
    ``prompt`` (or ``text``), or with ``ids``, a list of token ids. CSV files have a header with such a column,
    or one single column without a header. Other keys and columns are ignored.

    Raises PromptError when the file is too large, is no UTF-8 text, holds no prompt or too many, or has a line
    that cannot be understood.
    """
    read = {".txt": _from_lines, ".jsonl": _from_json_lines, ".csv": _from_csv}.get(PurePath(name).suffix.lower())
    if read is None:
        raise PromptError(f"{name} has no ending that says what it holds; give it one of {_KINDS}.")
    if len(data) > MAX_BYTES:
        raise PromptError(f"{name} has {len(data):,} bytes; at most {MAX_BYTES:,} are read, so split it into several files.")
    prompts: list[Prompt] = []
    for prompt in read(name, decoded(name, data)):
        if len(prompts) == MAX_PROMPTS:
            raise PromptError(f"{name} holds more than {MAX_PROMPTS} prompts; split it into several files.")
        prompts.append(prompt)
    if not prompts:
        raise PromptError(f"{name} holds no prompt; write at least one line of text into it.")
    return tuple(prompts)


def decoded(name: str, data: bytes) -> str:
    """The text of an uploaded file, with plain line breaks. Raises PromptError where it is not UTF-8 text."""
    if b"\0" in data:
        raise PromptError(f"{name} is no text: it holds NUL bytes; give a text file saved as UTF-8.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PromptError(f"{name}, line {line}: not UTF-8 text (byte {error.start}); save the file as UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _from_lines(name: str, text: str) -> Iterator[Prompt]:
    # Not splitlines: it would also break at form feeds and U+2028, which may stand inside a prompt.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _prompt(name, number, line)


def _from_json_lines(name: str, text: str) -> Iterator[Prompt]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PromptError(
                f'{name}, line {number}: no JSON ({error}); write one object per line, such as {{"prompt": "Once"}}.'
            ) from error
        if not isinstance(value, dict):
            raise PromptError(
                f"{name}, line {number}: a JSON object was expected, this is {type(value).__name__}; "
                'write {"prompt": "..."} or {"ids": [1, 2]}.'
            )
        fields = cast("Mapping[str, Any]", value)
        yield _prompt(name, number, _chosen(name, number, {f: fields[f] for f in _FIELDS if fields.get(f) is not None}))


def _from_csv(name: str, text: str) -> Iterator[Prompt]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: dict[str, int] | None = None
    try:
        for row in reader:
            number = reader.line_num
            if not any(cell.strip() for cell in row):
                continue
            if columns is None:
                columns, headed = _columns(name, row)
                if headed:
                    continue
            cells = {field: row[i] for field, i in columns.items() if i < len(row) and row[i] != ""}
            if len(columns) == 1 and len(row) > 1 and "" in columns:
                raise PromptError(
                    f"{name}, line {number}: {len(row)} columns where one was expected; quote commas, or add a header."
                )
            given = _chosen(name, number, {field or "prompt": cell for field, cell in cells.items()})
            yield _prompt(name, number, given)
    except csv.Error as error:
        raise PromptError(
            f"{name}, line {reader.line_num}: no CSV ({error}); put cells with quotes or line breaks in quotes."
        ) from error


def _columns(name: str, first: list[str]) -> tuple[dict[str, int], bool]:
    """Index of each known column, and whether the first row is a header. The name "" is a column without one."""
    named = {cell.strip().lower(): i for i, cell in reversed(list(enumerate(first)))}
    known = {field: named[field] for field in _FIELDS if field in named}
    if known:
        return known, True
    if len(first) == 1:
        return {"": 0}, False
    listed = ", ".join(repr(cell) for cell in first[:5])
    raise PromptError(f"{name}, line 1: no column is called {', '.join(_FIELDS[:-1])} or {_FIELDS[-1]}; it has {listed}.")


def _chosen(name: str, line: int, given: Mapping[str, Any]) -> Any:
    """The one value among ``prompt``, ``text`` and ``ids``; ids as a list of numbers."""
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise PromptError(f"{name}, line {line}: give exactly one of prompt, text and ids; this line has {found}.")
    ((field, value),) = given.items()
    if field != "ids":
        if not isinstance(value, str):
            raise PromptError(f"{name}, line {line}: {field} must be text, this is {type(value).__name__}.")
        return value
    if isinstance(value, str):
        return parse_ids(f"{name}, line {line}", value)
    items = cast("list[Any]", value) if isinstance(value, list) else []
    if not items or any(type(i) is not int for i in items):
        raise PromptError(f"{name}, line {line}: ids must be a list of whole numbers, such as [5, 6, 7].")
    return tuple(cast("list[int]", items))


def parse_ids(where: str, text: str) -> tuple[int, ...]:
    """Token ids written as ``5,6,7`` or ``5 6 7``. Raises PromptError that starts with ``where``."""
    parts = text.replace(",", " ").strip("[] ").split()
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise PromptError(f"{where}: {text!r} is no list of token ids; write whole numbers such as 5,6,7.")
    return tuple(int(part) for part in parts)


def _prompt(name: str, line: int, given: str | tuple[int, ...]) -> Prompt:
    try:
        if not isinstance(given, str):
            return Prompt(ids=given)
        given.encode()  # JSON can spell half a surrogate pair, which no tokenizer takes
        return Prompt(text=given)
    except UnicodeEncodeError as error:
        raise PromptError(f"{name}, line {line}: the text holds half a character (a lone surrogate); remove it.") from error
    except RequestError as error:
        raise PromptError(f"{name}, line {line}: {error}") from error
