"""``loopscope sweep --live``: the calibrated rules again, on runs whose loops really stop, beside the post hoc reading."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis import study
from analysis.exit_rule import ExitRule
from analysis.goal import Reached
from analysis.live import Comparison, compare, live
from analysis.rule_columns import RULE_COLUMNS, rule_cells
from analysis.rule_name import condition, sign, titled
from analysis.sweep_table import Row, cell, short
from app.progress import ProgressBar

_NUMBERS = ("live_cross_entropy", "post_hoc_cross_entropy", "full_depth", "tokens_per_second")
LIVE_HEADER: Row = (
    *RULE_COLUMNS,
    *("block", "lens", "mode", "loops", "tokens", "equal_exits", "live_loops", "post_hoc_loops"),
    *_NUMBERS,
)
_SUMMARY: Row = (
    "rule",
    "stops",
    "tokens",
    "equal exits",
    "loops live",
    "loops post hoc",
    "live",
    "post hoc",
    "full depth",
    "tokens/s",
)
_LINES = 4
"""Lines of progress per rule where there is no terminal: one per token would bury what they say."""


@dataclass(frozen=True)
class Lived:
    """A rule that ran live on ``block``, of K ``loops``, and how that stands beside the post hoc reading."""

    rule: ExitRule
    found: Comparison
    block: int
    name: str
    loops: int


def lived(reached: Sequence[Reached], post_hoc: study.Run, block: int) -> tuple[Lived, ...]:
    """Every rule that met its goal, on the windows of ``post_hoc`` once more, live.

    Tokens leave ``block`` alone early, because that is where the thresholds come from. A rule that cannot be asked live is
    named with the reason and left out.
    """
    chosen = [one.calibration.rule for one in reached if one.calibration is not None]
    request, trace = study.Request.from_json(post_hoc.request), post_hoc.trajectories[0].blocks[block]
    tokens = sum(trajectory.tokens for trajectory in post_hoc.trajectories)
    done: list[Lived] = []
    bar = ProgressBar(1)
    try:
        for number, rule in enumerate(chosen):
            words = f"{condition(rule)}, threshold {number + 1} of {len(chosen)}"
            show = _counting(bar.prompt(0), words, tokens, share=(number / len(chosen), 1 / len(chosen)))
            try:
                found = live(request, rule, study.Decoding(), blocks=(block,), progress=show)
            except study.RequestError as error:
                sys.stderr.write(f"loopscope: {rule.name} is left out live: {error}\n")
                continue
            done.append(Lived(rule, compare(found, post_hoc, rule, blocks=(block,)), block, trace.name, trace.loops))
    finally:
        bar.close()
    return tuple(done)


def _counting(
    tell: Callable[[str, float], None], words: str, tokens: int, *, share: tuple[float, float]
) -> Callable[[str, float], None]:
    """What a live run tells its progress to: the rule, the stage, and how many of the tokens are done.

    ``share`` is where its part of the bar begins, and how long that is.
    """
    step = 1 if sys.stderr.isatty() else max(1, tokens // _LINES)
    begun: list[float] = []

    def told(stage: str, fraction: float) -> None:
        said = f"{words}: {stage}"
        if stage == "decoding":
            begun.append(fraction)  # the first is told before the first token; what comes after it grows with the tokens
            done = round(tokens * (fraction - begun[0]) / (1 - begun[0]))
            said += f", {done if done == tokens else done - done % step} of {tokens} tokens"
        tell(said, share[0] + share[1] * fraction)

    return told


def live_rows(done: Sequence[Lived]) -> tuple[Row, ...]:
    """Rows under ``LIVE_HEADER``: numbers are exact, ``equal_exits`` is a share; undefined is empty."""
    return tuple(
        (
            *rule_cells(one.rule),
            *(one.name, one.found.lens, "live", str(one.loops), str(one.found.tokens), cell(one.found.agreement[one.block])),
            *(cell(one.found.live_loops[one.block]), cell(one.found.post_hoc_loops[one.block])),
            *(cell(number) for number in _numbers(one)),
        )
        for one in done
    )


def live_summary(done: Sequence[Lived]) -> tuple[Row, ...]:
    """The same to read on a terminal, with its header."""
    rows: list[Row] = [_SUMMARY]
    for one in done:
        stops = f"{sign(one.rule)} {one.rule.threshold:.4g}"
        exits = f"{one.found.agreement[one.block]:.1%}"
        loops = (short(one.found.live_loops[one.block]), short(one.found.post_hoc_loops[one.block]))
        rows.append((titled(one.rule), stops, str(one.found.tokens), exits, *loops, *(short(n) for n in _numbers(one))))
    return tuple(rows)


def _numbers(one: Lived) -> tuple[float, ...]:
    return (one.found.live, one.found.post_hoc, one.found.full_depth, one.found.tokens_per_second)
