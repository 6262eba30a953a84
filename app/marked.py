"""The exit rules in the sidebar: which are marked, family by family, and a threshold in value and in quantiles for each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, get_args

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.exit_rule import ExitRule, ExitRuleClass, Family, default_rules, exit_rules, exit_rules_by_family
from analysis.score_levels import HIGHEST, level_of, threshold_at
from analysis.thresholds import applied, at_default, steps_with
from app import cache, fields, link, state
from app.markdown import literal

_FAMILY_WORDS: Final[Mapping[Family, str]] = {
    "step": "Step norm",
    "acceleration": "Acceleration",
    "divergence": "Divergence",
    "prediction": "Prediction",
    "confidence": "Confidence",
    "gate": "Learned gate",
    "reference": "For reference",
}
_OLD_QUERY: Final = "rules"
"""Links from when all rules stood in one list."""


def rules(*, opened: bool) -> None:
    """Draw the rules and remember those that are marked. ``opened`` unfolds them."""
    _follow_old_link()
    with st.expander("Exit rules", expanded=opened):
        with st.popover("Choose rules", icon=":material/checklist:", width="stretch", key="choose_rules"):
            st.caption("Marked at first: the three that the two-scale paper compares.")
            names = [name for family in get_args(Family) for name in _marked(family)]
        places = {name: st.container() for name in exit_rules_by_family()}  # a rule keeps its place whatever else is marked
        state.keep_rules(tuple(_settings(exit_rules()[name], places[name]) for name in names))


def apply(rule: ExitRule, threshold: float) -> None:
    """Mark a rule and set its threshold; before the sidebar is drawn, as in a callback."""
    key = _key(rule.family)
    held = state.get(key)
    marked = list(_defaults(rule.family) if held is None else held)
    state.put(key, marked if rule.name in marked else [*marked, rule.name])
    state.put(f"{rule.name}.threshold", applied(rule, threshold))


def _key(family: Family) -> str:
    return f"rules.{family}"


def _of(family: Family) -> dict[str, ExitRuleClass]:
    return {name: kind for name, kind in exit_rules_by_family().items() if kind.family == family}


def _defaults(family: Family) -> list[str]:
    return [name for name, kind in default_rules().items() if kind.family == family]


def _marked(family: Family) -> list[str]:
    kinds = _of(family)
    if not kinds:
        return []
    chosen = st.pills(
        _FAMILY_WORDS[family],
        list(kinds),
        selection_mode="multi",
        default=_defaults(family),
        format_func=lambda name: kinds[name].title,
        key=_key(family),
        bind="query-params",
    )
    return [name for name in kinds if name in chosen]


def _follow_old_link() -> None:
    titles = link.every(_OLD_QUERY)
    if not titles:
        return
    for family in get_args(Family):
        state.put(_key(family), [name for name, kind in _of(family).items() if kind.title in titles])
    link.drop(_OLD_QUERY)


def _settings(kind: ExitRuleClass, place: DeltaGenerator) -> ExitRule:
    """Sliders and numbers of one rule, made from its own fields, and the rule that they describe."""
    with place, st.container(key=f"rule_{kind.name}", gap="small"):
        st.markdown(f"**{kind.title}** &nbsp; {literal(kind.formula)}", help=f"{kind.source}. Post hoc.")
        quantile = st.container()
        steps = steps_with(kind, state.threshold_of(kind.name))
        rule: ExitRule = fields.instance(kind, prefix=kind.name, ladders={"threshold": steps}, across=2)
        with quantile:
            _quantile(rule)
        return rule


@dataclass(frozen=True)
class _Basis:
    """What a quantile slider stands on: the scores and the threshold. Another basis makes another slider.

    Its value is never set from here, and a slider that has been replaced moves nothing any more: a browser that is quick to
    press sends back what it showed before, and either would count as a move.
    """

    number: int
    scores: tuple[object, ...]
    threshold: float
    level: int


def _quantile(rule: ExitRule) -> None:
    """A slider over the rule's own scores in the run on screen. It moves the threshold, and follows it."""
    current, block = state.shown(), state.selection()[2]
    levels = None if current is None else cache.levels(current.identity, current.run, rule, block=block)
    if current is None or levels is None:
        return  # the run lacks what the rule reads, as the charts say
    kept, scores = f"_{rule.name}_level", (current.identity, block, at_default(rule))
    held: _Basis | None = state.get(kept)
    if held is None or (held.scores, held.threshold) != (scores, rule.threshold):
        held = _Basis(0 if held is None else held.number + 1, scores, rule.threshold, level_of(rule, levels, rule.threshold))
        state.put(kept, held)
    basis, key = held, f"{rule.name}.level.{held.number}"

    def follow() -> None:
        latest: _Basis | None = state.get(kept)
        if latest is None or latest.number != basis.number:
            return
        threshold = applied(rule, threshold_at(levels, int(state.get(key))))
        state.put(f"{rule.name}.threshold", threshold)
        state.put(kept, replace(basis, threshold=threshold))

    with st.container(key=f"{rule.name}.level"):
        st.slider(
            "Scores that stop",
            0,
            HIGHEST,
            basis.level,
            format="%d%%",
            key=key,
            on_change=follow,
            help="The threshold as a quantile of the rule's own scores: all tokens and loops of the selected block, in the "
            "run on screen. The link holds the value.",
        )
