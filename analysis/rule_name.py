"""What an exit rule is called for a person: its title beside the name that options take, and when it stops, with ≤ and ≥."""

from collections.abc import Mapping
from types import MappingProxyType

from analysis.exit_rule import ExitRule, Side

_SIGNS: Mapping[Side, str] = MappingProxyType({"<": "<", "<=": "≤", ">": ">", ">=": "≥"})
"""As formulas write them. CSV has the plain letters of ``ExitRule.stops``."""


def titled(rule: ExitRule) -> str:
    """``step norm (step_norm)``: as charts say it, then as options and tables do; the title alone where both are one word."""
    return rule.title if rule.title == rule.name else f"{rule.title} ({rule.name})"


def sign(rule: ExitRule) -> str:
    """The stopping side of the threshold as a sign."""
    return _SIGNS[rule.stops]


def condition(rule: ExitRule, *, digits: int = 4) -> str:
    """``step norm < 0.87``, ``argmax stable ≥ 5 loops``: when it stops."""
    unit = f" {rule.unit}" if rule.unit else ""
    return f"{rule.title} {sign(rule)} {rule.threshold:.{digits}g}{unit}"
