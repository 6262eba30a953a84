"""Choose an exit rule's threshold on a text, so that it spends a given number of loops per token.

`python -m analysis.calibrate` prints what the default thresholds of the raw norms come from: on the bundled
demo and calibrate.txt they spend as many loops as the KL rule does at its published threshold. Rules are
comparable at equal loops, never at equal threshold.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float64

from analysis import study
from analysis.exit_rule import NEVER, ExitRule, default_lens, default_rules, exit_rules, exits, rule_scores
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class Calibration:
    """A chosen threshold and what it gives on the calibration text.

    Attributes:
        cross_entropy: nats per token when every token exits where the rule fires, full depth where it never does.
        full_depth: nats per token after all loops. mean_loops: loops per token, K where the rule never fires.
    """

    rule: ExitRule
    cross_entropy: float
    full_depth: float
    mean_loops: float
    never: float


def at_exit(rule: ExitRule, trajectories: Sequence[Trajectory], block: int) -> Calibration:
    """What a rule with its present threshold gives, post hoc, over every token that has a next one.

    The readout is the coda's where it was recorded, else the logit lens'. Post hoc: later tokens still see
    full-depth states of earlier ones.
    """
    losses: list[Float64[np.ndarray, " tokens"]] = []
    full: list[Float64[np.ndarray, " tokens"]] = []
    loops: list[Float64[np.ndarray, " tokens"]] = []
    never: list[Float64[np.ndarray, " tokens"]] = []
    for trajectory in trajectories:
        trace = trajectory.blocks[block]
        lens = default_lens(trajectory, block, "log_probability_next")
        log_p = trace.readouts[lens, "log_probability_next"].astype(np.float64)
        found = exits(rule, trajectory, block)
        exit_loop = np.where(found.loop == NEVER, trace.loops, found.loop)
        scored = ~np.isnan(log_p[-1])
        losses.append(-log_p[exit_loop - 1, np.arange(trajectory.tokens)][scored])
        full.append(-log_p[-1][scored])
        loops.append(exit_loop[scored].astype(np.float64))
        never.append((found.loop == NEVER)[scored].astype(np.float64))
    parts = [float(np.concatenate(part).mean()) for part in (losses, full, loops, never)]
    return Calibration(rule, parts[0], parts[1], parts[2], parts[3])


def calibrate(rule: ExitRule, trajectories: Sequence[Trajectory], block: int, *, mean_loops: float) -> Calibration:
    """The threshold, among 400 quantiles of the rule's own scores, whose mean loops come closest to a budget.

    Mean loops never rise as the threshold gets looser, so the search is a bisection.
    """
    scores = np.concatenate([rule_scores(rule, trajectory, block).ravel() for trajectory in trajectories])
    candidates = np.unique(np.nanquantile(scores, np.linspace(0, 1, 400)))
    strict_first = candidates if rule.stops in ("<", "<=") else candidates[::-1]
    tried: dict[int, Calibration] = {}

    def at(index: int) -> Calibration:
        if index not in tried:
            changed = cast("ExitRule", replace(cast("Any", rule), threshold=float(strict_first[index])))
            tried[index] = at_exit(changed, trajectories, block)
        return tried[index]

    low, high = 0, len(strict_first) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle).mean_loops > mean_loops else (low, middle)
    return min((at(low), at(high)), key=lambda found: abs(found.mean_loops - mean_loops))


def main() -> None:
    """Print every rule at its default threshold, and at the one that spends as many loops as the KL rule's default."""
    parser = argparse.ArgumentParser(description="Calibrate the exit rules' thresholds on a text.")
    parser.add_argument("--checkpoint", default="demo")
    parser.add_argument("--text", type=Path, default=Path("assets/corpus/calibrate.txt"))
    parser.add_argument("--rules", default=",".join(default_rules()), help="names, with commas between them")
    parser.add_argument("--record", default="", help="quantities that these rules need, with commas between them")
    parser.add_argument("--loops", type=int, default=16)
    parser.add_argument("--windows", type=int, default=32)
    arguments = parser.parse_args()
    context = study.card(arguments.checkpoint).context
    ids, _ = study.tokenize(arguments.checkpoint, arguments.text.read_text(encoding="utf-8"))
    prompts = tuple(study.Prompt(ids=ids[i * context : (i + 1) * context]) for i in range(arguments.windows))
    quantities = tuple(name for name in arguments.record.split(",") if name)
    request = study.Request(
        arguments.checkpoint, prompts, (arguments.loops,), record=study.Record(states=False), quantities=quantities
    )
    trajectories = study.run(request).trajectories
    block = len(trajectories[0].blocks) - 1
    budget = at_exit(exit_rules()["kl"](), trajectories, block).mean_loops
    for name in arguments.rules.split(","):
        kind = exit_rules()[name]
        default = at_exit(kind(), trajectories, block)
        for label, found in (("default", default), ("calibrated", calibrate(kind(), trajectories, block, mean_loops=budget))):
            sys.stdout.write(
                f"{name} {label}: threshold {found.rule.threshold:.3g}, {found.mean_loops:.2f} loops, "
                f"{found.cross_entropy:.4f} nats, full depth {found.full_depth:.4f}, never {found.never:.1%}\n"
            )


if __name__ == "__main__":
    main()
