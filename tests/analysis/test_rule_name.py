"""What rules are called for people: titles beside names, and one form of the signs wherever a condition is written."""

import pytest

from analysis.chart import View
from analysis.exit_marks import rule_words
from analysis.exit_rule import exit_rules
from analysis.exit_table import exit_table
from analysis.exits.acceleration import AccelerationExit
from analysis.exits.argmax_stable import ArgmaxStableExit
from analysis.exits.oracle_cross_entropy import OracleCrossEntropyExit
from analysis.exits.step_norm import StepNormExit
from analysis.rule_columns import rule_cells
from analysis.rule_name import condition, titled
from tests import contracts
from tests.toys import toy_run, toy_trajectory


def test_a_title_stands_beside_the_name_unless_both_are_one_word() -> None:
    assert titled(StepNormExit()) == "step norm (step_norm)"
    assert titled(AccelerationExit()) == "acceleration"


def test_conditions_have_the_signs_of_formulas() -> None:
    assert condition(StepNormExit()) == "step norm < 0.87"
    assert condition(ArgmaxStableExit()) == "argmax stable ≥ 5 loops"
    assert condition(OracleCrossEntropyExit()) == "oracle: lowest cross-entropy ≤ 0 nats"


@pytest.mark.parametrize("name", list(exit_rules()))
def test_words_have_no_letters_for_signs_and_files_have_nothing_else(name: str) -> None:
    rule = exit_rules()[name]()
    words = rule_words(rule, contracts.with_all_quantities(toy_trajectory(blocks=1)), (0,))
    assert ">=" not in words
    assert "<=" not in words
    assert any(sign in words for sign in "<>≤≥")
    assert all(cell.isascii() for cell in rule_cells(rule))


def test_the_table_of_exits_says_which_rule_can_never_fire() -> None:
    view = View(run=toy_run(loops=8), rules=(StepNormExit(patience=20), AccelerationExit()))
    assert "step norm can never fire here: patience 20 exceeds the 8 loops." in exit_table(view).caption
    assert "never fire" not in exit_table(View(run=toy_run(loops=8), rules=(AccelerationExit(),))).caption
    one = exit_table(View(run=toy_run(loops=1), rules=(AccelerationExit(),))).caption
    assert "acceleration is undefined here: its first score is that of loop 2, and the run has 1 loop." in one
