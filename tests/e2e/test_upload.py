"""A checkpoint of one's own, in a real browser: typed key by key, or uploaded, described, run, and gone when the tab closes."""

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

    screen.settle(page)  # the link changes before the card does
    page.locator(".st-key-card button").first.click()
    page.wait_for_function("document.querySelector('.loopscope-card')?.innerText.includes('4 per block on average')")
    card = page.inner_text(".loopscope-card")
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


def test_a_path_is_typed_key_by_key_over_the_one_that_is_loaded(page: Page, server: str, tmp_path: Path) -> None:
    mine = write_tiny(tmp_path / "mine")
    screen.open_page(page, f"{server}/?input=Ids&ids=5,6,7,8&loops=3&checkpoint={mine}")
    field = page.get_by_label("Path of a checkpoint", exact=True)
    assert field.input_value() == str(mine)
    field.click()
    page.keyboard.press("Control+A")
    for key in f"{mine}/model.safetensors":
        page.keyboard.press(key)
        page.wait_for_timeout(20)
    assert field.input_value() == f"{mine}/model.safetensors"
    page.keyboard.press("Enter")
    page.wait_for_function("location.search.includes('model.safetensors')")
    screen.settle(page)
    assert field.input_value() == f"{mine}/model.safetensors"
    assert page.locator("[data-testid=stSidebar] [data-testid=stAlert]").count() == 0
    page.wait_for_selector(".st-key-card")


def test_a_file_over_the_cap_is_said_to_be_missing(page: Page, server: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}", encoding="utf-8")
    with (tmp_path / "mine" / "model.safetensors").open("wb") as file:
        file.truncate(501 * 2**20)  # a hole: takes no room, and is not sent
    screen.open_page(page, server)
    page.locator(".st-key-upload button").first.click()
    page.wait_for_selector(".st-key-upload_folder input[type=file]", state="attached")
    page.locator(".st-key-upload_folder input[type=file]").set_input_files(tmp_path / "mine")
    said = page.locator("[data-testid=stPopoverBody] [data-testid=stAlert]")
    said.wait_for()
    assert "cap of 500 MiB is not sent" in said.inner_text()
    assert "checkpoint=" not in page.url
