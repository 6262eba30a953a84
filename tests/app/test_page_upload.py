"""A checkpoint that is uploaded on the page: chosen, described, capped, and missed where a link names it."""

# pyright: reportUnknownArgumentType=false
# (elements of the page that AppTest has no types for)

from pathlib import Path
from typing import Any

import pytest

from analysis import study
from app import access, upload
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


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("mine/config.json", 2)], "only mine/config.json arrived"),
        ([("config.json", 2), ("model.safetensors.index.json", 9)], "A file over the cap of 3 MiB is not sent"),
        ([("config.json", 2), ("a.safetensors", 2 * 2**20), ("b.bin", 3 * 2**20)], "b.bin: 3.0 MiB) and the cap is 3 MiB"),
        ([("m/CKPT.PT", 3 * 2**20)], ""),
    ],
)
def test_what_is_refused_before_it_is_kept(files: list[tuple[str, int]], words: str) -> None:
    said = upload.refusal(files, 3)
    assert words in said
    assert bool(said) == bool(words)
    assert not said or "type a path instead" in said


def in_form(page: Any) -> list[str]:
    """Errors within the form, which covers the others while it is open."""
    return [error.value.replace("\\", "") for error in page.container(key="upload_trouble").error]


def test_a_config_alone_is_no_checkpoint_and_the_chosen_one_stays() -> None:
    page = pages.opened()
    page.file_uploader(key="upload_folder").set_value([("mine/config.json", b"{}", "text/json")]).run()
    assert "holds no weights file" in in_form(page)[0]
    assert page.selectbox(key="checkpoint").value == study.checkpoints()[-1]
    assert not page.button(key="run").disabled


def test_what_is_wrong_with_an_upload_stands_in_its_form_and_bears_its_name() -> None:
    page = pages.opened()
    weights = [(f"mine/{name}.pt", (PLAIN / "ckpt.pt").read_bytes(), "application/octet-stream") for name in "ab"]
    page.file_uploader(key="upload_folder").set_value(weights).run()
    pages.read(page)
    assert len(page.error) == 2
    assert in_form(page)[0] == page.error[-1].value.replace("\\", "")
    assert in_form(page)[0].startswith("The upload 'mine' holds 2 files that may be the weights")


def test_a_server_without_paths_takes_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(access.ROOTS, "")
    page = pages.opened()
    page.file_uploader(key="upload_folder").set_value(folder_files()).run()
    assert "<dd>316,608</dd>" in pages.card(pages.read(page))
