"""The live part of the page Exit rules: the model writes on with exits, and the page shows where that leads elsewhere."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from analysis import study
from tests.app import pages


def lived(**query: str) -> AppTest:
    """The page after a live run on a short prompt."""
    page = pages.opened(prompt="The old king", loops="4", **query)
    pages.finished(page)
    page.switch_page(pages.VIEWS[2]).run()
    page.button(key="run_live").click().run()
    return pages.settled(page, "live")


def test_new_tokens_are_written_with_exits_beside_full_depth() -> None:
    page = lived(**{"live.tokens": "6", "step_norm.threshold": "12.5"})
    assert not page.exception
    assert not page.error
    given = page.session_state["_shown"].run.trajectories[0].tokens
    table: Any = next(one.value for one in page.dataframe if "with exits" in one.value.columns)
    assert table["position"].tolist() == [str(given + i) for i in range(6)]
    assert list(table.columns)[2:5] == ["loops h[1]", "loops h[2,3]", "loops h[4]"]
    assert {int(n) for n in table["loops h[4]"]} <= {2, 3, 4}
    assert min(int(n) for n in table["loops h[4]"]) < 4
    said = " ".join(one.value.replace("\\", "") for one in page.markdown)
    assert "With exits: “" in said
    same = table["with exits"].tolist() == table["at full depth"].tolist()
    assert ("is the same" if same else "They part at token") in said
    assert page.session_state["_live"].found.tokens == given + 6
    page.number_input(key="live.tokens").set_value(5).run()
    assert "run live again" in pages.infos(page)


def test_the_text_at_full_depth_is_what_the_model_says_without_exits() -> None:
    page = lived(**{"live.tokens": "4", "step_norm.threshold": "12.5"})
    request = page.session_state["_shown"].request
    plain = study.generate(request, study.Decoding(new_tokens=4)).trajectories[0]
    assert page.session_state["_live"].text.full == plain.labels[-4:]


def test_new_tokens_end_where_the_context_does_whatever_a_link_says() -> None:
    page = pages.opened(**{"live.tokens": "9999"})
    page.switch_page(pages.VIEWS[2]).run()
    assert not page.exception
    tokens = page.session_state["_shown"].run.trajectories[0].tokens
    value, room = field(page)
    assert value <= room == study.card("demo").context - tokens
    page.number_input(key="live.tokens").set_value(room).run()
    page.text_area(key="prompt").set_value("The old king went home. " * 6).run()
    pages.pressed_run(page)
    assert not page.exception
    value, less = field(page)
    assert value <= less < room


def field(page: AppTest) -> tuple[int, int]:
    """New tokens as they stand, and at most."""
    found = page.number_input(key="live.tokens")
    assert found.value is not None
    assert found.max is not None
    return int(found.value), int(found.max)


def test_a_live_run_is_mentioned_on_the_page_trade_off(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def generate(*_: Any, cancel: Any, **__: Any) -> study.Run:
        pages.wait_until(cancel)
        held.append(True)
        raise study.Cancelled("The run was cancelled.")

    monkeypatch.setattr(study, "generate", generate)
    page = pages.opened()
    page.switch_page(pages.VIEWS[2]).run()
    page.button(key="run_live").click().run()
    page.switch_page(pages.VIEWS[3]).run()
    assert "A live run is on its way" in pages.captions(page)
    page.button(key="cancel_live").click().run()
    pages.settled(page, "live")
    assert held
    assert "A live run is on its way" not in pages.captions(page)
