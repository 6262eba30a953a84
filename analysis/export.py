"""Chart -> file: PDF, SVG and PNG for paper, CSV of its rows, JSON of its meaning; the same bytes every time."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any, Literal, cast, get_args

from analysis.chart import Chart, chart_rows
from analysis.draw.theme import VENUES
from model.request import Request

__all__ = ["KINDS", "VENUES", "ExportError", "Kind", "export", "file_name"]

Kind = Literal["pdf", "svg", "png", "csv", "json"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PNG_DPI = 300


class ExportError(ValueError):
    """A venue or format that does not exist; the message names those that do."""


def export(chart: Chart, *, kind: Kind, venue: str = "icml2024", request: Request | Mapping[str, Any] | None = None) -> bytes:
    """The chart as a file's bytes: equal charts give equal bytes, on the page, on the command line, in every process.

    PDF embeds its fonts whole as Type 42. Text in SVG stays text, in the fonts Source Sans Pro, DejaVu Sans or
    STIXGeneral: a viewer without them uses its own, so choose PDF where the look must hold. PNG has 300 dots per
    inch. CSV has the chart's rows, undefined values empty. JSON is the sidecar: words, provenance and request.
    3-D charts are drawn from ``chart.camera``. Raises ExportError for an unknown venue or kind.
    """
    _check(kind, venue)
    if kind == "csv":
        return _csv(chart)
    if kind == "json":
        return _json(chart, venue=venue, request=request)
    return _picture(chart, kind=kind, venue=venue)


def file_name(chart: Chart, kind: Kind, venue: str) -> str:
    """A name that tells chart, and for pictures the venue: ``trajectory-icml2024.pdf``, ``trajectory.csv``."""
    _check(kind, venue)
    return f"{chart.name}.{kind}" if kind in ("csv", "json") else f"{chart.name}-{venue}.{kind}"


def _check(kind: str, venue: str) -> None:
    if kind not in KINDS:
        raise ExportError(f"Format {kind!r} is unknown; choose one of {', '.join(KINDS)}.")
    if venue not in VENUES:
        raise ExportError(f"Venue {venue!r} is unknown; choose one of {', '.join(VENUES)}.")


def _picture(chart: Chart, *, kind: Kind, venue: str) -> bytes:
    # matplotlib takes longer to import than the first screen takes to show
    from analysis.draw.matplotlib import figure, paper_style

    words: dict[str, dict[str, str | None]] = {
        "pdf": {"Title": chart.title, "Subject": chart.alt, "Creator": "Loopscope", "CreationDate": None},
        "svg": {"Title": chart.title, "Description": chart.alt, "Creator": "Loopscope", "Date": None},
        "png": {"Title": chart.title, "Description": chart.alt, "Software": "Loopscope"},
    }
    buffer = io.BytesIO()
    with paper_style(VENUES[venue]):
        figure(chart, venue).savefig(buffer, format=kind, dpi=PNG_DPI, metadata=words[kind])
    return buffer.getvalue()


def _csv(chart: Chart) -> bytes:
    rows = chart_rows(chart)
    header = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode("utf-8", "backslashreplace")


def _json(chart: Chart, *, venue: str, request: Request | Mapping[str, Any] | None) -> bytes:
    described = {
        "chart": chart.name,
        "title": chart.title,
        "caption": chart.caption,
        "alt": chart.alt,
        "warnings": list(chart.warnings),
        "camera": None if chart.camera is None else asdict(chart.camera),
        "venue": {"name": venue, **asdict(VENUES[venue])},
        "provenance": _plain(asdict(chart.provenance)),
        "versions": {name: metadata.version(name) for name in ("loopscope", "matplotlib", "numpy")},
        "request": request.to_json() if isinstance(request, Request) else _plain(request),
    }
    text = json.dumps(described, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """JSON values: mappings and sequences opened, a number that is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
