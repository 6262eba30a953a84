"""What most commands of the command line do: run, export, list."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

from analysis import study
from analysis.caption import counted, nonfinite_words
from analysis.chart import Camera, Chart, ChartBuilder, View, chart_builders
from analysis.exit_marks import rule_listing
from analysis.exit_rule import ExitRule
from analysis.place import checkpoint_in
from analysis.projection import projections
from analysis.prompts import parse_ids, read_prompts
from analysis.registry import first_sentence
from analysis.rule_fields import never_words
from analysis.statistic import statistics
from analysis.tables import overview, write_exits, write_statistics
from app.options import OptionError, filled, pairs
from app.progress import ProgressBar
from app.requested import requested
from app.rules import chosen_rules

STOPPED_BY_USER = 130


def run(arguments: argparse.Namespace) -> int:
    """Run every prompt, write run folder and tables, print where they are and what they say in short.

    Prompts run one by one (the noise does not depend on the company), so that Ctrl-C keeps those that are done.
    """
    rules = chosen_rules(arguments)
    request = _resolved(_request(arguments, rules))
    needed = study.estimate(request)
    if not needed.fits:
        raise study.MemoryLimit(needed.sentence())
    _check_out(arguments.out, overwrite=arguments.overwrite)
    fresh = not arguments.out.exists()
    arguments.out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be made is known before the work, not after
    show = ProgressBar(len(request.prompts))
    done: list[study.Trajectory] = []
    stopped = False
    try:
        for number in range(len(request.prompts)):
            done.extend(study.run(request.for_prompt(number), progress=show.prompt(number)).trajectories)
    except KeyboardInterrupt:
        stopped = True
    show.close()
    if not done:
        if fresh:
            arguments.out.rmdir()
        sys.stderr.write("loopscope: stopped before the first prompt was done; nothing was written.\n")
        return STOPPED_BY_USER
    _write_run(request, done, rules, folder=arguments.out)
    if stopped:
        sys.stderr.write(f"loopscope: stopped; kept {len(done)} of {len(request.prompts)} prompts.\n")
    return STOPPED_BY_USER if stopped else 0


def _check_out(folder: Path, *, overwrite: bool) -> None:
    """Raise OptionError where a run in this folder would replace another unasked, or lie among a checkpoint's files."""
    taken = checkpoint_in(folder)
    if taken is not None:
        raise OptionError(f"--out {folder} holds a checkpoint ({taken}); name a folder of its own for the run.")
    if (folder / "run.json").exists() and not overwrite:
        raise OptionError(f"--out {folder} holds a run already; name another folder, or add --overwrite to replace it.")


def _resolved(request: study.Request) -> study.Request:
    """The request with the digests of its files, which takes a while where they are large."""
    show = ProgressBar(1)
    try:
        return study.resolve(request, progress=show.prompt(0))
    finally:
        show.close()


def _write_run(request: study.Request, done: Sequence[study.Trajectory], rules: Sequence[ExitRule], *, folder: Path) -> None:
    kept = replace(request, prompts=request.prompts[: len(done)])
    result = study.Run(request=kept.to_json(), trajectories=tuple(done))
    study.save(result, folder)
    write_statistics(result, folder / "statistics.csv")
    missing = write_exits(result, rules, folder / "exits.csv")
    for sentence in (*missing, *_disabled(result, rules), *_cut(result, request), *_non_finite(result)):
        sys.stderr.write(f"loopscope: {sentence}\n")
    for name in ("run.json", "statistics.csv", "exits.csv"):
        sys.stdout.write(f"{folder / name}\n")
    for table in overview(result, rules):
        if len(table) > 1:
            sys.stdout.write(f"\n{aligned(table)}\n")


def _disabled(result: study.Run, rules: Sequence[ExitRule]) -> Iterator[str]:
    """One sentence per rule and reason why it can never fire with so few loops."""
    first = result.trajectories[0]
    for rule in rules:
        yield from never_words(rule, first, range(len(first.blocks)))


def _cut(result: study.Run, request: study.Request) -> Iterator[str]:
    """One sentence per prompt that is shorter than the positions whose states were asked for."""
    wanted = request.record.positions if request.record.states else None
    for number, trajectory in enumerate(result.trajectories):
        if wanted is not None and wanted[1] > trajectory.tokens:
            yield (
                f"--tokens {wanted[0]}:{wanted[1]} was given and prompt {number} has {counted(trajectory.tokens, 'token')}; "
                f"states of positions {wanted[0]} to {trajectory.tokens - 1} were stored."
            )


def _non_finite(result: study.Run) -> Iterator[str]:
    """One sentence per prompt whose states hold Inf or NaN."""
    for number, trajectory in enumerate(result.trajectories):
        words = nonfinite_words(trajectory, range(len(trajectory.blocks)))
        if words:
            yield f"prompt {number}: {words[0]}{f' (and {len(words) - 1} more)' if len(words) > 1 else ''}"


def _request(arguments: argparse.Namespace, rules: Sequence[ExitRule]) -> study.Request:
    record = study.Record(every=arguments.every, positions=arguments.tokens, states=not arguments.statistics_only)
    return requested(arguments, rules, prompts=_prompts(arguments), record=record, lenses=())


def _prompts(arguments: argparse.Namespace) -> tuple[study.Prompt, ...]:
    if arguments.prompts is not None:
        return read_prompts(arguments.prompts.name, arguments.prompts.read_bytes())
    if arguments.ids is not None:
        return (study.Prompt(ids=parse_ids("--ids", arguments.ids)),)
    return tuple(study.Prompt(text=text) for text in arguments.prompt)


