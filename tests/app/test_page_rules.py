"""The exit rules in the sidebar: all can be marked, the paper's three are, and each has widgets for its own fields."""

from dataclasses import fields
from typing import Any, cast

from analysis.exit_rule import default_rules, exit_rules, exit_rules_by_family
from analysis.exits.kl import KLExit
from tests.app import pages


def test_every_rule_can_be_marked_and_the_papers_three_are() -> None:
    page = pages.opened()
    pills = page.pills(key="rules")
    kinds = exit_rules_by_family()
    assert pills.options == [kind.title for kind in kinds.values()]
    assert set(pills.value or ()) == set(default_rules())
    assert {rule.name for rule in page.session_state["_rules"]} == set(default_rules())


def test_all_rules_on_the_bundled_run_give_exits_or_the_option_that_records_what_is_missing() -> None:
    page = pages.opened()
    page.pills(key="rules").set_value(list(exit_rules())).run()
    page.switch_page(pages.VIEWS[2]).run()
    assert not page.exception
    assert not page.error
    assert {rule.name for rule in page.session_state["_rules"]} == set(exit_rules())
    table: Any = page.dataframe[-1].value
    needed = {"min_p_kl", "adapted_acceleration", "learned_gate"}
    assert {kind.title for name, kind in exit_rules().items() if name not in needed} <= set(table.columns)
    said = " ".join(element.value.replace("\\", "") for element in (*page.info, *page.warning, *page.caption))
    for words in ("--record min_p_kl", "--record adapted_input", "no learned exit gate"):
        assert words in said


def test_every_rule_has_a_widget_for_every_field() -> None:
    page = pages.opened()
    page.pills(key="rules").set_value(list(exit_rules())).run()
    assert not page.exception
    for name, kind in exit_rules().items():
        for field in fields(cast("Any", kind)):
            assert f"{name}.{field.name}" in page.session_state, f"{name}.{field.name}"


def test_a_link_restores_the_choices_of_a_rule() -> None:
    title = exit_rules()["kl"].title
    query = {"rules": title, "kl.patience": "3", "kl.scope": "Sequence", "kl.direction": "Reverse", "kl.first_loop": "Uniform"}
    page = pages.opened(**query, **{"kl.lens": "Logit"})
    assert not page.exception
    wanted = KLExit(patience=3, scope="sequence", direction="reverse", first_loop="uniform", lens="logit")
    assert page.session_state["_rules"] == (wanted,)


def test_words_of_a_choice_are_words() -> None:
    page = pages.opened(rules=exit_rules()["step_norm_difference"].title)
    offered = {option for box in page.selectbox for option in box.options}
    assert "Adapted input" in offered
