"""``loopscope sweep --live``: the calibrated rules again, on runs whose loops really stop, beside the post hoc reading."""

import math
import sys
from collections.abc import Sequence

from analysis import study
from analysis.exit_rule import ExitRule
from analysis.goal import Reached
from analysis.live import Comparison, compare, live
from analysis.sweep_table import Row, short
from app.progress import ProgressBar

LIVE_HEADER: Row = (
    "rule",
    "threshold",
    "tokens",
    "equal_exits",
    "live_loops",
    "post_hoc_loops",
    "live_cross_entropy",
    "post_hoc_cross_entropy",
    "full_depth",
    "tokens_per_second",
)


def live_rows(reached: Sequence[Reached], post_hoc: study.Run, block: int) -> tuple[Row, ...]:
    """One row under ``LIVE_HEADER`` per rule that met its goal: the windows of ``post_hoc`` once more, live.

    Tokens leave ``block`` alone early, because that is where the thresholds come from. A rule that cannot be asked live is
    named with the reason and left out.
    """
    chosen = [one.calibration.rule for one in reached if one.calibration is not None]
    request = study.Request.from_json(post_hoc.request)
    rows: list[Row] = []
    show = ProgressBar(len(chosen))
    try:
        for number, rule in enumerate(chosen):
            try:
                found = live(request, rule, study.Decoding(), blocks=(block,), progress=show.prompt(number))
            except study.RequestError as error:
                sys.stderr.write(f"loopscope: {rule.name} is left out live: {error}\n")
                continue
            rows.append(_row(rule, compare(found, post_hoc, rule, blocks=(block,)), block))
    finally:
        show.close()
    return tuple(rows)


def _row(rule: ExitRule, found: Comparison, block: int) -> Row:
    return (
        rule.name,
        f"{rule.threshold:.4g}",
        str(found.tokens),
        f"{found.agreement[block]:.1%}",
        short(found.live_loops[block]),
        short(found.post_hoc_loops[block]),
        _nats(found.live),
        _nats(found.post_hoc),
        _nats(found.full_depth),
        short(found.tokens_per_second),
    )


def _nats(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else ""
