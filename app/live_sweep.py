"""``loopscope sweep --live``: the calibrated rules again, on runs whose loops really stop, beside the post hoc reading."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import study
from analysis.exit_rule import ExitRule
from analysis.goal import Reached
from analysis.live import Comparison, compare, live
from analysis.rule_columns import RULE_COLUMNS, rule_cells
from analysis.rule_name import condition, sign, titled
from analysis.sweep_table import Row, cell, short
from app.progress import ProgressBar
from app.windows import window

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


def lived(reached: Sequence[Reached], post_hoc: study.Run, block: int, folder: Path) -> tuple[Lived, ...]:
    """Every rule that met its goal, on the windows of ``post_hoc`` once more, live; each window is kept in ``folder``.

    Tokens leave ``block`` alone early, because that is where the thresholds come from. A rule that cannot be asked live is
    named with the reason and left out. A window that an earlier call has left is not run again.
    """
    chosen = [one.calibration.rule for one in reached if one.calibration is not None]
    request, trace = study.Request.from_json(post_hoc.request), post_hoc.trajectories[0].blocks[block]
    tokens = [trajectory.tokens for trajectory in post_hoc.trajectories]
    done: list[Lived] = []
    bar = ProgressBar(1)
    try:
        for number, rule in enumerate(chosen):
            words = f"{condition(rule)}, threshold {number + 1} of {len(chosen)}"
            show = _Counting(bar.prompt(0), words, tokens, share=(number / len(chosen), 1 / len(chosen)))
            try:
                found = _windows(request, rule, block, folder, show)
            except study.RequestError as error:
                sys.stderr.write(f"loopscope: {rule.name} is left out live: {error}\n")
                continue
            done.append(Lived(rule, compare(found, post_hoc, rule, blocks=(block,)), block, trace.name, trace.loops))
    finally:
        bar.close()
    return tuple(done)


def _windows(request: study.Request, rule: ExitRule, block: int, folder: Path, show: "_Counting") -> study.Run:
    """Every window live, those of an earlier call as they were; a run of other settings has another folder."""
    settings = hashlib.sha256(f"{request.key()} {rule!r} {block}".encode()).hexdigest()[:12]
    place = folder / f"{rule.name}-{settings}"
    found: list[study.Trajectory] = []
    for number in range(len(request.prompts)):

        def run(one: study.Request, number: int = number) -> study.Run:
            return live(one, rule, study.Decoding(), blocks=(block,), progress=show.window(number))

        found += window(request, number, place, run=run).trajectories
    return study.Run(request=request.to_json(), trajectories=tuple(found))


class _Counting:
    """Tells a progress bar the rule, the stage, and how many of the tokens of all windows are done.

    ``share`` is where its part of the bar begins, and how long that is.
    """

    def __init__(
        self, tell: Callable[[str, float], None], words: str, tokens: Sequence[int], *, share: tuple[float, float]
    ) -> None:
        self._tell, self._words, self._tokens, self._share = tell, words, tokens, share
        self._step = 1 if sys.stderr.isatty() else max(1, sum(tokens) // _LINES)

    def window(self, number: int) -> Callable[[str, float], None]:
        """What the live run of a window tells its progress to."""
        before, here, whole, begun = sum(self._tokens[:number]), self._tokens[number], sum(self._tokens), list[float]()

        def told(stage: str, fraction: float) -> None:
            if stage == "decoding":
                begun.append(fraction)  # the first is told before the first token; what comes after it grows with the tokens
                done = before + round(here * (fraction - begun[0]) / (1 - begun[0]))
                stage += f", {done if done == whole else done - done % self._step} of {whole} tokens"
                fraction = done / whole
            elif before:
                return  # the model is there already
            self._tell(f"{self._words}: {stage}", self._share[0] + self._share[1] * fraction)

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
