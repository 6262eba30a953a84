"""The page without a browser: first paint, every view, bad input in sentences, settings that survive."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from analysis import study
from app import job as jobs
from app.cache import Shelf, obtain
from tests.toys import toy_run

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "app" / "streamlit_app.py"
VIEWS = ("views/trajectories.py", "views/two_scales.py", "views/exit_rules.py")


@pytest.fixture
def page() -> AppTest:
    found = AppTest.from_file(str(PAGE), default_timeout=120).run()
    assert not found.exception
    return found


def errors(page: AppTest) -> str:
    return " ".join(error.value.replace("\\", "") for error in page.error)


def finished(page: AppTest) -> AppTest:
    """The page once its run is over."""
    end = time.monotonic() + 100
    job: jobs.Job[Any] | None = page.session_state["_job"]
    assert job is not None
    assert job.wait(end - time.monotonic())
    return page.run()


def test_the_first_screen_shows_the_bundled_run(page: AppTest) -> None:
    assert [title.value for title in page.title] == ["Trajectories"]
    assert len(page.header) == 3
    assert page.session_state["_shown"].request == study.bundled_request()
    assert "runs: 0" in [caption.value for caption in page.caption]
    assert not page.error


def test_the_first_paint_needs_no_torch() -> None:
    code = (
        "import sys; from streamlit.testing.v1 import AppTest; "
        f"page = AppTest.from_file({str(PAGE)!r}, default_timeout=120).run(); "
        "assert not page.exception; assert len(page.header) == 3; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_draws_its_charts(page: AppTest, view: str) -> None:
    page.switch_page(view).run()
    assert not page.exception
    assert not page.error
    assert len(page.header) >= 3
    assert any("post hoc" in caption.value for caption in page.caption)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("prompt", "", "The prompt is empty"),
        ("prompt", "king " * 300, "301 tokens and the model's context is 128"),
        ("loops", "0", "0 loops were asked for"),
        ("loops", "10000", "10000 loops were asked for"),
        ("loops", "many", "write a whole number"),
        ("loops", "1, 2", "the model has 3 looped blocks"),
        ("store", "5:2", "Token range 5:2"),
        ("store", "x", "write start:stop"),
    ],
)
def test_bad_input_is_one_sentence_and_loses_nothing(page: AppTest, key: str, value: str, sentence: str) -> None:
    field: Any = page.text_area(key=key) if key == "prompt" else page.text_input(key=key)
    field.set_value(value).run()
    assert not page.exception
    assert sentence in errors(page)
    assert page.button(key="run").disabled
    assert len(page.header) == 3


@pytest.mark.parametrize("name", ["demo@7", "no/such/folder"])
def test_a_link_to_a_checkpoint_that_is_not_here_names_it(name: str) -> None:
    page = AppTest.from_file(str(PAGE), default_timeout=120)
    page.query_params["checkpoint"] = name
    page.run()
    assert not page.exception
    assert Path(name).name in errors(page)
    assert len(page.header) == 3


def test_a_run_replaces_the_one_on_screen_and_settings_survive_pages(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("The king said <s> $x$ 🙂 and\nwent home").run()
    page.text_input(key="loops").set_value("3").run()
    page.button(key="run").click().run()
    finished(page)
    assert not page.exception
    assert "runs: 1" in [caption.value for caption in page.caption]
    shown = page.session_state["_shown"]
    assert [block.loops for block in shown.run.trajectories[0].blocks] == [3, 3, 3]
    for view in VIEWS[1:]:
        page.switch_page(view).run()
        assert not page.exception
        assert page.text_input(key="loops").value == "3"
    assert page.session_state["_shown"] is shown
    assert "runs: 1" in [caption.value for caption in page.caption]


def test_small_runs_say_why_charts_are_blank(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("a").run()
    page.text_input(key="loops").set_value("1").run()
    page.button(key="run").click().run()
    finished(page)
    for view in VIEWS:
        page.switch_page(view).run()
        assert not page.exception
        assert not page.error
    page.switch_page(VIEWS[1]).run()
    assert any("at least 2 loops" in info.value or "loops" in info.value for info in page.info)


def test_a_run_folder_opens_and_a_broken_one_is_named(page: AppTest, tmp_path: Path) -> None:
    study.save(toy_run(), tmp_path / "run")
    page.session_state["input"] = "folder"
    page.session_state["folder"] = str(tmp_path / "run")
    page.run()
    page.button(key="open").click().run()
    assert not page.exception
    assert len(page.session_state["_shown"].run.trajectories) == 2
    page.session_state["folder"] = str(tmp_path)
    page.run()
    page.button(key="open").click().run()
    assert "no run folder" in errors(page)
    assert len(page.session_state["_shown"].run.trajectories) == 2


def test_thresholds_change_exits_without_a_run(page: AppTest) -> None:
    page.switch_page(VIEWS[2]).run()
    before = page.session_state["_rules"]
    slider = page.select_slider(key="step_norm.threshold")
    slider.set_value(min(map(float, slider.options), key=lambda step: abs(step - 0.0087))).run()
    after = {rule.name: rule for rule in page.session_state["_rules"]}
    assert not page.exception
    assert {rule.name: rule for rule in before}["step_norm"].threshold == 0.87
    assert after["step_norm"].threshold < 0.01
    assert after["acceleration"] in before
    assert "runs: 0" in [caption.value for caption in page.caption]


def test_a_link_restores_its_settings() -> None:
    page = AppTest.from_file(str(PAGE), default_timeout=120)
    page.query_params["loops"] = "2"
    page.query_params["prompt"] = "Hello king"
    page.run()
    finished(page)
    assert page.text_input(key="loops").value == "2"
    assert page.session_state["_shown"].run.trajectories[0].prompt == "Hello king"


def test_a_long_prompt_goes_into_the_link_by_its_digest(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("king " * 20).run()
    assert page.query_params["prompt"] == "king " * 20
    page.text_area(key="prompt").set_value("king " * 900).run()
    assert "prompt" not in page.query_params
    link = page.query_params["prompt_digest"]
    assert link.startswith("4500 characters, sha256 ")
    other = AppTest.from_file(str(PAGE), default_timeout=120)
    other.query_params["prompt_digest"] = link
    other.run()
    assert "too long for a link; paste it" in errors(other)
    other.text_area(key="prompt").set_value("The king").run()
    assert not other.error
    assert other.query_params["prompt"] == "The king"


def job(work: Callable[[Any, Any], study.Run]) -> jobs.Job[study.Run]:
    return jobs.start("run", work)


def test_a_job_ends_with_a_run_a_sentence_or_a_cancel() -> None:
    good = job(lambda progress, cancel: toy_run())
    assert good.wait(10)
    assert good.result is not None

    def fail(progress: Any, cancel: Any) -> study.Run:
        raise study.RequestError("Seed -1 is out of range.")

    known = job(fail)
    assert known.wait(10)
    assert known.problem == "Seed -1 is out of range."

    def crash(progress: Any, cancel: Any) -> study.Run:
        raise ZeroDivisionError

    unknown = job(crash)
    assert unknown.wait(10)
    assert "ZeroDivisionError" in unknown.problem
    assert unknown.result is None
    begun = threading.Event()

    def slow(progress: Any, cancel: Any) -> study.Run:
        begun.set()
        while not cancel():
            time.sleep(0.01)
        raise study.Cancelled("The run was cancelled.")

    stopped = job(slow)
    assert begun.wait(10)
    assert not stopped.over
    stopped.cancel()
    assert stopped.wait(10)
    assert (stopped.problem, stopped.notice) == ("", "The run was cancelled.")

    def partly(progress: Any, cancel: Any) -> study.Run:
        raise jobs.Stopped("Stopped after 1 of 2.", kept)

    kept = toy_run(prompts=1)
    half = job(partly)
    assert half.wait(10)
    assert (half.problem, half.notice, half.result) == ("", "Stopped after 1 of 2.", kept)


def test_the_shelf_keeps_what_fits_and_the_newest_longest() -> None:
    run, first = toy_run(prompts=1), study.bundled_request()
    requests = [replace(first, seed=seed) for seed in range(4)]
    shelf = Shelf(limit=2 * run.nbytes + 1)
    for request in requests[:3]:
        shelf.put(request, run)
    assert [shelf.get(request) is not None for request in requests] == [False, True, True, False]
    shelf.get(requests[1])
    shelf.put(requests[3], run)
    assert [shelf.get(request) is not None for request in requests] == [False, True, False, True]


def test_prompts_are_run_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def fake(request: study.Request, **options: Any) -> study.Run:
        asked.append(request.prompts[0].text)
        options["progress"]("capturing", 0.5)
        return toy_run(prompts=1)

    monkeypatch.setattr(study, "run", fake)
    shelf, told = Shelf(), list[float]()
    two = replace(study.bundled_request(), prompts=(study.Prompt("a"), study.Prompt("b")))
    for request in (two, replace(two, prompts=(study.Prompt("b"), study.Prompt("c")))):
        found = obtain(request, shelf, progress=lambda stage, fraction: told.append(fraction), cancel=lambda: False)
        assert len(found.trajectories) == 2
    assert asked == ["a", "b", "c"]
    assert told == [0.25, 0.75, 0.75]
