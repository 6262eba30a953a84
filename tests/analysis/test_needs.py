"""What rules ask for: with it they have scores, without it they say how to get it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from analysis import study
from analysis.exit_rule import ExitRule, MissingReadout, exit_rules
from analysis.needs import lenses_of, quantities_of
from tests.model.toy_networks import write_tiny


def variants() -> list[ExitRule]:
    """Every rule, and those with a choice that makes them read something else."""
    found: list[Any] = [kind() for kind in exit_rules().values()]
    changes = {"direction": "reverse", "first_loop": "uniform", "measured_from": "adapted_input"}
    found += [replace(rule, **{field: value}) for rule in found for field, value in changes.items() if hasattr(rule, field)]
    return cast("list[ExitRule]", found)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def test_rules_have_scores_where_a_run_was_asked_for_what_they_read(tiny: Path) -> None:
    rules = [rule for rule in variants() if rule.name != "learned_gate"]
    prompt = (study.Prompt("Hi there"),)
    plain = study.run(study.Request(str(tiny), prompt, (4,))).trajectories[0]
    asked = study.run(study.Request(str(tiny), prompt, (4,), quantities=quantities_of(rules))).trajectories[0]
    for rule in rules:
        assert np.isfinite(rule.scores(asked, 1)[-1, :-1]).all(), rule
        if rule.asks:
            with pytest.raises(MissingReadout, match=f"--record {rule.asks[0]}"):
                rule.scores(plain, 1)
        else:
            rule.scores(plain, 1)


def test_needs_of_several_rules_are_each_there_once() -> None:
    rules = variants()
    assert quantities_of(rules) == ("adapted_input", "kl_reverse", "kl_uniform", "min_p_kl")
    assert quantities_of(rules[:1]) == rules[0].asks
    assert lenses_of((exit_rules()["kl"](),), last=True) == ("coda",)
    assert lenses_of((exit_rules()["kl"](),), last=False) == ("logit",)
