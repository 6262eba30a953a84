"""The exit rules in the sidebar and their page: marks, widgets, quantiles, histogram, calibration, live."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# (tables of the page are pandas frames, which have no types)

from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
import pytest

from analysis import study
from analysis.exit_rule import default_rules, exit_rules, exit_rules_by_family, rule_scores
from analysis.exits.kl import KLExit
from tests.app import pages
from tests.toys import toy_run


def test_every_rule_can_be_marked_and_the_papers_three_are() -> None:
    page = pages.opened()
    pills = [one for one in page.pills if str(one.key).startswith("rules.")]
    assert [title for one in pills for title in one.options] == [kind.title for kind in exit_rules_by_family().values()]
    assert {name for one in pills for name in one.value or ()} == set(default_rules())
    assert {rule.name for rule in page.session_state["_rules"]} == set(default_rules())


def test_all_rules_on_the_bundled_run_give_exits_or_the_option_that_records_what_is_missing() -> None:
    page = pages.opened()
    pages.mark_rules(page, exit_rules())
    page.switch_page(pages.VIEWS[2]).run()
    assert not page.exception
    assert not page.error
    assert {rule.name for rule in page.session_state["_rules"]} == set(exit_rules())
    table: Any = next(one.value for one in page.dataframe if "position" in one.value.columns and "id" not in one.value.columns)
    needed = {"min_p_kl", "adapted_acceleration", "learned_gate"}
    assert {kind.title for name, kind in exit_rules().items() if name not in needed} <= set(table.columns)
    said = " ".join(element.value.replace("\\", "") for element in (*page.info, *page.warning, *page.caption))
    for words in ("--record min_p_kl", "--record adapted_input", "no learned exit gate"):
        assert words in said


def test_every_rule_has_a_widget_for_every_field() -> None:
    page = pages.opened()
    pages.mark_rules(page, exit_rules())
    assert not page.exception
    for name, kind in exit_rules().items():
        for field in fields(cast("Any", kind)):
            assert f"{name}.{field.name}" in page.session_state, f"{name}.{field.name}"


def test_an_older_link_with_all_rules_in_one_list_restores_them() -> None:
    title = exit_rules()["kl"].title
    query = {"rules": title, "kl.patience": "3", "kl.scope": "Sequence", "kl.direction": "Reverse", "kl.first_loop": "Uniform"}
    page = pages.opened(**query, **{"kl.lens": "Logit"})
    assert not page.exception
    wanted = KLExit(patience=3, scope="sequence", direction="reverse", first_loop="uniform", lens="logit")
    assert page.session_state["_rules"] == (wanted,)


def test_words_of_a_choice_are_words() -> None:
    page = pages.opened(**{"rules.step": exit_rules()["step_norm_difference"].title})
    offered = {option for box in page.selectbox for option in box.options}
    assert "Adapted input" in offered


def test_the_quantile_slider_moves_the_threshold_and_follows_it() -> None:
    page = pages.opened()
    trajectory = page.session_state["_shown"].run.trajectories[0]
    block = len(trajectory.blocks) - 1
    for name, level in (("step_norm", 40), ("kl", 75)):
        pages.level(page, name).set_value(level).run()
        assert not page.exception
        rule = next(one for one in page.session_state["_rules"] if one.name == name)
        scores = rule_scores(rule, trajectory, block)
        stopping = (scores[np.isfinite(scores)] < rule.threshold).mean()
        assert stopping == pytest.approx(level / 100, abs=0.011)
        assert pages.level(page, name).value == level
    page.select_slider(key="step_norm.threshold").set_value(1e-5).run()
    assert pages.level(page, "step_norm").value == 0
    page.select_slider(key="step_norm.threshold").set_value(100.0).run()
    assert pages.level(page, "step_norm").value == 100


def test_a_quantile_slider_that_was_replaced_moves_nothing_though_a_quick_browser_still_sends_it() -> None:
    page = pages.opened()
    replaced = pages.level(page, "step_norm")
    shown = pages.as_sent(replaced)
    page.select_slider(key="step_norm.threshold").set_value(0.16).run()
    assert pages.level(page, "step_norm").key != replaced.key
    pages.sent_again(page, shown)
    assert not page.exception
    assert page.select_slider(key="step_norm.threshold").value == 0.16


def test_a_threshold_between_the_steps_of_the_slider_comes_back_from_its_link() -> None:
    page = pages.opened()
    pages.level(page, "step_norm").set_value(33).run()
    threshold = page.select_slider(key="step_norm.threshold").value
    other = pages.opened(**{"step_norm.threshold": f"{threshold:.9g}"})
    assert other.select_slider(key="step_norm.threshold").value == threshold
    assert other.session_state["_rules"] == page.session_state["_rules"]
    odd = pages.opened(**{"step_norm.threshold": "many"})
    assert not odd.exception
    assert odd.select_slider(key="step_norm.threshold").value == default_rules()["step_norm"]().threshold


def test_run_records_what_the_marked_rules_read_also_from_a_link() -> None:
    page = pages.opened()
    page.switch_page("views/exit_rules.py").run()
    pages.mark_rules(page, ["min_p_kl", "adapted_acceleration", "step_norm"])
    assert any("did not record" in warning.value for warning in page.warning)
    assert "Changed since the run on screen" in pages.captions(page)
    pages.pressed_run(page)
    assert not page.exception
    assert not any("did not record" in warning.value for warning in page.warning)
    assert page.session_state["_shown"].request.quantities == ("adapted_input", "min_p_kl")
    link = pages.finished(pages.opened(**{"rules.divergence": exit_rules()["min_p_kl"].title}))
    assert not link.exception
    assert "min_p_kl" in link.session_state["_shown"].request.quantities


def test_the_page_counts_exits_says_on_which_terms_and_offers_both_scopes() -> None:
    page = pages.opened()
    page.switch_page("views/exit_rules.py").run()
    assert any(title.startswith("Tokens per exit loop") for title in pages.titles(page))
    said = pages.captions(page)
    assert "never at equal threshold" in said
    assert "for the last one only" in said
    for name in default_rules():
        assert page.segmented_control(key=f"{name}.scope").options == ["Token", "Sequence"]


@pytest.mark.parametrize("goal", ["Quality", "Budget"])
def test_calibrate_sets_the_sliders_and_reports_the_held_out_text(goal: str, toy_runs: list[study.Request]) -> None:
    page = pages.opened(goal=goal, **{"goal.loops": "4", "goal.percent": "50", "goal.tokens": "48"})
    page.switch_page("views/exit_rules.py").run()
    before = {rule.name: rule.threshold for rule in page.session_state["_rules"]}
    page.button(key="calibrate_now").click().run()
    pages.settled(page, "calibration")
    assert not page.exception
    assert not page.error
    assert len(toy_runs) == 16  # eight windows of each text
    assert {request.record.states for request in toy_runs} == {False}
    found = page.session_state["_calibration"].aimed
    assert {one.rule.name for one in found.reached} == set(before)
    for one in found.reached:
        assert one.calibration is not None
        assert one.goal.met_by(one.calibration)
        assert one.held_out is not None
    after = {rule.name: rule.threshold for rule in page.session_state["_rules"]}
    assert after == pytest.approx({one.rule.name: one.calibration.rule.threshold for one in found.reached}, rel=1e-8)
    assert after != before
    assert any("held-out loops" in one for one in pages.tables(page))


def test_a_calibration_that_fails_says_so_and_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise study.RequestError("The text is of no use; give another one.")

    page = pages.opened()
    page.switch_page("views/exit_rules.py").run()
    before = page.session_state["_rules"]
    monkeypatch.setattr("app.text.record", fail)
    page.button(key="calibrate_now").click().run()
    pages.settled(page, "calibration")
    assert "of no use" in pages.errors(page)
    assert page.session_state["_rules"] == before


def test_a_rule_runs_live_on_the_prompt_on_screen() -> None:
    page = pages.opened(prompt="The old king", loops="5")
    pages.finished(page)
    page.switch_page("views/exit_rules.py").run()
    page.button(key="run_live").click().run()
    pages.settled(page, "live")
    assert not page.exception
    assert not page.error
    lived = page.session_state["_live"]
    assert lived.found.tokens == page.session_state["_shown"].run.trajectories[0].tokens
    assert any(one.get("block") == ["h[1]", "h[2,3]", "h[4]"] for one in pages.tables(page))
    assert "tokens per second" in " ".join(one.value for one in page.markdown)
    page.select_slider(key="step_norm.threshold").set_value(1e-5).run()
    assert "run live again" in " ".join(one.value for one in page.info)


def test_a_live_run_folder_shows_what_really_ran_beside_the_rules(tmp_path: Any) -> None:
    made = toy_run(prompts=1, loops=8)
    trajectory = made.trajectories[0]
    ran = np.array([3, 8, 5, 2, 8])[: trajectory.tokens]
    blocks = tuple(_left_after(block, ran) for block in trajectory.blocks)
    lived = replace(trajectory, blocks=blocks, provenance=replace(trajectory.provenance, mode="live"))
    study.save(study.Run(made.request, (lived,)), tmp_path / "made")
    page = pages.opened(input="Run folder", folder=str(tmp_path / "made"))
    page.switch_page("views/exit_rules.py").run()
    assert not page.exception
    assert not page.error
    assert "This run is live" in pages.captions(page)
    table: Any = next(one.value for one in page.dataframe if "loops run, live" in one.value.columns)
    assert table["loops run, live"].tolist() == ran.tolist()
    page.switch_page("views/trade_off.py").run()
    assert not page.exception
    assert "compare rules post hoc" in " ".join(one.value for one in page.info)


def _left_after(block: Any, ran: np.ndarray) -> Any:
    """The block as a live run leaves it: nothing is known of a token after its last loop."""
    gone = np.arange(1, block.loops + 1)[:, None] > ran[None]

    def cut(values: np.ndarray) -> np.ndarray:
        if values.dtype.kind == "f":
            left = values.copy()
            left[gone] = np.nan
            return left
        return np.where(gone[..., None] if values.ndim == 3 else gone, -1, values)

    changed = {name: cut(getattr(block, name)) for name in ("state_norm", "step_norm", "step_cosine", "acceleration")}
    states = block.states.copy()
    states[1:][gone] = np.nan
    return replace(block, **changed, loops_run=ran, states=states, readouts={k: cut(v) for k, v in block.readouts.items()})


def test_a_threshold_below_the_noise_floor_is_named() -> None:
    page = pages.opened(**{"step_norm.threshold": "1e-06"})
    page.switch_page("views/exit_rules.py").run()
    assert "mostly rounding of float32" in " ".join(one.value for one in page.warning)
    page.select_slider(key="step_norm.threshold").set_value(0.5).run()
    assert "mostly rounding" not in " ".join(one.value for one in page.warning)


def test_calibration_on_the_text_of_a_sweep_holds_out_its_second_half(toy_runs: list[study.Request]) -> None:
    page = pages.opened(**{"text.tokens": "48", "goal": "Budget", "goal.loops": "4", "goal.text": "sweep"})
    page.switch_page("views/trade_off.py").run()
    page.button(key="sweep").click().run()
    pages.settled(page, "sweep")
    page.switch_page("views/exit_rules.py").run()
    page.selectbox(key="goal.text").set_value("sweep").run()
    page.button(key="calibrate_now").click().run()
    pages.settled(page, "calibration")
    assert not page.error
    assert len(toy_runs) == 8
    assert "first half of report.txt" in pages.captions(page)
    held = page.session_state["_calibration"].aimed.reached[0].held_out
    assert held is not None
    assert held.tokens == 4 * 5  # windows of toy tokens that have a next one


def test_a_run_folder_offers_neither_calibration_nor_a_live_run_and_says_why(tmp_path: Any) -> None:
    study.save(toy_run(prompts=1), tmp_path / "made")
    page = pages.opened(input="Run folder", folder=str(tmp_path / "made"))
    page.switch_page("views/exit_rules.py").run()
    assert not page.exception
    assert page.button(key="calibrate_now").disabled
    assert page.button(key="run_live").disabled
    assert "make a run in this session" in pages.captions(page)
