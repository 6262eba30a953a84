"""The two tables of a run, as CSV: every value of every statistic, and where every exit rule fires."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from analysis.exit_marks import lens_of
from analysis.exit_rule import ExitRule, MissingReadout, exits
from analysis.rule_columns import RULE_COLUMNS, rule_cells
from analysis.rule_name import sign, titled
from analysis.statistic import Statistic, pooled, statistics
from model.capture.trajectory import Run, Trajectory

Row = tuple[str, ...]

STATISTICS_HEADER: Final[Row] = ("prompt", "position", "token", "block", "loop", "statistic", "value")
EXITS_HEADER: Final[Row] = (
    *("prompt", "position", "token", "block", "block_name"),
    *RULE_COLUMNS,
    *("lens", "mode", "loops", "exit_loop"),
)


def write_statistics(run: Run, path: Path) -> None:
    """Write ``statistics.csv``: one row per prompt, token, block, statistic and loop.

    ``prompt``, ``position`` and ``block`` count from 0, ``loop`` from 1 (empty for hand-off statistics). Values
    are exact: reading them back gives the same float64. A value that is undefined has a row whose value is empty.
    """
    _write(path, STATISTICS_HEADER, statistic_rows(run))


def write_exits(run: Run, rules: Sequence[ExitRule], path: Path) -> tuple[str, ...]:
    """Write ``exits.csv``: one row per prompt, token, block and rule.

    ``lens`` is the one that the rule reads by, empty for norms; ``mode`` says whether the run was ``post hoc`` or ``live``;
    ``loops`` is K. ``exit_loop`` is a number of loops, ``never``, or empty where the rule is undefined. Returns one sentence
    for each reason why a rule could not be evaluated at all (a readout that the run did not record).
    """
    missing: dict[str, None] = {}  # a dict keeps the order in which reasons came up, each once
    _write(path, EXITS_HEADER, exit_rows(run, rules, missing))
    return tuple(missing)


def statistic_rows(run: Run) -> Iterator[Row]:
    """The rows of ``write_statistics`` without the header."""
    for number, trajectory in enumerate(run.trajectories):
        for block in range(len(trajectory.blocks)):
            for statistic in statistics().values():
                yield from _values(number, trajectory, block, statistic=statistic)


def exit_rows(run: Run, rules: Sequence[ExitRule], missing: dict[str, None]) -> Iterator[Row]:
    """The rows of ``write_exits``; reasons why a rule could not be evaluated become keys of ``missing``."""
    for number, trajectory in enumerate(run.trajectories):
        for block in range(len(trajectory.blocks)):
            for rule in rules:
                lens = ""
                try:
                    cells, lens = exits(rule, trajectory, block).words(), lens_of(rule, trajectory, block)
                except MissingReadout as error:
                    missing[f"{rule.title}: {error}"] = None
                    cells = ("",) * trajectory.tokens
                trace = trajectory.blocks[block]
                how = (trace.name, *rule_cells(rule), lens, trajectory.provenance.mode, str(trace.loops))
                for position, cell in enumerate(cells):
                    yield (*_keys(number, trajectory, position, block=block), *how, cell)


def _values(number: int, trajectory: Trajectory, block: int, *, statistic: Statistic) -> Iterator[Row]:
    values = statistic.values(trajectory, block)
    at_handoff = statistic.level == "handoff"
    table = np.atleast_2d(values)
    for position in range(trajectory.tokens):
        keys = _keys(number, trajectory, position, block=block)
        for row, value in enumerate(table[:, position].tolist()):
            yield (*keys, "" if at_handoff else str(row + 1), statistic.name, repr(value) if math.isfinite(value) else "")


def _keys(number: int, trajectory: Trajectory, position: int, *, block: int) -> Row:
    return (str(number), str(position), trajectory.labels[position], str(block))


def _write(path: Path, header: Row, rows: Iterable[Row]) -> None:
    # Written beside its place first: an interrupted run leaves the older table or the whole new one, never half of one.
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def overview(run: Run, rules: Sequence[ExitRule]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Two short tables to read on a terminal, each with its header: statistics per block, exits per block and rule.

    Medians are pooled over all tokens of all prompts; undefined cells are empty.
    """
    return _statistics_overview(run), _exits_overview(run, rules)


def _statistics_overview(run: Run) -> tuple[Row, ...]:
    kinds = statistics()
    rows: list[Row] = [("block", "loops K", "step norm k=2", "k=K", "relative k=K", "cosine k=K", "drift-to-loop ratio")]
    for block, trace in enumerate(run.trajectories[0].blocks):
        norm, relative, cosine, ratio = (
            pooled(kinds[name], run, block).median
            for name in ("step_norm", "relative_step_norm", "step_cosine", "drift_to_loop_ratio")
        )
        second = norm[1] if len(norm) > 1 else math.nan
        cells = (second, norm[-1], relative[-1], cosine[-1], ratio[0])
        rows.append((trace.name, str(trace.loops), *("" if math.isnan(cell) else f"{cell:.4g}" for cell in cells)))
    return tuple(rows)


def _exits_overview(run: Run, rules: Sequence[ExitRule]) -> tuple[Row, ...]:
    rows: list[Row] = [("rule", "block", "stops", "patience", "median exit loop", "exits", "never", "undefined")]
    for rule in rules:
        for block, trace in enumerate(run.trajectories[0].blocks):
            try:
                found = [exits(rule, trajectory, block) for trajectory in run.trajectories]
            except MissingReadout:
                continue  # said once by write_exits
            loops = np.concatenate([part.loop[part.fired] for part in found])
            tokens = sum(len(part.loop) for part in found)
            undefined = sum(int((~part.defined).sum()) for part in found)
            middle = f"{np.median(loops):g}" if len(loops) else ""
            counts = (str(len(loops)), str(tokens - len(loops) - undefined), str(undefined))
            stops = f"{sign(rule)} {rule.threshold:g}"
            rows.append((titled(rule), trace.name, stops, str(rule.patience), middle, *counts))
    return tuple(rows)
