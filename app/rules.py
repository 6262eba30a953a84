"""The exit rules that a command line names: which are evaluated, with which thresholds and other fields."""

import argparse
from collections.abc import Collection

from analysis.exit_rule import ExitRule, ExitRuleClass, default_rules, exit_rules
from app.options import OptionError, filled, pairs


def chosen_rules(arguments: argparse.Namespace) -> tuple[ExitRule, ...]:
    """The exit rules of --rules, with the thresholds, patiences, minimum loops and other fields that were given."""
    kinds = _named_rules(arguments.rules)
    given: dict[str, dict[str, str]] = {name: {} for name in kinds}
    for field in ("threshold", "patience", "minimum_loops"):
        option = f"--{field.replace('_', '-')}"
        for name, value in pairs(option, getattr(arguments, field)).items():
            _check_chosen(name, given, option=f"{option} {name}={value}")
            given[name][field] = value
    for place, value in pairs("--rule", arguments.rule).items():
        name, _, field = place.partition(".")
        _check_chosen(name, given, option=f"--rule {place}={value}")
        if field in given[name]:
            raise OptionError(f"The {field} of {name} was given twice; give it once.")
        given[name][field] = value
    return tuple(filled(kind, given[name], what=f"rule {name}") for name, kind in kinds.items())


def _named_rules(names: str | None) -> dict[str, ExitRuleClass]:
    """Rule classes by name: the default ones without --rules, every one for ``all``."""
    if names is None:
        return default_rules()
    known = exit_rules()
    if names.strip() == "all":
        return known
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in known:
            raise OptionError(f"--rules {name} was given; choose from {', '.join(known)}, or all.")
    return {name: known[name] for name in asked}


def _check_chosen(name: str, chosen: Collection[str], *, option: str) -> None:
    """Raise OptionError for an option of a rule that is unknown or not evaluated."""
    if name in chosen:
        return
    known = exit_rules()
    if name in known:
        raise OptionError(f"{option} was given, and {name} is not evaluated; name it with --rules {','.join(chosen)},{name}.")
    raise OptionError(f"{option} was given; the rules are {', '.join(known)}.")
