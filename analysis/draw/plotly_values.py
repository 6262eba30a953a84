"""Numbers and words in the form that Plotly takes: typed arrays, rows of customdata, escaped text, hover templates."""

import base64
from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from analysis.chart import Columns

KEYS = ("prompt", "position", "block", "loop")
"""First entries of every row of customdata, null where a mark has no such key."""

_DTYPES = {"float32": "f4", "float64": "f8", "int8": "i1", "int16": "i2", "int32": "i4", "uint8": "u1", "uint16": "u2"}


def escape(text: str) -> str:
    """Text that Plotly shows literally: no markup, no template, no formula, no unpaired surrogate.

    Line breaks become <br>, which is the one tag that comes out of here.
    """
    safe = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;"), ("{", "&#123;"), ("}", "&#125;")):
        safe = safe.replace(character, entity)
    return safe.replace("\r\n", "<br>").replace("\n", "<br>").replace("\r", "<br>")


def typed(values: np.ndarray) -> dict[str, str]:
    """Numbers as Plotly's typed-array form; float64 becomes float32, which is finer than any pixel."""
    if values.dtype == np.float64 or values.dtype == np.float16:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        values = values.astype(np.int32)
    encoded = {"dtype": _DTYPES[str(values.dtype)], "bdata": base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()}
    return encoded if values.ndim == 1 else encoded | {"shape": ",".join(str(n) for n in values.shape)}


def keyed(columns: Columns, count: int) -> tuple[list[list[Any]], list[str]]:
    """Rows for customdata and the name of each entry: KEYS first, then the other columns in their order.

    Keys are numbers or names, null where there is none. The others are for reading: numbers with four digits, and
    – where undefined, because Plotly would format null as 0.
    """
    names = [*KEYS, *(name for name in columns if name not in KEYS)]
    filled = [_listed(columns[name]) if name in columns else [None] * count for name in names]
    return [list(row) for row in zip(*filled, strict=True)], names


def _listed(array: np.ndarray) -> list[Any]:
    if array.dtype.kind == "f":
        return [f"{value:.4g}" if isfinite(value) else "–" for value in array.tolist()]
    if array.dtype.kind in "iub":
        return array.tolist()
    cache: dict[str, str] = {}
    words = [str(value) for value in array.tolist()]
    return [cache.setdefault(word, escape(word)) if word not in cache else cache[word] for word in words]


def hover(names: Sequence[str], columns: Columns, *, values: Sequence[tuple[str, str]]) -> str:
    """Hover text: the token in bold, its keys, the plotted values, then the other columns."""
    lines: list[str] = []
    for i, name in enumerate(names):
        if name not in columns or (name == "prompt" and not np.any(columns["prompt"])):
            continue
        shown = f"%{{customdata[{i}]}}"
        lines.append(f"<b>{shown}</b>" if name == "token" else f"{escape(name.replace('_', ' '))} {shown}")
    lines.sort(key=lambda line: not line.startswith("<b>"))
    lines += [f"{escape(title)} {variable}" for title, variable in values if title]
    return "<br>".join(lines) + "<extra></extra>"
