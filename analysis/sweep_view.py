"""A sweep of what a view shows: its rules over their thresholds on its run, those left out that the run cannot answer."""

from analysis.chart import ChartError, View
from analysis.comparison import LAST_BLOCK
from analysis.exit_rule import ExitRule, MissingReadout
from analysis.sweep import Swept, sweep
from model.card import Flops


def sweep_view(view: View, *, flops: Flops | None = None) -> tuple[tuple[Swept, ...], tuple[str, ...]]:
    """The view's rules over their thresholds on its run's last block, and a sentence for each that the run cannot answer.

    Raises ChartError where no rule is left, ComparisonError for runs that cannot be put side by side.
    """
    if not view.rules:
        raise ChartError("No exit rule is chosen; choose at least one.")
    last = len(view.trajectory.blocks) - 1
    read = [trajectory for trajectory in view.run.trajectories if trajectory.blocks[last].readouts]
    trajectories = read or view.run.trajectories  # a prompt of which nothing was decoded has no quality to compare
    rules: list[ExitRule] = []
    missing: list[str] = []
    for rule in view.rules:
        try:
            for trajectory in trajectories:
                rule.scores(trajectory, last)
        except MissingReadout as error:
            missing.append(f"{rule.title}: {error}")
        else:
            rules.append(rule)
    if not rules:
        raise ChartError(" ".join(missing))
    if view.block != last:
        missing.insert(0, f"Shown for block {view.trajectory.blocks[last].name}. {LAST_BLOCK}")
    return sweep(rules, trajectories, last, flops=flops), tuple(missing)
