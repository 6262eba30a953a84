"""Choose an exit rule's threshold on a text, so that it spends a given number of loops per token.

`python -m analysis.calibrate` prints what the default thresholds of the raw norms come from: on the bundled
demo and calibrate.txt they spend as many loops as the KL rule does at its published threshold. Rules are
comparable at equal loops, never at equal threshold.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis import study
from analysis.comparison import Compared, ComparisonError, compare
from analysis.exit_rule import ExitRule, default_rules, exit_rules
from analysis.goal import Near, reach
from analysis.texts import check_words
from model.capture.trajectory import Trajectory


def calibrate(rule: ExitRule, trajectories: Sequence[Trajectory], block: int, *, mean_loops: float) -> Compared:
    """The threshold, among 400 quantiles of the rule's own scores, whose mean loops come closest to a budget.

    Raises ComparisonError when the rule is undefined on every token.
    """
    found = reach(rule, trajectories, block, goal=Near(mean_loops)).calibration
    if found is None:
        raise ComparisonError(f"{rule.title} is undefined on every token of the text; give more tokens or more loops.")
    return found


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
    words = arguments.text.read_text(encoding="utf-8")
    check_words(words, arguments.text)
    ids, _ = study.tokenize(arguments.checkpoint, words)
    prompts = tuple(study.Prompt(ids=ids[i * context : (i + 1) * context]) for i in range(arguments.windows))
    quantities = tuple(name for name in arguments.record.split(",") if name)
    request = study.Request(
        arguments.checkpoint, prompts, (arguments.loops,), record=study.Record(states=False), quantities=quantities
    )
    trajectories = study.run(request).trajectories
    block = len(trajectories[0].blocks) - 1
    budget = compare(exit_rules()["kl"](), trajectories, block).mean_loops
    for name in arguments.rules.split(","):
        kind = exit_rules()[name]
        default = compare(kind(), trajectories, block)
        for label, found in (("default", default), ("calibrated", calibrate(kind(), trajectories, block, mean_loops=budget))):
            sys.stdout.write(
                f"{name} {label}: threshold {found.rule.threshold:.3g}, {found.mean_loops:.2f} loops, "
                f"{found.cross_entropy:.4f} nats, full depth {found.full_depth:.4f}, never {found.never:.1%}\n"
            )


if __name__ == "__main__":
    main()
