"""What the headline command compares: models, rules, budgets, texts, and thresholds at which the rules meet at equal loops."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from analysis import study
from analysis.candidates import exit_loops, score_quantiles, with_threshold
from analysis.exit_rule import NEVER, ExitRule, exit_rules
from analysis.exits.kl_difference import KLDifferenceExit
from analysis.exits.step_norm_difference import StepNormDifferenceExit
from analysis.live import live_exit
from model.capture.trajectory import BlockTrace, Trajectory
from model.decoding import Exit
from model.running import Moment

CORPUS = Path("assets/corpus")
TRAINED = Path("tests/data")

FIXED, FULL = "fixed_k", "full depth"
PAPER = ("step_norm", "kl", "acceleration")
VARIANTS = {"step_norm": "step_norm_difference", "kl": "kl_difference", "acceleration": "adapted_acceleration"}
"""The rule of the paper, and what the public code of its authors has in its place."""

_CANDIDATES = 400
_OFF = 0.25


@dataclass(frozen=True)
class Subject:
    """A model with the texts it is measured on.

    Attributes:
        name, checkpoint: for a person, and as it is opened. loops: K of every block. budgets: mean loops to meet at.
        calibrate, report: windows of ids; the last id of a window is what follows its last scored token.
    """

    name: str
    checkpoint: str
    loops: int
    budgets: tuple[int, ...]
    calibrate: tuple[tuple[int, ...], ...]
    report: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Setting:
    """A rule as it runs live: one threshold per block, so that it spends the budget in each.

    ``rules`` is empty at full depth.
    """

    name: str
    budget: int
    rules: tuple[ExitRule, ...]

    def exit_(self) -> Exit | None:
        """The question for a live run; None runs all loops. Raises RequestError for a rule that is not causal."""
        if not self.rules:
            return None
        asked = [live_exit(rule, blocks=(block,)) for block, rule in enumerate(self.rules)]

        def leaves(moment: Moment) -> bool:
            return asked[moment.block.index].leaves(moment)

        return Exit(leaves, "; ".join(one.words for one in asked))


def subjects(*, demo_windows: int, demo_tokens: int, trained_tokens: int) -> tuple[Subject, ...]:
    """The bundled demo on calibrate.txt and report.txt, and the small trained models of the tests.

    Those have 16 held-out windows; the first 8 are for the thresholds, the last 8 are measured.
    """
    text = {name: (CORPUS / f"{name}.txt").read_text(encoding="utf-8") for name in ("calibrate", "report")}
    ids = {name: study.tokenize("demo", words)[0] for name, words in text.items()}
    demo = Subject(
        name="demo",
        checkpoint="demo",
        loops=16,
        budgets=(3, 4, 6, 8),
        calibrate=_spread(ids["calibrate"], windows=32, length=demo_tokens + 1),
        report=_spread(ids["report"], windows=demo_windows, length=demo_tokens + 1),
    )
    return (
        demo,
        _trained("huginn-real", loops=16, budgets=(3, 4, 6, 8), tokens=trained_tokens),
        _trained("nanoloop-real", loops=8, budgets=(3, 4, 6), tokens=trained_tokens),
        _trained("ouro-real", loops=4, budgets=(3,), tokens=trained_tokens),
    )


def _spread(ids: Sequence[int], *, windows: int, length: int) -> tuple[tuple[int, ...], ...]:
    """Windows that begin at equal distances over the whole text."""
    starts = np.linspace(0, len(ids) - length, windows).astype(int).tolist()
    return tuple(tuple(ids[at : at + length]) for at in starts)


def _trained(name: str, *, loops: int, budgets: tuple[int, ...], tokens: int) -> Subject:
    with np.load(TRAINED / name / "golden.npz", allow_pickle=False) as arrays:
        rows = [tuple(int(i) for i in row[: tokens + 1]) for row in arrays["eval_ids"]]
    half = len(rows) // 2
    return Subject(name, str(TRAINED / name), loops, budgets, calibrate=tuple(rows[:half]), report=tuple(rows[half:]))


def compared_rules() -> tuple[ExitRule, ...]:
    """Fixed depth, the paper's three rules, and the variants of its authors' code, each per token as a live run needs it."""
    known = exit_rules()
    return (
        known[FIXED](),
        *(known[name]() for name in PAPER),
        StepNormDifferenceExit(measured_from="adapted_input"),
        KLDifferenceExit(direction="reverse", lens="logit"),
        known[VARIANTS["acceleration"]](),
    )


def request_for(
    subject: Subject, windows: Sequence[tuple[int, ...]], rules: Collection[ExitRule], *, record_all: bool
) -> study.Request:
    """The request for windows of a subject. ``record_all``: what any of the rules reads, and not only what it asks live."""
    reads = any(rule.quantity.startswith("kl") for rule in rules)
    adapted = any(rule.name in ("step_norm_difference", "adapted_acceleration") for rule in rules)
    return study.Request(
        checkpoint=subject.checkpoint,
        prompts=tuple(study.Prompt(ids=window) for window in windows),
        loops=(subject.loops,),
        lenses=("logit", "coda") if reads else ("coda",),
        record=study.Record(states=False),
        quantities=(*(("adapted_input",) if adapted else ()), *(("kl_reverse",) if record_all else ())),
    )


def settings(subject: Subject, trajectories: Sequence[Trajectory], rules: Sequence[ExitRule]) -> tuple[Setting, ...]:
    """Every rule at every budget, and full depth. A rule that misses a budget by more than 0.25 loops is left out there.

    ``trajectories`` are full-depth runs of the calibration windows.
    """
    found: list[Setting] = [Setting(FULL, subject.loops, ())]
    blocks = range(len(trajectories[0].blocks))
    for rule in rules:
        scores = [scores_alone(rule, trajectories, block) for block in blocks]
        for budget in subject.budgets:
            met = [meet(rule, one, budget=budget) for one in scores]
            chosen = tuple(one for one in met if one is not None)
            if len(chosen) == len(met):
                found.append(Setting(rule.name, budget, chosen))
    return tuple(found)


def meet(rule: ExitRule, scores: Float64[np.ndarray, "loops tokens"], *, budget: int) -> ExitRule | None:
    """The rule with the threshold whose mean loops come closest to the budget; None where none comes within 0.25."""
    thresholds = score_quantiles(rule, scores, points=_CANDIDATES)
    if not len(thresholds):
        return None
    loops = exit_loops(rule, scores, thresholds)
    off = np.abs(np.where(loops == NEVER, len(scores), loops).mean(axis=1) - budget)
    best = int(off.argmin())
    return with_threshold(rule, float(thresholds[best])) if off[best] <= _OFF else None


def scores_alone(rule: ExitRule, trajectories: Sequence[Trajectory], block: int) -> Float64[np.ndarray, "loops tokens"]:
    """Scores of every token as if it were alone, which is how a live run asks: a sum over positions has one term."""
    columns = [
        rule.scores(_alone(trajectory, token), block)
        for trajectory in trajectories
        for token in range(trajectory.tokens - 1)  # the last has no next token, so that it is not measured either
    ]
    return np.concatenate(columns, axis=1)


def _alone(trajectory: Trajectory, token: int) -> Trajectory:
    return replace(
        trajectory,
        token_ids=trajectory.token_ids[token : token + 1],
        labels=trajectory.labels[token : token + 1],
        blocks=tuple(_column(trace, token) for trace in trajectory.blocks),
    )


def _column(trace: BlockTrace, token: int) -> BlockTrace:
    at = slice(token, token + 1)
    return replace(
        trace,
        loops_run=trace.loops_run[at],
        nonfinite_from=trace.nonfinite_from[at],
        state_norm=trace.state_norm[:, at],
        step_norm=trace.step_norm[:, at],
        step_cosine=trace.step_cosine[:, at],
        acceleration=trace.acceleration[:, at],
        drift_in=trace.drift_in[at],
        readouts={key: array[:, at] for key, array in trace.readouts.items()},
    )
