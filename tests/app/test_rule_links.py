"""Links with thresholds: what older sweeps left in them still loads, what no score can have is one sentence on the page."""

import pytest

from analysis.exit_rule import exit_rules
from tests.app import pages


def linked(name: str, threshold: str) -> tuple[float, list[str]]:
    """The threshold that the page has from a link, and the sentences that it shows as errors."""
    kind = exit_rules()[name]
    page = pages.opened(**{f"rules.{kind.family}": kind.title, f"{name}.threshold": threshold})
    assert not page.exception
    (rule,) = (rule for rule in page.session_state["_rules"] if rule.name == name)
    return rule.threshold, [error.value for error in page.error]


@pytest.mark.parametrize(("name", "threshold"), [("fixed_k", "16.0000019"), ("oracle_cross_entropy", "-1.40129846e-45")])
def test_a_threshold_of_an_older_link_is_taken(name: str, threshold: str) -> None:
    assert linked(name, threshold) == (float(threshold), [])


@pytest.mark.parametrize(("name", "threshold"), [("kl", "-1"), ("fixed_k", "2.5"), ("top_probability", "7.0")])
def test_an_odd_threshold_is_a_sentence_and_the_default_stands(name: str, threshold: str) -> None:
    found, (sentence,) = linked(name, threshold)
    assert found == exit_rules()[name]().threshold
    assert sentence.startswith(f"The threshold of {name} is {float(threshold):g}; ")
