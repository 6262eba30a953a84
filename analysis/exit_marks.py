"""Exit rules on a chart: where each fires in a block, and the words that say with which settings and lens."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
from jaxtyping import Float64

from analysis.caption import counted
from analysis.exit_rule import (
    NEVER,
    ExitRule,
    ExitRuleClass,
    Exits,
    MissingReadout,
    default_lens,
    exit_rules,
    exits_from_scores,
    rule_scores,
)
from analysis.registry import first_sentence
from analysis.rule_name import condition
from model.capture.trajectory import Trajectory

_SAID = ("threshold", "patience", "minimum_loops", "scope", "lens")


@dataclass(frozen=True)
class RuleExits:
    """One rule on one block of one trajectory. ``size`` is that of its marks: rules that agree lie inside each other."""

    rule: ExitRule
    scores: Float64[np.ndarray, "loops tokens"]
    exits: Exits
    size: float


def rule_exits(trajectory: Trajectory, block: int, rules: Sequence[ExitRule]) -> tuple[tuple[RuleExits, ...], tuple[str, ...]]:
    """Where the rules fire, post hoc, and a sentence for each rule that this run cannot answer."""
    found: list[RuleExits] = []
    missing: list[str] = []
    ring = min(4.5, 18.0 / max(1, len(rules) - 1))  # marks of many rules lie closer, and never fill the picture
    for number, rule in enumerate(rules):
        try:
            scores = rule_scores(rule, trajectory, block)
        except MissingReadout as error:
            missing.append(f"{rule.title}: {error}")
            continue
        size = 6.0 + ring * (len(rules) - 1 - number)
        found.append(RuleExits(rule=rule, scores=scores, exits=exits_from_scores(rule, scores), size=size))
    return tuple(found), tuple(missing)


def lens_of(rule: ExitRule, trajectory: Trajectory, block: int) -> str:
    """The lens whose readout the rule reads on this block; "" for rules on norms. Raises MissingReadout."""
    if not rule.quantity:
        return ""
    named = str(getattr(rule, "lens", "default"))
    return default_lens(trajectory, block, rule.quantity) if named == "default" else named


def rule_words(rule: ExitRule, trajectory: Trajectory, blocks: Sequence[int]) -> str:
    """``step norm < 0.1 (patience 1, from loop 2)``, with unit and, per block, lens."""
    lenses = _lens_words(rule, trajectory, blocks)
    settings = f"patience {rule.patience}, from loop {rule.minimum_loops}{_choices(rule)}{lenses}"
    return f"{condition(rule)} ({settings})"


def _choices(rule: ExitRule) -> str:
    """The settings beyond threshold, patience, minimum loops and lens that were changed."""
    scope = ", mean over the sequence" if rule.scope == "sequence" else ""
    own = [f for f in fields(cast("Any", rule)) if f.name not in _SAID and getattr(rule, f.name) != f.default]
    return scope + "".join(f", {f.name} {getattr(rule, f.name)}".replace("_", " ") for f in own)


def _lens_words(rule: ExitRule, trajectory: Trajectory, blocks: Sequence[int]) -> str:
    by_lens: dict[str, list[str]] = {}
    for g in blocks:
        try:
            by_lens.setdefault(lens_of(rule, trajectory, g), []).append(trajectory.blocks[g].name)
        except MissingReadout:
            continue  # said in a warning of its own
    for own in ("", "gate", "block"):  # norms, and what no lens decodes
        by_lens.pop(own, None)
    if len(by_lens) == 1:
        return f", {next(iter(by_lens))} lens"
    return "".join(f", {lens} lens on {' and '.join(names)}" for lens, names in by_lens.items())


def rule_listing() -> dict[str, str]:
    """Every rule by name, in one line: what it does, formula, default and source."""
    return {name: _listed(kind) for name, kind in exit_rules().items()}


def _listed(kind: ExitRuleClass) -> str:
    rule = kind()
    unit = f" {rule.unit}" if rule.unit else ""
    causal = "" if rule.causal else " Not causal."
    default = f"{rule.threshold:g}{unit}, patience {rule.patience}"
    return f"{first_sentence(kind)}{causal} {rule.formula}; default τ = {default}; {rule.source}"


def exit_words(found: RuleExits, position: int) -> str:
    """What the rule does with one token: ``exits after 6 loops``, ``never exits`` or ``is undefined``."""
    loop = int(found.exits.loop[position])
    if loop != NEVER:
        return f"exits after {counted(loop, 'loop')}"
    return "never exits" if found.exits.defined[position] else "is undefined"
