"""``loopscope sweep``: exit rules over a text, compared at equal loops and equal quality, as table and charts."""

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from analysis import export, study
from analysis.caption import counted
from analysis.chart import ChartError, View, chart_builders
from analysis.comparison import EQUAL_TERMS, LAST_BLOCK, compare
from analysis.exit_rule import ExitRule, MissingReadout
from analysis.floor import floor_words
from analysis.goal import Budget, Goal, Reached, reach, read_goal
from analysis.rule_fields import never_words
from analysis.rule_name import titled
from analysis.sweep import Swept, sweep
from analysis.sweep_table import (
    CLOSE,
    HISTOGRAM_HEADER,
    SWEEP_HEADER,
    Row,
    histogram_rows,
    ranking_words,
    reached_rows,
    summary,
    sweep_rows,
)
from analysis.texts import check_words
from app.commands import STOPPED_BY_USER, aligned
from app.live_sweep import LIVE_HEADER, live_rows, live_summary, lived
from app.named import named_block
from app.options import OptionError, filled
from app.progress import ProgressBar
from app.requested import requested
from app.rules import chosen_rules
from app.windows import done, recorded, windows

_SHAPES = (("mean_loops", "cross_entropy"), ("mean_loops", "agreement"), ("flops", "cross_entropy"))
_FEWEST_WINDOWS = 8


def sweep_text(arguments: argparse.Namespace) -> int:
    """Run the windows of the text, sweep the rules, write tables and charts. Ctrl-C keeps the windows that are done."""
    for option, given in (("--held-out", arguments.held_out is not None), ("--live", arguments.live)):
        if given and arguments.calibrate is None:
            raise OptionError(f"{option} was given without --calibrate; give a goal too, such as --calibrate quality=0.005.")
    _formats(arguments)  # an odd word is refused before the work, not after
    goal = None if arguments.calibrate is None else read_goal(arguments.calibrate)
    card = _card(arguments)
    rules = _fitting(chosen_rules(arguments), card)
    block = _block(arguments, card)
    request = _request(arguments, rules, card, text=arguments.text, block=block)
    other = None if arguments.held_out is None else _request(arguments, rules, card, text=arguments.held_out, block=block)
    _check_table(arguments.out / "sweep.csv", rules, overwrite=arguments.overwrite)
    arguments.out.mkdir(parents=True, exist_ok=True)
    parts, held_parts = arguments.out / "parts", arguments.out / "held-out-parts"
    try:
        runs = tuple(recorded(request, parts, overwrite=arguments.overwrite))
        held = () if other is None else tuple(recorded(other, held_parts, overwrite=arguments.overwrite))
    except KeyboardInterrupt:
        count = done(parts) + done(held_parts)
        sys.stderr.write(f"loopscope: stopped; kept {count} windows, and the same command goes on from there.\n")
        return STOPPED_BY_USER
    rules = _answerable(rules, (*runs, *held), block)
    swept = sweep(rules, runs, block, points=arguments.points, flops=card.flops)
    _write_tables(arguments.out, swept, runs, flops=card.flops)
    _write_charts(arguments, swept, study.Run(request=request.to_json(), trajectories=runs))
    _say(swept, blocks=len(card.block_names), last=block == len(card.block_names) - 1)
    if goal is not None:
        reached = _calibrate(rules, runs, held, block=block, goal=goal, flops=card.flops)
        if arguments.live:
            asked = request if other is None else other
            return _live(arguments.out, reached, study.Run(request=asked.to_json(), trajectories=held or runs), block)
    return 0


def _fitting(rules: Sequence[ExitRule], card: study.Card) -> tuple[ExitRule, ...]:
    """The rules that this model can answer, as far as its card tells; the others are named before anything is run."""
    gateless = [rule.name for rule in rules if rule.family == "gate" and not card.has_gate]
    if len(gateless) == len(rules):
        raise OptionError(f"{', '.join(gateless)} needs a learned exit gate and {card.title} has none; choose other --rules.")
    for name in gateless:
        sys.stderr.write(f"loopscope: {name} is left out: {card.title} has no learned exit gate.\n")
    return tuple(rule for rule in rules if rule.name not in gateless)