def export(arguments: argparse.Namespace) -> int:
    """Write a chart of a run folder in the formats asked for, and print the files' paths."""
    from analysis import export as exporter

    if arguments.venue not in exporter.VENUES:
        raise OptionError(f"--venue {arguments.venue} was given; choose one of {', '.join(exporter.VENUES)}.")
    kinds = [kind.strip() for kind in arguments.format.split(",")]
    for kind in kinds:
        if kind not in exporter.KINDS:
            raise OptionError(f"--format {kind} was given; choose from {', '.join(exporter.KINDS)}.")
    run_there = study.load(arguments.run)
    chart = _chart(arguments, run_there)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        data = exporter.export(chart, kind=cast("exporter.Kind", kind), venue=arguments.venue, request=run_there.request)
        path = arguments.out / exporter.file_name(chart, kind, arguments.venue)
        path.write_bytes(data)
        sys.stdout.write(f"{path}\n")
    for sentence in (*chart.warnings, *_settings_in_the_way(arguments, run_there)):
        sys.stderr.write(f"loopscope: {sentence}\n")
    return 0


def _settings_in_the_way(arguments: argparse.Namespace, run_there: study.Run) -> Iterator[str]:
    """One sentence per rule that can never fire, where rules were given: a chart need not show the default ones."""
    given = (arguments.rules, arguments.threshold, arguments.patience, arguments.minimum_loops, arguments.rule)
    trajectory = run_there.trajectories[int(arguments.prompt)]
    for rule in chosen_rules(arguments) if any(given) else ():
        yield from never_words(rule, trajectory, (int(arguments.block),))


def _chart(arguments: argparse.Namespace, run_there: study.Run) -> Chart:
    kinds = chart_builders()
    if arguments.chart not in kinds:
        raise OptionError(f"--chart {arguments.chart} was given; choose one of {', '.join(kinds)}.")
    view = View(
        run=run_there,
        prompt=arguments.prompt,
        token=arguments.token,
        block=arguments.block,
        loop=arguments.loop,
        rules=chosen_rules(arguments),
        others=_others(arguments, run_there),
    )
    loops = max(block.loops for block in view.trajectory.blocks)
    if view.loop is not None and not 1 <= view.loop <= loops:
        raise OptionError(f"--loop {view.loop} was given; this run has loops 1 to {loops}.")
    chart = _builder(arguments, kinds[arguments.chart]).build(view)
    if arguments.camera is None:
        return chart
    if chart.camera is None:
        raise OptionError(f"--camera was given, but this chart is flat; 3-D charts take it (chart {chart.name} with --dims 3).")
    return chart.seen_from(Camera(*arguments.camera))


def _builder(arguments: argparse.Namespace, kind: type[ChartBuilder]) -> ChartBuilder:
    """The chart's builder, its fields from --statistic, --dims, --projection and --set (``projection.seed`` as well)."""
    what = f"chart {arguments.chart}"
    options = pairs("--set", arguments.set)
    inner = {name.partition(".")[2]: options.pop(name) for name in list(options) if name.startswith("projection.")}
    if arguments.statistic is not None:
        own = {field.name for field in fields(cast("Any", kind))}
        options["statistics" if "statistics" in own else "statistic"] = arguments.statistic
    if arguments.dims is not None:
        options["dims"] = arguments.dims
    name: str | None = options.pop("projection", None) or arguments.projection
    if name is None:
        if inner:
            raise OptionError(f"--set projection.{next(iter(inner))} was given without --projection; name the projection too.")
        return filled(kind, options, what=what)
    known = projections()
    if name not in known:
        raise OptionError(f"--projection {name} was given; choose one of {', '.join(known)}.")
    return filled(kind, options, what=what, ready={"projection": filled(known[name], inner, what=f"projection {name}")})


def _others(arguments: argparse.Namespace, run_there: study.Run) -> tuple[tuple[str, study.Run], ...]:
    """Runs to compare with: those that were named, else what comes with the demo where the prompt is the demo's."""
    if arguments.other:
        return tuple((label, study.load(Path(folder))) for label, folder in pairs("--other", arguments.other).items())
    try:
        bundled = study.bundled_request().to_json()["prompts"]
    except study.CheckpointError:
        return ()
    return study.bundled_others() if run_there.request.get("prompts") == bundled else ()


def listing(arguments: argparse.Namespace) -> int:
    """Print names with one line each, of one section or of all."""
    sections: Mapping[str, Callable[[], Mapping[str, str]]] = {
        "rules": rule_listing,
        "statistics": lambda: {name: first_sentence(type(kind)) for name, kind in statistics().items()},
        "readouts": study.readouts,
        "projections": lambda: {name: first_sentence(kind) for name, kind in projections().items()},
        "charts": lambda: {name: first_sentence(kind) for name, kind in chart_builders().items()},
        "architectures": study.architectures,
    }
    asked = sections if arguments.section is None else {arguments.section: sections[arguments.section]}
    for number, (section, names) in enumerate(asked.items()):
        indent = "" if arguments.section else "  "
        if not arguments.section:
            sys.stdout.write(f"{'' if number == 0 else chr(10)}{section}\n")
        found = names()
        width = max((len(name) for name in found), default=0)
        for name, sentence in found.items():
            sys.stdout.write(f"{indent}{name:<{width}}  {sentence}\n")
    return 0


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines of text in columns; the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
