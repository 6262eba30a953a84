"""The page without a browser: one run for many moves, links, uploads, what breaks, exits, and what is not there."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# (tables of the page are pandas frames, which have no types)

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from analysis import study
from analysis.chart import chart_builders
from analysis.exit_rule import exit_rules
from app import cache
from tests.app import pages
from tests.toys import spiral, toy_block, toy_run, toy_trajectory


def figures(page: AppTest) -> list[dict[str, Any]]:
    """What the viewers on the page were given."""
    return [json.loads(element.proto.json) for element in page.get("bidi_component")]


def test_a_run_keeps_its_results_over_pages_and_moved_widgets(toy_runs: list[study.Request]) -> None:
    page = pages.opened()
    page.text_area(key="prompt").set_value("Two lines\nof one prompt")
    page.text_input(key="loops").set_value("7")
    page.number_input(key="seed").set_value(3)
    pages.pressed_run(page)
    assert [request.prompts for request in toy_runs] == [(study.Prompt(text="Two lines\nof one prompt"),)]
    assert (toy_runs[0].loops, toy_runs[0].seed) == ((7,), 3)
    assert pages.counter(page) == "runs: 1"
    for loop in (None, 1, 3, 7):
        page.select_slider(key="loop").set_value(loop).run()
    for token in (0, "all", 5):
        page.selectbox(key="token").set_value(token).run()
    page.selectbox(key="block").set_value("h[1]").run()
    for view in pages.VIEWS:
        page.switch_page(view).run()
        assert not page.exception
    assert pages.counter(page) == "runs: 1"
    assert len(toy_runs) == 1


def test_an_equal_request_is_not_run_twice(toy_runs: list[study.Request]) -> None:
    page = pages.opened()
    page.text_input(key="loops").set_value("5").run()
    pages.pressed_run(page)
    page.text_input(key="loops").set_value("6").run()
    pages.pressed_run(page)
    page.text_input(key="loops").set_value("5").run()
    pages.pressed_run(page)
    assert [request.loops for request in toy_runs] == [(5,), (6,)]
    assert page.session_state["_shown"].run.trajectories[0].blocks[0].loops == 5


def test_a_link_brings_back_its_run_and_selection(toy_runs: list[study.Request]) -> None:
    page = pages.finished(pages.opened(loops="9", seed="4", token="2 ·t2", loop="3", block="h[2]", **{"kl.threshold": "0.05"}))
    assert [(request.loops, request.seed) for request in toy_runs] == [((9,), 4)]
    assert page.selectbox(key="token").value == 2
    assert page.select_slider(key="loop").value == 3
    assert page.selectbox(key="block").value == "h[2]"
    rules = {rule.name: rule.threshold for rule in page.session_state["_rules"]}
    assert rules["kl"] == 0.05


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"loops": "10000"}, "10000 loops were asked for"),
        ({"start": "From a file"}, "path"),
        ({"input": "Upload", "file": "mine.txt (0123456789ab)"}, "mine.txt"),
        ({"input": "Run folder", "folder": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_link_that_cannot_be_shown_says_why_and_leaves_the_demo(query: dict[str, str], words: str) -> None:
    page = pages.opened(**query)
    assert not page.exception
    assert len(page.error) == 1
    assert words in page.error[0].value.replace("\\", "")
    assert len(pages.titles(page)) == 3


def test_an_uploaded_file_becomes_one_prompt_per_line(toy_runs: list[study.Request]) -> None:
    page = pages.opened()
    page.segmented_control(key="input").set_value("upload").run()
    assert "upload a .txt" in page.error[0].value.replace("\\", "")
    page.file_uploader(key="prompt_file").upload("mine.txt", b"First line\n\nSecond line\n").run()
    assert not page.error
    pages.pressed_run(page)
    assert [request.prompts[0].text for request in toy_runs] == ["First line", "Second line"]
    assert "2 prompts" in " ".join(caption.value for caption in page.caption)
    page.selectbox(key="of").set_value(1).run()
    assert not page.exception
    assert page.query_params["file"].startswith("mine.txt")


def test_a_file_that_is_no_text_is_refused_in_a_sentence() -> None:
    page = pages.opened()
    page.segmented_control(key="input").set_value("upload").run()
    page.file_uploader(key="prompt_file").upload("mine.txt", b"\x00\x01\x02").run()
    assert not page.exception
    assert "no text" in page.error[0].value
    assert page.button(key="run").disabled


def test_a_run_folder_is_opened_by_its_path(tmp_path: Path) -> None:
    study.save(toy_run(prompts=2), tmp_path / "made")
    page = pages.opened()
    page.segmented_control(key="input").set_value("folder").run()
    page.text_input(key="folder").set_value(str(tmp_path / "made")).run()
    page.button(key="open").click().run()
    assert not page.exception
    assert not page.error
    assert page.selectbox(key="of").options == ["0 toy", "1 toy"]
    assert page.session_state["_shown"].run.trajectories[0].provenance.checkpoint == "toy"


def test_what_goes_wrong_in_a_run_is_a_sentence_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    page = pages.opened()
    before = page.session_state["_shown"]

    def fail(request: study.Request, **_: Any) -> study.Run:
        raise ZeroDivisionError("a detail")

    monkeypatch.setattr(study, "run", fail)
    page.text_input(key="loops").set_value("11").run()
    pages.pressed_run(page)
    assert not page.exception
    assert "ZeroDivisionError" in page.error[0].value
    assert "a detail" not in page.error[0].value
    assert page.session_state["_shown"] is before
    assert page.text_input(key="loops").value == "11"
    assert pages.counter(page) == "runs: 0"


def test_a_refused_run_says_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSCOPE_MEMORY_GIB", "0.001")
    cache.estimate.clear()
    page = pages.opened()
    assert "fewer loops" in page.error[0].value
    assert page.button(key="run").disabled
    cache.estimate.clear()


def test_a_run_can_be_cancelled_and_the_page_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(request: study.Request, *, cancel: Callable[[], bool], **_: Any) -> study.Run:
        while not cancel():
            time.sleep(0.01)
        raise study.Cancelled("The run was cancelled.")

    page = pages.opened()
    before = page.session_state["_shown"]
    page.text_input(key="loops").set_value("13").run()
    monkeypatch.setattr(study, "run", wait)
    page.button(key="run").click().run()
    assert page.progress
    assert page.button(key="run").disabled
    page.button(key="cancel").click().run()
    pages.finished(page)
    assert not page.error
    assert "stopped before a prompt was complete" in page.info[0].value
    assert page.session_state["_shown"] is before
    assert not page.button(key="run").disabled
    page.switch_page(pages.VIEWS[1]).run()
    assert not page.error


def test_a_long_prompt_shows_a_readable_window_that_fits_the_next_run(toy_runs: list[study.Request]) -> None:
    page = pages.opened()
    page.session_state["_shown"] = replace(page.session_state["_shown"], run=study.Run({}, (toy_trajectory(tokens=60),)))
    page.run()
    assert page.slider(key="says.window").value == (36, 60)
    page.slider(key="says.window").set_range(0, 12).run()
    assert not page.exception
    page.text_input(key="loops").set_value("4").run()
    pages.pressed_run(page)
    assert not page.exception
    assert "says.window" not in {slider.key for slider in page.slider}


def test_a_chart_that_breaks_leaves_the_others_alone() -> None:
    broken = chart_builders()["heatmap"]
    cache.drawn.clear()
    with patch.object(broken, "build", side_effect=ZeroDivisionError("a detail")):
        page = pages.opened()
    assert not page.exception
    assert "could not be drawn (ZeroDivisionError)" in page.error[0].value
    assert len(figures(page)) == 2


def test_statistics_only_says_which_option_brings_the_states_back(toy_runs: list[study.Request], tmp_path: Path) -> None:
    folder = tmp_path / "statistics"
    study.save(study.bundled_others()[0][1], folder)
    page = pages.opened(input="Run folder", folder=str(folder))
    assert not page.exception
    assert not page.error
    said = " ".join(info.value for info in page.info)
    assert "states" in said
    assert "lens" in said.lower()


def test_the_exit_table_tells_never_from_a_loop() -> None:
    page = pages.opened(**{"step_norm.threshold": "8e-07"})
    page.switch_page(pages.VIEWS[2]).run()
    table: Any = page.dataframe[-1].value
    rules = exit_rules()
    assert set(table[rules["step_norm"].title]) == {"never"}
    assert set(table[rules["acceleration"].title]) <= {str(k) for k in range(2, 17)}
    assert list(table["position"]) == list(range(18))


def test_no_marked_rule_is_said_and_not_an_error() -> None:
    page = pages.opened()
    pages.mark_rules(page, ())
    page.switch_page(pages.VIEWS[2]).run()
    assert not page.exception
    assert not page.error
    assert any("No exit rule" in info.value for info in page.info)


def test_non_finite_states_stand_above_the_charts(tmp_path: Path) -> None:
    states = spiral(loops=8, tokens=5, width=6, seed=0)
    states[5:, 2] = np.inf
    whole = toy_trajectory(blocks=1)
    with np.errstate(invalid="ignore"):
        run = study.Run(request={}, trajectories=(replace(whole, blocks=(toy_block(states),)),))
    study.save(run, tmp_path / "broken")
    page = pages.opened(input="Run folder", folder=str(tmp_path / "broken"))
    assert not page.exception
    banner = [warning.value.replace("\\", "") for warning in page.warning if "non" in warning.value]
    assert len(banner) == 1
    assert "from loop 5, token #2" in banner[0]


def test_short_prompts_and_few_loops_give_sentences(toy_runs: list[study.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    for loops in (1, 2, 3):
        page = pages.opened()
        page.text_input(key="loops").set_value(str(loops)).run()
        pages.pressed_run(page)
        for view in pages.VIEWS:
            page.switch_page(view).run()
            assert not page.exception
            assert not page.error, [error.value for error in page.error]


def test_the_theme_of_the_page_is_the_figures() -> None:
    light = pages.opened()
    dark = AppTest.from_file(str(pages.SCRIPT), default_timeout=pages.SECONDS)
    dark.context = {"theme": "dark"}
    dark.run()
    colours = [json.loads(figures(page)[0]["figure"])["layout"]["font"]["color"] for page in (light, dark)]
    assert colours[0] != colours[1]
    assert [figures(page)[0]["dark"] for page in (light, dark)] == [False, True]