def _check_table(path: Path, rules: Sequence[ExitRule], *, overwrite: bool) -> None:
    """Raise OptionError where an earlier table holds rules that the new one would not."""
    if overwrite or not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as file:
        held = {row.get("rule", "") for row in csv.DictReader(file)} - {"", "oracle"}
    lost = sorted(held - {rule.name for rule in rules})
    if lost:
        raise OptionError(
            f"{path} has results of {', '.join(lost)}, which --rules leaves out; name them too (windows that are done are not "
            "run again), give another --out, or add --overwrite to replace them."
        )


def _card(arguments: argparse.Namespace) -> study.Card:
    show = ProgressBar(1)  # the files of a large checkpoint take a while to hash
    try:
        return study.card(arguments.checkpoint, named=named_block(arguments), progress=show.prompt(0))
    finally:
        show.close()


def _block(arguments: argparse.Namespace, card: study.Card) -> int:
    last = len(card.block_names) - 1
    block = last if arguments.looped_block is None else int(arguments.looped_block)
    if not 0 <= block <= last:
        raise OptionError(f"--looped-block {block} was given; this model has looped blocks 0 to {last}.")
    return block


def _request(
    arguments: argparse.Namespace, rules: Sequence[ExitRule], card: study.Card, *, text: Path, block: int
) -> study.Request:
    """The resolved request of a text: statistics and readouts of its windows, no states. Raises MemoryLimit."""
    if arguments.points < 2:
        raise OptionError(f"--points {arguments.points} was given; give at least 2.")
    if arguments.tokens < 2 or (arguments.window is not None and arguments.window < 2):
        given = f"--window {arguments.window}" if arguments.tokens >= 2 else f"--tokens {arguments.tokens}"
        raise OptionError(f"{given} was given; a prediction needs at least 2 tokens.")
    if arguments.window is not None and arguments.window > card.context:
        raise OptionError(
            f"--window {arguments.window} was given and the model's context is {card.context} tokens; give at most that."
        )
    words = text.read_text(encoding="utf-8", errors="replace")
    check_words(words, text)
    ids, _ = study.tokenize(arguments.checkpoint, words, named=named_block(arguments))
    # Intervals need several windows, so a long context is not filled by a short text.
    length = arguments.window or min(card.context, max(2, arguments.tokens // _FEWEST_WINDOWS))
    request = study.resolve(
        requested(
            arguments,
            rules,
            prompts=windows(ids, tokens=arguments.tokens, length=length, text=text),
            record=study.Record(states=False),
            lenses=("coda",) if block == len(card.block_names) - 1 else ("logit",),
        )
    )
    needed = study.estimate(request.for_prompt(0))
    if not needed.fits:
        raise study.MemoryLimit(needed.sentence())
    if len(ids) < arguments.tokens:
        sys.stderr.write(f"loopscope: {text} has {len(ids)} tokens, fewer than --tokens {arguments.tokens}; all are used.\n")
    return request


def _answerable(rules: Sequence[ExitRule], runs: Sequence[study.Trajectory], block: int) -> tuple[ExitRule, ...]:
    """The rules that these runs can answer; the others are named with the reason."""
    found: list[ExitRule] = []
    for rule in rules:
        try:
            for trajectory in runs:
                rule.scores(trajectory, block)
        except MissingReadout as error:
            sys.stderr.write(f"loopscope: {rule.name} is left out: {error}\n")
        else:
            found.append(rule)
    if not found:
        raise OptionError("None of the rules can be evaluated on this model; choose others with --rules.")
    return tuple(found)


def _write_tables(folder: Path, swept: Sequence[Swept], runs: Sequence[study.Trajectory], *, flops: study.Flops | None) -> None:
    given = [compare(one.rule, runs, one.ground.block, flops=flops) for one in swept]
    _write(folder / "sweep.csv", SWEEP_HEADER, sweep_rows(swept, given))
    _write(folder / "histogram.csv", HISTOGRAM_HEADER, histogram_rows(given))


def _write(path: Path, header: Row, rows: Iterable[Row]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    sys.stdout.write(f"{path}\n")


def _write_charts(arguments: argparse.Namespace, swept: tuple[Swept, ...], run: study.Run) -> None:
    kind = chart_builders()["pareto"]
    view = View(run=run, block=swept[0].ground.block, swept=swept)
    for x, y in _SHAPES:
        try:
            chart = filled(kind, {"x": x, "y": y}, what="chart pareto").build(view)
        except ChartError as error:
            sys.stderr.write(f"loopscope: no chart of {y} against {x}: {error}\n")
            continue
        for form in _formats(arguments):
            data = export.export(chart, kind=form, venue=arguments.venue, request=run.request)
            name = export.file_name(chart, form, arguments.venue)  # pareto-VENUE.pdf, pareto.csv
            path = arguments.out / name.replace(chart.name, f"{chart.name}-{y}-{x}", 1)
            path.write_bytes(data)
            sys.stdout.write(f"{path}\n")


def _formats(arguments: argparse.Namespace) -> tuple[export.Kind, ...]:
    asked = tuple(form.strip() for form in arguments.format.split(","))
    for form in asked:
        if form not in export.KINDS:
            raise OptionError(f"--format {form} was given; choose from {', '.join(export.KINDS)}.")
    return cast("tuple[export.Kind, ...]", asked)


def _say(swept: Sequence[Swept], *, blocks: int, last: bool) -> None:
    ground = swept[0].ground
    sys.stdout.write(f"\n{aligned(summary(swept))}\n")
    sys.stdout.write(f"\n* at {CLOSE.words()}, as mean loops and as a share of full depth's operations.\n")
    sys.stdout.write(f"{ranking_words(swept)}\n{EQUAL_TERMS}\n")
    if blocks > 1:
        sys.stdout.write(f"{'' if last else f'Block {ground.name} has exits and no quality. '}{LAST_BLOCK}\n")
    for one in swept:
        loosest = one.points[0].rule if one.points else one.rule
        floor = floor_words(one.rule, one.floor, ground.provenance.dtype)
        for sentence in (*never_words(loosest, ground.trajectories[0], (ground.block,)), *([floor] if floor else [])):
            sys.stderr.write(f"loopscope: {sentence}\n")


def _calibrate(
    rules: Sequence[ExitRule],
    runs: Sequence[study.Trajectory],
    held: Sequence[study.Trajectory],
    *,
    block: int,
    goal: Goal,
    flops: study.Flops | None,
) -> Sequence[Reached]:
    found = [reach(rule, runs, block, goal=goal, held_out=held, flops=flops) for rule in rules]
    loops = runs[0].blocks[block].loops
    if isinstance(goal, Budget) and goal.mean_loops > loops:
        sys.stderr.write(
            f"loopscope: --calibrate budget={goal.mean_loops:g} was given and the run has {counted(loops, 'loop')}, so that "
            "every threshold meets it; give fewer.\n"
        )
    sys.stdout.write(f"\nCalibrated to {goal.words()}:\n{aligned(reached_rows(found))}\n")
    for one in found:
        if one.calibration is None:
            sys.stdout.write(f"{titled(one.rule)} has no threshold that meets it.\n")
    return found


def _live(folder: Path, reached: Sequence[Reached], post_hoc: study.Run, block: int) -> int:
    try:
        found = lived(reached, post_hoc, block, folder / "live-parts")
    except KeyboardInterrupt:
        sys.stderr.write("loopscope: stopped; kept the live windows that are done, and the same command goes on from there.\n")
        return STOPPED_BY_USER
    sys.stdout.write(f"\nLive, leaving this block alone early:\n{aligned(live_summary(found))}\n")
    _write(folder / "live.csv", LIVE_HEADER, live_rows(found))
    return 0
