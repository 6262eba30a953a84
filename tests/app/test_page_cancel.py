"""Cancel on every page: no error, what is done is kept and shown, and the same button goes on from there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from analysis import study
from app import cache
from tests.app import pages

TRADE_OFF, EXIT_RULES = pages.VIEWS[3], pages.VIEWS[2]
Allow = Callable[[int], None]


def sweeping(gated_runs: Allow, toy_runs: list[study.Request], *, done: int, page: AppTest | None = None) -> AppTest:
    """The page after a sweep of eight windows was cancelled when so many were done."""
    gated_runs(len(toy_runs) + done)
    want = len(toy_runs) + done
    page = page or pages.opened(**{"text.tokens": "48"}).switch_page(TRADE_OFF).run()
    page.button(key="sweep").click().run()
    return pages.stopped(page, "sweep", after=lambda: len(toy_runs) == want)


def test_a_cancelled_sweep_shows_its_windows_and_goes_on_from_them(gated_runs: Allow, toy_runs: list[study.Request]) -> None:
    page = sweeping(gated_runs, toy_runs, done=3)
    assert not page.exception
    assert not page.error
    assert "stopped after 3 of 8 windows of report.txt. They are kept: press Sweep to go on" in pages.infos(page)
    assert "Swept: report.txt, 3 of 8 windows" in pages.captions(page)
    assert "Rules at equal loops" in pages.titles(page)
    gated_runs(8)
    page.button(key="sweep").click().run()
    pages.settled(page, "sweep")
    assert len(toy_runs) == 8
    assert len({request.key() for request in toy_runs}) == 8
    assert "stopped" not in pages.infos(page)
    assert "Swept: report.txt, 8 windows" in pages.captions(page)


def test_a_part_of_a_text_does_not_replace_as_much_of_it_but_does_replace_another(
    gated_runs: Allow, toy_runs: list[study.Request]
) -> None:
    page = sweeping(gated_runs, toy_runs, done=3)
    before = page.session_state["_sweep"]
    cache.shelf.clear()
    sweeping(gated_runs, toy_runs, done=2, page=page)
    assert page.session_state["_sweep"] is before
    page.selectbox(key="text").set_value("calibrate").run()
    sweeping(gated_runs, toy_runs, done=2, page=page)
    assert page.session_state["_sweep"].text.name == "calibrate.txt"
    assert "2 of 8 windows" in pages.captions(page)


def test_a_cancelled_calibration_moves_nothing_keeps_its_windows_and_goes_on(
    gated_runs: Allow, toy_runs: list[study.Request]
) -> None:
    gated_runs(10)
    page = pages.opened(goal="Budget", **{"goal.loops": "4", "goal.tokens": "48"}).switch_page(EXIT_RULES).run()
    before = page.session_state["_rules"]
    page.button(key="calibrate_now").click().run()
    pages.stopped(page, "calibration", after=lambda: len(toy_runs) == 10)
    assert not page.exception
    assert not page.error
    said = pages.infos(page)
    assert "stopped after 2 of 8 windows of report.txt" in said
    assert "No threshold was changed" in said
    assert page.session_state["_rules"] == before
    gated_runs(16)
    page.button(key="calibrate_now").click().run()
    pages.settled(page, "calibration")
    assert len(toy_runs) == 16
    assert page.session_state["_rules"] != before


def test_a_calibration_folds_its_settings_away_and_the_other_page_says_that_it_is_on_its_way(
    gated_runs: Allow, toy_runs: list[study.Request]
) -> None:
    page = pages.opened(**{"goal.tokens": "48"}).switch_page(EXIT_RULES).run()
    page.session_state["calibrate"] = True
    page.run()
    page.button(key="calibrate_now").click().run()
    assert not page.session_state["calibrate"]
    page.switch_page(TRADE_OFF).run()
    assert "A calibration is on its way" in pages.captions(page)
    assert page.progress
    page.button(key="cancel_calibration").click().run()
    pages.settled(page, "calibration")
    assert not page.exception
    assert "A calibration is on its way" not in pages.captions(page)


def test_a_sweep_is_mentioned_on_the_page_exit_rules_and_its_result_taken_over(
    gated_runs: Allow, toy_runs: list[study.Request]
) -> None:
    page = pages.opened(**{"text.tokens": "48"}).switch_page(TRADE_OFF).run()
    page.button(key="sweep").click().run()
    page.switch_page(EXIT_RULES).run()
    assert "A sweep is on its way" in pages.captions(page)
    gated_runs(8)
    pages.settled(page, "sweep")
    assert "A sweep is on its way" not in pages.captions(page)
    page.switch_page(TRADE_OFF).run()
    assert "Swept: report.txt, 8 windows" in pages.captions(page)


def test_a_cancelled_run_of_several_prompts_keeps_those_that_are_done(gated_runs: Allow, toy_runs: list[study.Request]) -> None:
    gated_runs(2)
    page = pages.opened(input="Upload")
    page.file_uploader(key="prompt_file").upload("mine.txt", b"The king\nThe queen\nThe door\n").run()
    before = page.session_state["_shown"]
    page.button(key="run").click().run()
    pages.wait_until(lambda: len(toy_runs) == 2)
    page.run().button(key="cancel").click().run()
    pages.finished(page)
    assert not page.error
    assert "stopped after 2 of 3 prompts. They are kept: press Run to go on" in pages.infos(page)
    assert page.session_state["_shown"] is before
    gated_runs(3)
    pages.pressed_run(page)
    assert len(toy_runs) == 3
    assert len(page.session_state["_shown"].run.trajectories) == 3
    assert "stopped" not in pages.infos(page)


@pytest.mark.parametrize("at", [0, 3])
def test_a_cancelled_live_run_shows_its_tokens_or_says_that_there_are_none(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    real = study.generate

    def generate(*given: Any, cancel: Callable[[], bool], progress: Any, **options: Any) -> study.Run:
        done = [0]

        def stop() -> bool:
            return done[0] >= at

        def tell(stage: str, fraction: float) -> None:
            done[0] = round(fraction * 12)
            progress(stage, fraction)

        return real(*given, cancel=stop, progress=tell, **options)

    monkeypatch.setattr(study, "generate", generate)
    page = pages.opened(prompt="The old king opened the little door", loops="4")
    pages.finished(page)
    page.switch_page(EXIT_RULES).run()
    page.button(key="run_live").click().run()
    pages.settled(page, "live")
    assert not page.exception
    assert not page.error
    if at:
        assert "as it was stopped" in pages.captions(page)
        assert np.isfinite(page.session_state["_live"].found.tokens)
    else:
        assert "before its first token was done" in pages.infos(page)
