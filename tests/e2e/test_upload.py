"""A checkpoint of one's own, uploaded in a real browser: chosen, described, run, and gone when the tab closes."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.e2e import screen
from tests.model.toy_networks import write_tiny

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECONDS = 20


def files_in(folder: Path) -> list[str]:
    """Names of all files below a folder."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_an_uploaded_folder_runs_and_leaves_with_its_tab(page: Page, server: str, kept: Path, tmp_path: Path) -> None:
    mine = write_tiny(tmp_path / "mine")
    screen.open_page(page, f"{server}/?input=Ids&ids=5,6,7,8&loops=3")
    page.locator(".st-key-upload button").first.click()
    page.wait_for_selector("text=Up to 500 MiB together")
    assert "500MB per file" in page.inner_text(".st-key-upload_folder")
    page.locator(".st-key-upload_folder input[type=file]").set_input_files(mine)
    page.wait_for_function("location.search.includes('upload%3Amine%40')")
    page.keyboard.press("Escape")
    page.wait_for_selector(".st-key-card")
    assert files_in(kept) == ["config.json", "model.safetensors"]

    page.locator(".st-key-card button").first.click()
    card = page.inner_text(".loopscope-card")
    assert "4 per block on average" in card
    assert "21,168" in card
    assert "Memory of this run" in card
    page.keyboard.press("Escape")
    screen.run(page, expect=2)
    assert "upload:mine@" in page.inner_text("[data-testid=stMain]")
    assert screen.see(page, "heatmap", "g._fullData.find((t) => t.type === 'heatmap').z.length") == 3

    link, context = page.url, page.context
    page.close()
    end = time.monotonic() + SECONDS
    while files_in(kept) and time.monotonic() < end:
        time.sleep(0.1)
    assert files_in(kept) == []
    other = context.new_page()
    other.goto(link)
    other.wait_for_function("document.body.innerText.includes('not here any more')")
    assert "mine" in other.inner_text("[data-testid=stSidebar] [data-testid=stAlert]")
