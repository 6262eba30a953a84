"""Exported files: no browser, no Type 3, exact width, the same bytes everywhere, whatever the screen looks like."""

import csv
import hashlib
import importlib
import io
import json
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from pypdf import PdfReader

from analysis.chart import Camera, chart_rows
from analysis.draw.plotly import figure_json
from analysis.export import KINDS, VENUES, ExportError, Kind, export, file_name
from model.request import Prompt, Request
from tests.analysis import sample_charts

CHARTS = {chart.name: chart for chart in sample_charts.every()}


def fonts(data: bytes) -> list[Any]:
    """Every font of every page, forms included."""
    found: list[Any] = []

    def collect(resources: Any) -> None:
        here: dict[str, Any] = resources.get("/Font") or {}
        found.extend(font.get_object() for font in here.values())
        forms: dict[str, Any] = resources.get("/XObject") or {}
        for form in forms.values():
            inner = form.get_object().get("/Resources")
            if inner is not None:
                collect(inner.get_object())

    for page in PdfReader(io.BytesIO(data)).pages:
        collect(page["/Resources"].get_object())
    return found


@pytest.mark.parametrize("name", CHARTS)
def test_no_type_3_font_and_the_exact_width(name: str) -> None:
    for venue, place in VENUES.items():
        data = export(CHARTS[name], kind="pdf", venue=venue)
        kinds = {str(font["/Subtype"]) for font in fonts(data)}
        assert kinds == {"/Type0"} or kinds == {"/TrueType"} or kinds == {"/Type0", "/TrueType"}
        inner = {str(kid.get_object()["/Subtype"]) for font in fonts(data) for kid in font.get("/DescendantFonts", [])}
        assert inner <= {"/CIDFontType2"}
        width_mm = float(PdfReader(io.BytesIO(data)).pages[0].mediabox.width) / 72 * 25.4
        assert abs(width_mm - place.width_in * 25.4) < 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_twice(kind: Kind) -> None:
    for chart in (CHARTS["plane"], CHARTS["space"], CHARTS["says"]):
        assert export(chart, kind=kind) == export(chart, kind=kind)


@pytest.mark.slow
def test_the_same_bytes_in_another_process() -> None:
    program = (
        "import hashlib, sys\n"
        "from analysis.export import export\n"
        "from tests.analysis import sample_charts\n"
        "for c in (sample_charts.plane(), sample_charts.says()):\n"
        "    for kind in ('pdf', 'svg', 'png', 'csv', 'json'):\n"
        "        sys.stdout.write(hashlib.sha256(export(c, kind=kind)).hexdigest() + '\\n')\n"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    here = [
        hashlib.sha256(export(chart, kind=kind)).hexdigest()
        for chart in (sample_charts.plane(), sample_charts.says())
        for kind in ("pdf", "svg", "png", "csv", "json")
    ]
    assert other == here


def test_the_screen_theme_does_not_reach_paper() -> None:
    before = export(CHARTS["plane"], kind="pdf")
    figure_json(CHARTS["plane"], dark=True)
    assert export(CHARTS["plane"], kind="pdf") == before


def test_threads_do_not_disturb_each_other() -> None:
    alone = {venue: export(CHARTS["curves"], kind="svg", venue=venue) for venue in VENUES}
    together: dict[str, bytes] = {}

    def work(venue: str) -> None:
        together[venue] = export(CHARTS["curves"], kind="svg", venue=venue)

    threads = [threading.Thread(target=work, args=(venue,)) for venue in VENUES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_svg_text_is_text() -> None:
    svg = export(CHARTS["heatmap"], kind="svg", venue="icml2024-wide").decode()
    assert "&lt;s&gt;</text>" in svg
    assert "$x$</text>" in svg
    assert "Source Sans Pro" in svg
    assert "<dc:date>" not in svg


def test_png_is_300_dots_per_inch() -> None:
    data = export(CHARTS["bars"], kind="png", venue="neurips2024")
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 1650


def test_csv_has_the_charts_rows() -> None:
    for chart in CHARTS.values():
        rows = list(csv.DictReader(io.StringIO(export(chart, kind="csv").decode("utf-8"))))
        expected = chart_rows(chart)
        assert len(rows) == len(expected)
        assert {"panel", "mark", "x", "y"} <= set(rows[0])
        for row, wanted in zip(rows, expected, strict=True):
            for name, value in wanted.items():
                assert row[name] == ("" if value is None else str(value))


def test_the_sidecar_says_what_is_shown() -> None:
    request = Request(checkpoint="demo", prompts=(Prompt(text="a"),), loops=(8,))
    told = json.loads(export(CHARTS["space"], kind="json", venue="neurips2024", request=request))
    assert told["chart"] == "space"
    assert told["caption"] == "PCA."
    assert told["camera"] == {"azimuth": 120.0, "elevation": 10.0}
    assert told["venue"]["width_in"] == 5.5
    assert told["provenance"]["checkpoint"] == "toy"
    assert told["provenance"]["loops_trained"] is None
    assert Request.from_json(told["request"]) == request
    assert json.loads(export(CHARTS["plane"], kind="json"))["request"] is None


def test_the_camera_turns_the_paper() -> None:
    turned = replace(CHARTS["space"], camera=Camera(azimuth=20.0, elevation=60.0))
    assert export(turned, kind="pdf") != export(CHARTS["space"], kind="pdf")


def test_names_and_refusals() -> None:
    assert file_name(CHARTS["plane"], "pdf", "icml2024") == "plane-icml2024.pdf"
    assert file_name(CHARTS["plane"], "csv", "icml2024") == "plane.csv"
    with pytest.raises(ExportError, match="icml2024-wide"):
        export(CHARTS["plane"], kind="pdf", venue="nature")
    with pytest.raises(ExportError, match="pdf, svg, png"):
        importlib.import_module("analysis.export")._check("docx", "icml2024")


def test_importing_export_does_not_import_matplotlib() -> None:
    program = "import sys, analysis.export, analysis.draw.plotly; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
