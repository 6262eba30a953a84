"""The Checkpoint part of the page: card, paths, uploads, token ids, devices, and what takes its time."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# (elements of the page that AppTest has no types for)

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import study
from app import access, cache, suggested
from tests.app import pages

DATA = Path(__file__).resolve().parents[1] / "data"
PLAIN = DATA / "latent_ttc-plain"


def silent(stage: str, fraction: float) -> None:
    """Progress that nobody looks at."""


def test_the_card_of_the_demo_has_the_memory_of_the_run_that_is_asked_for() -> None:
    page = pages.opened()
    assert "<dd>Two-scale looped GPT</dd>" in pages.card(page)
    assert "<dt>Loops trained</dt><dd>8 per block on average</dd>" in pages.card(page)
    before = pages.card(page).split("Memory of this run")[1]
    page.text_input(key="loops").set_value("300").run()
    assert pages.card(page).split("Memory of this run")[1] != before
    page.text_input(key="loops").set_value("many").run()
    assert "Memory of this run" not in pages.card(page)
    assert "Two-scale" in pages.card(page)


def test_a_path_has_a_card_and_what_it_does_not_tell_stays_blank(toy_runs: list[study.Request]) -> None:
    page = pages.named(pages.opened(), PLAIN)
    assert not page.exception
    assert "<dt>Loops trained</dt><dd></dd>" in pages.card(page)
    assert "<dd>316,608</dd>" in pages.card(page)
    page.text_area(key="prompt").set_value("To be").run()
    pages.pressed_run(page)
    assert [(request.checkpoint, request.prompts[0].text) for request in toy_runs] == [(str(PLAIN), "To be")]


def test_files_that_change_get_a_new_card(tmp_path: Path) -> None:
    shutil.copytree(PLAIN, tmp_path / "mine")
    page = pages.named(pages.opened(prompt="To be"), tmp_path / "mine")
    before = pages.card(page)
    (tmp_path / "mine" / "config.json").write_text("{}", encoding="utf-8")
    page.run()
    assert pages.card(pages.read(page.run())).split("Digest")[1] != before.split("Digest")[1]


@pytest.mark.parametrize("name", ["nothing", "empty.safetensors", "~nobody-here/x", "a\0b"])
def test_a_path_that_is_no_checkpoint_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.safetensors").touch()
    page = pages.named(pages.opened(), name if name.startswith("~") else f"{tmp_path}/{name}")
    assert not page.exception
    assert len(page.error) == 1
    assert page.button(key="run").disabled
    assert not pages.card(page)
    assert len(pages.titles(page)) == 3
    assert not pages.named(page, "demo@0").error


def test_a_checkpoint_that_takes_its_time_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    real, go, told, given_up = study.card, threading.Event(), list[str](), list[str]()

    def slow(name: str, *, progress: Any = silent, **options: Any) -> study.Card:
        if name == str(PLAIN):
            told.append(name)
            try:
                while not go.wait(0.02):
                    progress("hashing", 0.25)
            except study.Cancelled:
                given_up.append(name)
                raise
        return real(name, progress=progress, **options)

    monkeypatch.setattr(study, "card", slow)
    page = pages.opened()
    pages.typed(page, PLAIN)
    page.text_input(key="loops").set_value("3").run()
    assert not page.error
    assert [bar.proto.text.replace("\\", "") for bar in page.get("progress")] == [f"Hashing {PLAIN}"]
    assert page.button(key="run").disabled
    assert len(pages.titles(page)) == 3
    assert told == [str(PLAIN)]
    pages.named(page, "demo@0")
    assert "Two-scale" in pages.card(page)
    pages.typed(page, PLAIN)
    go.set()
    assert "<dd>316,608</dd>" in pages.card(pages.read(page))
    assert given_up == [str(PLAIN)]


def test_a_link_to_a_slow_checkpoint_waits_for_it_and_then_runs(
    toy_runs: list[study.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, go = study.card, threading.Event()

    def slow(name: str, *, progress: Any = silent, **options: Any) -> study.Card:
        assert go.wait(60)
        return real(name, progress=progress, **options)

    monkeypatch.setattr(study, "card", slow)
    page = pages.opened(checkpoint=str(PLAIN), prompt="To be", loops="3")
    assert "is being made" in page.info[0].value
    go.set()
    pages.finished(pages.read(page))
    assert [request.loops for request in toy_runs] == [(3,)]
    assert page.session_state["_shown"].request == toy_runs[0]


# Links and suggestions ---------------------------------------------------------------------------------------------


def test_links_of_the_field_that_took_paths_too_still_choose_their_step(toy_runs: list[study.Request]) -> None:
    first = study.checkpoints()[0]
    page = pages.finished(pages.opened(checkpoint=first.replace("demo@", "Demo, training step ")))
    assert [request.checkpoint for request in toy_runs] == [first]
    assert page.selectbox(key="checkpoint").value == first
    assert page.query_params["checkpoint"] == first
    assert not page.error
    page.selectbox(key="checkpoint").set_value("path").run()
    assert "type the path" in pages.errors(page)
    page.selectbox(key="checkpoint").set_value(study.checkpoints()[-1]).run()
    assert "checkpoint" not in page.query_params


def test_untouched_fields_follow_another_checkpoint_and_the_link_says_so(toy_runs: list[study.Request]) -> None:
    page = pages.named(pages.opened(), PLAIN)
    default, text = study.bundled_request().prompts[0].text or "", page.text_area(key="prompt").value or ""
    assert not page.error
    assert 50 < len(text) <= 64
    assert default.startswith(text)
    assert page.text_input(key="loops").value == "30"
    pages.pressed_run(page)
    link = {name: page.query_params[name] for name in ("checkpoint", "prompt", "loops")}
    other = pages.finished(pages.read(pages.opened(**link)))
    assert other.session_state["_shown"].request == toy_runs[0]
    pages.named(page, study.checkpoints()[-1])
    assert (page.text_area(key="prompt").value, page.text_input(key="loops").value) == (default, "16")


def test_what_was_typed_or_came_with_a_link_stays(toy_runs: list[study.Request]) -> None:
    page = pages.opened()
    page.text_area(key="prompt").set_value("My own words")
    page.text_input(key="loops").set_value("5").run()
    pages.named(page, PLAIN)
    assert (page.text_area(key="prompt").value, page.text_input(key="loops").value) == ("My own words", "5")
    page = pages.finished(pages.read(pages.opened(checkpoint=str(DATA / "nanoloop-real"))))
    assert page.text_input(key="loops").value == "16"
    assert [request.loops for request in toy_runs] == [(16,)]


@pytest.mark.parametrize(
    ("trained", "config", "said"),
    [(4.0, (4,), "8"), (32.0, (32,), "32"), (0.2, None, "1"), (None, (6, 6), "6"), (None, (4, 90), "4, 32"), (None, None, "")],
)
def test_suggested_loops_are_twice_the_trained_ones(trained: float | None, config: tuple[int, ...] | None, said: str) -> None:
    card = replace(study.card("demo"), loops_trained=trained, config_loops=config)
    assert suggested.loops(card) == said


@pytest.mark.parametrize(("context", "said"), [(3, "One, two; three four,"), (23, "One, two; three four,"), (9, "One, two")])
def test_a_text_is_cut_between_words_only_where_that_helps(monkeypatch: pytest.MonkeyPatch, context: int, said: str) -> None:
    def tokenize(name: str, text: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
        return tuple(range(len(text))), tuple(text)

    monkeypatch.setattr(study, "tokenize", tokenize)
    assert suggested.beginning("any", "One, two; three four,", context) == said

    def fail(name: str, text: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
        raise study.CheckpointError("no tokenizer")

    monkeypatch.setattr(study, "tokenize", fail)
    assert suggested.beginning("any", "One, two", context) == "One, two"


# Paths -------------------------------------------------------------------------------------------------------------


def test_a_path_may_begin_with_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(PLAIN, tmp_path / "mine")
    page = pages.named(pages.opened(prompt="To be", start="From a file", start_file="~/state.npz"), "~/mine")
    assert "<dd>316,608</dd>" in pages.card(page)
    assert str(tmp_path / "state.npz") in pages.errors(page)
    page.text_input(key="start_file").set_value("~nobody-here/x.npz").run()
    assert "home folder that is not here" in pages.errors(page)


# Paths that are closed ---------------------------------------------------------------------------------------------


def anywhere(address: str | None) -> bool:
    """As if the server could be reached from other machines."""
    return True


def test_a_server_that_others_reach_opens_no_path_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(access, "beyond_loopback", anywhere)
    page = pages.opened()
    assert "paths are closed" in pages.captions(page)
    assert not page.error
    assert "outside the folders" in pages.errors(pages.named(page, PLAIN))
    page = pages.opened(input="Run folder", folder=str(tmp_path))
    assert "outside the folders" in pages.errors(page)
    page = pages.opened(start="From a file", start_file=str(tmp_path / "x.npz"))
    assert "outside the folders" in pages.errors(page)


def test_paths_below_a_named_folder_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(access.ROOTS, str(PLAIN.parent))
    page = pages.named(pages.opened(prompt="To be"), PLAIN)
    assert f"Paths are opened below {PLAIN.parent} only." in pages.captions(page)
    assert "<dd>316,608</dd>" in pages.card(page)


# Token ids, their warnings, devices --------------------------------------------------------------------------------


def test_token_ids_are_a_prompt_and_go_into_the_link(toy_runs: list[study.Request]) -> None:
    page = pages.opened()
    page.segmented_control(key="input").set_value("ids").run()
    assert "Token ids" in pages.errors(page)
    page.text_area(key="ids").set_value("5, 6 7").run()
    assert not page.error
    pages.pressed_run(page)
    assert toy_runs[0].prompts == (study.Prompt(ids=(5, 6, 7)),)
    assert page.query_params["ids"] == "5, 6 7"
    other = pages.finished(pages.opened(input="Ids", ids="5, 6 7"))
    assert other.session_state["_shown"].request == toy_runs[0]
    for wrong in ("5, x", "-1", "99999"):
        assert page.text_area(key="ids").set_value(wrong).run().error


def test_odd_special_tokens_are_said_before_the_run_and_beside_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(request: study.Request) -> tuple[str, ...]:
        return ("Two <bos> in a row.",)

    monkeypatch.setattr(study, "warnings", odd)
    cache.warnings.clear()
    page = pages.opened()
    assert "Two <bos> in a row." in pages.captions(page)
    assert "Two <bos> in a row." in page.warning[0].value.replace("\\", "")
    cache.warnings.clear()


def test_devices_are_looked_for_when_their_settings_open(
    toy_runs: list[study.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def devices() -> tuple[str, ...]:
        asked.append(1)
        return ("cpu", "cuda")

    monkeypatch.setattr(study, "devices", devices)
    cache.devices.clear()
    page = pages.opened()
    assert page.selectbox(key="device").options == ["cpu"]
    assert not asked
    page.session_state["more"] = True
    page.run()
    assert cache.devices().wait(60)
    page.run()
    assert page.selectbox(key="device").options == ["cpu", "cuda"]
    page.selectbox(key="device").set_value("cuda").run()
    pages.pressed_run(page)
    assert toy_runs[0].device == "cuda"
    assert asked == [1]
    cache.devices.clear()


def test_a_links_device_reaches_the_run_and_nonsense_does_not(toy_runs: list[study.Request]) -> None:
    pages.finished(pages.opened(device="cuda:1"))
    assert [request.device for request in toy_runs] == ["cuda:1"]
    page = pages.opened(device="<b>; rm")
    assert page.selectbox(key="device").value == "cpu"
    assert not page.exception


def test_the_header_says_in_what_and_on_what_it_was_computed() -> None:
    assert "float32 on cpu" in pages.captions(pages.opened())


def test_a_block_of_a_transformers_model_may_be_named_and_goes_into_the_request(toy_runs: list[study.Request]) -> None:
    albert = Path(__file__).resolve().parents[1] / "data" / "albert-tiny"
    page = pages.named(pages.opened(prompt="To be", loops="5"), albert)
    page.text_input(key="named_block").set_value("albert.encoder.albert_layer_groups.0").run()
    page.text_input(key="named_count").set_value("num_hidden_layers").run()
    page = pages.read(page)
    assert not page.exception
    assert "<dd>named block of a transformers model</dd>" in pages.card(page)
    pages.pressed_run(page)
    assert toy_runs[-1].named == study.NamedBlock("albert.encoder.albert_layer_groups.0", count="num_hidden_layers")
    page.text_input(key="named_block").set_value("albert.no.such").run()
    assert "has no module" in " ".join(error.value for error in pages.read(page).error)
