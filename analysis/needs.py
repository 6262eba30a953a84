"""What exit rules read beyond what every run has: the quantities and the lenses that a request must ask for."""

from collections.abc import Sequence

from analysis.exit_rule import ExitRule
from model.request import Lens


def quantities_of(rules: Sequence[ExitRule]) -> tuple[str, ...]:
    """Names for ``Request.quantities``, sorted."""
    return tuple(sorted({quantity for rule in rules for quantity in rule.asks}))


def lenses_of(rules: Sequence[ExitRule], *, last: bool) -> tuple[Lens, ...]:
    """Lenses for ``Request.lenses``: the coda's for the last looped block, else the logit lens, and any that a rule names."""
    logit = not last or any(getattr(rule, "lens", "") == "logit" for rule in rules)
    return (("logit",) if logit else ()) + (("coda",) if last else ())
