"""The page Trade-off: a text is swept once, can be cancelled, outlives a page switch, and a point becomes a threshold."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from streamlit.testing.v1 import AppTest

from analysis import study
from analysis.exit_rule import default_rules, exit_rules
from analysis.thresholds import applied
from app import state
from app.components.viewer import Click
from tests.app import pages
from tests.toys import toy_run

PAGE = "views/trade_off.py"


def on_page(**query: str) -> AppTest:
    """A fresh session on this page."""
    return pages.opened(**query).switch_page(PAGE).run()


def swept(page: AppTest) -> AppTest:
    """Press Sweep and wait for its end."""
    page.button(key="sweep").click().run()
    return pages.settled(page, "sweep")


def test_before_a_sweep_the_prompt_on_screen_is_compared() -> None:
    page = on_page()
    assert not page.exception
    assert not page.error
    assert pages.titles(page) == ["Exit rules at equal cost, block h\\[4\\]", "Chosen point", "Rules at equal loops"]
    assert "never at equal threshold" in pages.captions(page)
    assert "Press Sweep" in pages.captions(page)


def test_a_text_is_swept_in_windows_once_and_outlives_a_page_switch(toy_runs: list[study.Request]) -> None:
    page = swept(on_page(**{"text.tokens": "48"}))
    assert not page.exception
    assert not page.error
    assert len(toy_runs) == 8
    assert {len(request.prompts[0].ids or ()) for request in toy_runs} == {6}
    assert {(request.lenses, request.record.states, request.seed) for request in toy_runs} == {(("coda",), False, 0)}
    assert "Swept: report.txt, 8 windows" in pages.captions(page)
    page.switch_page(pages.VIEWS[2]).run()
    page.select_slider(key="step_norm.threshold").set_value(0.5).run()
    page.switch_page(PAGE).run()
    assert "Swept: report.txt, 8 windows" in pages.captions(page)
    swept(page)
    assert len(toy_runs) == 8
    assert pages.counter(page) == "runs: 0"


def test_an_own_text_is_uploaded_and_named_in_the_link(toy_runs: list[study.Request]) -> None:
    page = on_page(**{"text.tokens": "16"})
    page.selectbox(key="text").set_value("upload").run()
    assert page.button(key="sweep").disabled
    assert "upload a .txt" in page.info[0].value.replace("\\", "")
    page.file_uploader(key="text_upload").upload("mine.txt", b"The queen went to the wood, and the king went home. " * 4).run()
    assert str(page.query_params["text_file"]).find("mine.txt") >= 0
    swept(page)
    assert "Swept: mine.txt" in pages.captions(page)
    assert toy_runs
    page.switch_page(pages.VIEWS[0]).run()
    page.switch_page(PAGE).run()
    assert not page.button(key="sweep").disabled


@pytest.mark.parametrize(
    ("data", "said"), [(b"\x00\x01", "no text"), (b"\xff\xfe", "not UTF-8"), (b"", "holds nothing"), (b" \n", "white space")]
)
def test_a_file_that_is_no_text_is_refused_in_one_sentence(data: bytes, said: str) -> None:
    page = on_page(text="Upload")
    page.file_uploader(key="text_upload").upload("good.txt", b"The queen went to the wood.").run()
    assert not page.button(key="sweep").disabled
    page.file_uploader(key="text_upload").upload("mine.txt", data).run()
    assert not page.exception
    assert said in pages.errors(page)
    assert not page.info
    assert page.button(key="sweep").disabled


def test_a_link_with_a_text_of_its_own_asks_for_it() -> None:
    page = on_page(text="Upload", text_file="mine.txt (0123456789ab)")
    assert "mine.txt" in page.info[0].value.replace("\\", "")
    assert page.button(key="sweep").disabled


def test_a_sweep_can_be_cancelled_and_what_was_there_stays(
    toy_runs: list[study.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = swept(on_page(**{"text.tokens": "48"}))
    before = page.session_state["_sweep"]

    def wait(request: study.Request, *, cancel: Callable[[], bool], **_: Any) -> study.Run:
        while not cancel():
            time.sleep(0.01)
        raise study.Cancelled("The run was cancelled.")

    monkeypatch.setattr(study, "run", wait)
    page.number_input(key="text.tokens").set_value(64).run()
    page.button(key="sweep").click().run()
    assert page.progress
    assert page.button(key="sweep").disabled
    page.button(key="cancel_sweep").click().run()
    pages.settled(page, "sweep")
    assert not page.error
    assert "stopped before a window of report.txt was complete" in pages.infos(page)
    assert page.session_state["_sweep"] is before
    assert not page.button(key="sweep").disabled


def test_what_goes_wrong_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> study.Run:
        raise ZeroDivisionError("a detail")

    page = on_page(**{"text.tokens": "48"})
    monkeypatch.setattr(study, "run", fail)
    swept(page)
    assert not page.exception
    assert "ZeroDivisionError" in pages.errors(page)
    assert "a detail" not in pages.errors(page)


def test_a_click_on_a_point_shows_its_settings_and_applies_them_on_the_other_page() -> None:
    page = on_page()
    with patch("streamlit.session_state", page.session_state):
        state.select(Click(None, None, "h[4]", None, "acceleration", 3))
    page.run()
    assert page.selectbox(key="point.rule").value == "acceleration"
    assert page.number_input(key="point").value == 3
    table = next(one for one in pages.tables(page) if "threshold" in one)
    page.button(key="apply_point").click().run()
    assert not page.exception
    assert "acceleration now stops" in page.success[0].value
    page.switch_page(pages.VIEWS[2]).run()
    assert any(title.startswith("Tokens per exit loop") for title in pages.titles(page))
    rules = {rule.name: rule for rule in page.session_state["_rules"]}
    assert set(rules) == set(default_rules())
    assert rules["acceleration"].threshold == pytest.approx(float(table["threshold"][0]), rel=1e-5)
    assert rules["acceleration"].threshold == applied(rules["acceleration"], rules["acceleration"].threshold)
    page.run()
    assert page.session_state["_rules"] == tuple(rules.values())


def test_a_point_of_a_longer_curve_is_brought_back_into_range() -> None:
    page = on_page(**{"point": "3", "point.rule": "acceleration"})
    assert (page.selectbox(key="point.rule").value, page.number_input(key="point").value) == ("acceleration", 3)
    with patch("streamlit.session_state", page.session_state):
        state.select(Click(None, None, "h[4]", None, "kl", 500))
    page.run()
    assert not page.exception
    assert page.selectbox(key="point.rule").value == "kl"
    assert page.number_input(key="point").value in range(33)
    pages.mark_rules(page, ["acceleration", "step_norm"])
    assert not page.exception
    assert page.selectbox(key="point.rule").value in ("acceleration", "step_norm")


def test_without_a_rule_or_a_model_the_page_says_what_to_do(tmp_path: Path) -> None:
    page = on_page()
    pages.mark_rules(page, ())
    assert not page.exception
    assert "choose at least one" in page.info[0].value
    study.save(toy_run(prompts=2), tmp_path / "made")
    page = on_page(input="Run folder", folder=str(tmp_path / "made"))
    assert not page.exception
    assert page.button(key="sweep").disabled
    assert "make a run in this session" in page.info[0].value


def test_an_oracle_shows_its_settings_and_has_nothing_to_apply() -> None:
    page = on_page()
    pages.mark_rules(page, ["acceleration", *(name for name, kind in exit_rules().items() if not kind.causal)])
    for name, kind in exit_rules().items():
        if kind.causal:
            continue
        with patch("streamlit.session_state", page.session_state):
            state.select(Click(None, None, "h[4]", None, name, 0))
        page.run()
        assert not page.exception
        assert page.selectbox(key="point.rule").value == name
        assert any("threshold" in one for one in pages.tables(page))
        assert not [button for button in page.button if button.key == "apply_point"]
        assert "no threshold to apply" in pages.captions(page)
    page.selectbox(key="point.rule").set_value("acceleration").run()
    assert page.button(key="apply_point")
    assert "no threshold to apply" not in pages.captions(page)


def test_the_summary_names_rules_by_their_titles() -> None:
    table = next(one for one in pages.tables(on_page()) if "gain over fixed k" in one)
    assert set(table["rule"]) == {kind.title for kind in default_rules().values()}
