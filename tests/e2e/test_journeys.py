"""Three journeys through the real page, in a real browser, on the trained demo."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from pypdf import PdfReader
from pypdf.generic import ArrayObject, DictionaryObject

from tests.e2e import screen

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PROMPT = "Once upon a time there was a little\ngirl who lived in the wood, and she had a red cap."


def test_a_typed_prompt_becomes_trajectories_and_a_heatmap(page: Page, server: str) -> None:
    screen.open_page(page, server)
    assert screen.runs(page) == "runs: 0"
    before = screen.see(page, "heatmap", "g._fullData.find((t) => t.type === 'heatmap').x.length")

    screen.type_into(page, "Prompt", PROMPT)
    screen.run(page, expect=1)

    tokens = int(page.inner_text(".st-key-tokens button").split(" tokens")[0].split()[-1])
    shown = screen.see(page, "heatmap", "g._fullData.find((t) => t.type === 'heatmap').x.length")
    assert shown == tokens != before
    assert screen.see(page, "heatmap", "g._fullData.find((t) => t.type === 'heatmap').z.length") == 16
    points = screen.see(page, "trajectory", "g._fullData.map((t) => Array.from(t.x ?? []).filter(Number.isFinite).length)")
    assert sum(points) > 3 * 16
    assert "wood" in screen.see(page, "says", "g._fullLayout.xaxis.ticktext.join(' ')")
    assert "Once" in page.url


def test_a_moved_threshold_moves_the_exits_and_nothing_else(page: Page, server: str) -> None:
    screen.open_page(page, f"{server}/exit_rules")
    screen.type_into(page, "Loops", "12")
    screen.run(page, expect=1)
    screen.drag(page, "exit_heatmap", (0.2, 0.1), (0.8, 0.95))
    zoomed = screen.see(page, "exit_heatmap", "[...g._fullLayout.xaxis.range, ...g._fullLayout.yaxis.range]")
    assert zoomed[1] - zoomed[0] < 15
    before = {rule: screen.exits(page, "exit_heatmap", rule) for rule in ("step norm", "acceleration")}

    screen.press(page, "ArrowLeft", on="step_norm-threshold", times=8)

    page.wait_for_function("new URLSearchParams(location.search).get('step_norm.threshold') === '0.16'")
    screen.wait_for_other_exits(page, "exit_heatmap", "step norm", before["step norm"])
    after = {rule: screen.exits(page, "exit_heatmap", rule) for rule in ("step norm", "acceleration")}
    assert after["acceleration"] == before["acceleration"]
    assert sum(after["step norm"][1]) > sum(before["step norm"][1])
    assert screen.see(page, "exit_heatmap", "[...g._fullLayout.xaxis.range, ...g._fullLayout.yaxis.range]") == zoomed
    assert screen.runs(page) == "runs: 1"
    assert "step_norm.threshold=0.16" in page.url


def test_the_camera_stays_when_the_loop_moves_and_is_the_exports(page: Page, server: str, tmp_path: Path) -> None:
    screen.open_page(page, f"{server}/?trajectory.dims=3-D")
    camera = "g._fullLayout.scene._scene.getCamera().eye"
    first = screen.see(page, "trajectory", camera)
    screen.drag(page, "trajectory", (0.4, 0.5), (0.65, 0.4), area=".gl-container canvas")
    turned = screen.see(page, "trajectory", camera)
    assert any(abs(turned[axis] - first[axis]) > 0.05 for axis in "xyz")
    assert "token=" not in page.url  # turning is no click

    screen.press(page, "ArrowRight", on="loop", times=3)

    assert screen.see(page, "trajectory", "g._fullData.some((t) => t.name === 'loop 3')")
    assert screen.see(page, "trajectory", camera) == pytest.approx(turned)
    described = json.loads(_saved(page, "trajectory", "JSON", tmp_path).read_text(encoding="utf-8"))
    azimuth, elevation = (
        float(part) for part in page.url.split("trajectory.camera=")[1].split("&")[0].replace("%2C", ",").split(",")
    )
    assert described["camera"] == {"azimuth": azimuth, "elevation": elevation}

    page.get_by_role("link", name="Two scales").first.click()
    page.wait_for_selector(".st-key-panel_curves [data-drawn]")
    page.get_by_role("link", name="Trajectories").first.click()
    page.wait_for_selector(".st-key-panel_trajectory [data-drawn]")
    screen.settle(page)
    assert screen.see(page, "trajectory", camera) == pytest.approx(turned, abs=1e-3)


def test_a_downloaded_pdf_has_no_type_3_font(page: Page, server: str, tmp_path: Path) -> None:
    screen.open_page(page, server)
    screen.run(page, expect=1)

    pdf = _saved(page, "heatmap", "PDF", tmp_path)
    csv = _saved(page, "heatmap", "CSV", tmp_path)
    sidecar = json.loads(_saved(page, "heatmap", "JSON", tmp_path).read_text(encoding="utf-8"))

    kinds = _fonts(pdf)
    assert kinds
    assert "/Type3" not in kinds
    assert len(csv.read_text(encoding="utf-8").splitlines()) > 18 * 16
    assert sidecar["request"]["loops"] == [16]
    assert screen.runs(page) == "runs: 1"
    assert screen.see(page, "heatmap", "g._fullData.length") > 0


def _saved(page: Page, panel: str, kind: str, folder: Path) -> Path:
    """Download a chart in a format, through the menu below it."""
    page.keyboard.press("Escape")
    page.locator(f".st-key-download_{panel} button").first.click()
    with page.expect_download() as waiting:
        page.locator(f".st-key-save_{panel}_{kind.lower()} button").click()
    target = folder / waiting.value.suggested_filename
    waiting.value.save_as(target)
    page.keyboard.press("Escape")
    return target


def _fonts(path: Path) -> set[str]:
    """Kinds of all fonts in a PDF, those inside composite fonts included."""
    found: set[str] = set()

    def walk(value: Any, seen: set[int]) -> None:
        resolved = value.get_object()
        if id(resolved) in seen:
            return
        seen.add(id(resolved))
        if isinstance(resolved, DictionaryObject):
            if resolved.get("/Type") == "/Font":
                found.add(str(resolved["/Subtype"]))
            for name, part in resolved.items():
                if name != "/Parent":
                    walk(part, seen)
        elif isinstance(resolved, ArrayObject):
            for part in list[Any](resolved):
                walk(part, seen)

    for sheet in PdfReader(path).pages:
        walk(sheet["/Resources"], set())
    return found
