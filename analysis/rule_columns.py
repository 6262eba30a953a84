"""An exit rule as columns of a CSV file, every setting among them, so that the file says by itself what was asked."""

from dataclasses import fields
from typing import Any, Final, cast

from analysis.exit_rule import ExitRule

RULE_COLUMNS: Final = ("rule", "stops", "threshold", "patience", "minimum_loops", "scope", "options")
"""``stops`` is the stopping side of the threshold: ``<``, ``<=``, ``>`` or ``>=``. ``options`` are the rule's own fields."""


def rule_cells(rule: ExitRule) -> tuple[str, ...]:
    """The cells under ``RULE_COLUMNS``; the threshold reads back the same, options as ``lens=coda;direction=forward``."""
    own = [field.name for field in fields(cast("Any", rule)) if field.name not in RULE_COLUMNS]
    options = ";".join(f"{name}={getattr(rule, name)}" for name in own)
    settings = (repr(rule.threshold), str(rule.patience), str(rule.minimum_loops), rule.scope)
    return (rule.name, rule.stops, *settings, options)
