"""A checkpoint that is uploaded on the page: chosen, described, capped, and missed where a link names it."""

# pyright: reportUnknownArgumentType=false
# (elements of the page that AppTest has no types for)

from pathlib import Path
from typing import Any

import pytest

from analysis import study
from app import access
from tests.app import pages

PLAIN = Path(__file__).resolve().parents[1] / "data" / "latent_ttc-plain"


def folder_files() -> list[tuple[str, bytes, str]]:
    return [(f"mine/{path.name}", path.read_bytes(), "application/octet-stream") for path in [PLAIN / "ckpt.pt"]]


def test_an_uploaded_folder_is_chosen_has_a_card_and_runs(toy_runs: list[study.Request]) -> None:
    page = pages.opened(prompt="To be")
    pages.finished(page)
    page.file_uploader(key="upload_folder").set_value(folder_files()).run()
    pages.read(page)
    name: Any = page.selectbox(key="checkpoint").value
    assert not page.exception
    assert name.startswith("upload:mine@")
    assert "<dd>316,608</dd>" in pages.card(page)
    assert page.query_params["checkpoint"] == name
    pages.pressed_run(page)
    assert toy_runs[-1].checkpoint == name
    page.selectbox(key="checkpoint").set_value("demo@0").run()
    assert not page.error
    assert page.selectbox(key="checkpoint").value == "demo@0"
    assert name in page.selectbox(key="checkpoint").options


def test_a_link_with_an_upload_says_which_one_is_missing() -> None:
    page = pages.read(pages.opened(checkpoint="upload:mine@0123456789ab"))
    assert not page.exception
    assert "mine" in pages.errors(page)
    assert "0123456789ab" in pages.errors(page)
    assert len(pages.titles(page)) == 3


def test_the_cap_is_one_setting_and_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []

    def keep(files: Any, *, limit_bytes: int) -> study.Upload:
        limits.append(limit_bytes)
        raise study.CheckpointError("The upload is larger than the cap.")

    monkeypatch.setattr(study, "keep_upload", keep)
    page = pages.opened()
    assert "Up to 200 MiB together" in pages.captions(page)  # what Streamlit has where no config.toml is read
    page.file_uploader(key="upload_folder").set_value(folder_files()).run()
    assert limits == [200 * 2**20]
    assert pages.errors(page) == "The upload is larger than the cap."
    assert page.selectbox(key="checkpoint").value == "demo@2100"
    assert not page.button(key="run").disabled


def test_single_files_can_be_uploaded_and_what_is_no_checkpoint_is_said() -> None:
    page = pages.opened()
    page.segmented_control(key="upload_kind").set_value("files").run()
    page.file_uploader(key="upload_files").set_value([("notes.txt", b"nothing", "text/plain")]).run()
    pages.read(page)
    assert not page.exception
    assert "weights" in pages.errors(page)


def test_a_server_without_paths_takes_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(access.ROOTS, "")
    page = pages.opened()
    page.file_uploader(key="upload_folder").set_value(folder_files()).run()
    assert "<dd>316,608</dd>" in pages.card(pages.read(page))
