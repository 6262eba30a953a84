"""The two tables of a run, as CSV: every value of every statistic, and where every exit rule fires."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from analysis.exit_rule import NEVER, ExitRule, Exits, MissingReadout, exits
from analysis.statistic import Statistic, statistics
from model.capture.trajectory import Run, Trajectory

Row = tuple[str, ...]

STATISTICS_HEADER: Final[Row] = ("prompt", "position", "token", "block", "loop", "statistic", "value")
EXITS_HEADER: Final[Row] = ("prompt", "position", "token", "block", "rule", "threshold", "patience", "exit_loop")


def write_statistics(run: Run, path: Path) -> None:
    """Write ``statistics.csv``: one row per prompt, token, block, statistic and loop.

    ``prompt``, ``position`` and ``block`` count from 0, ``loop`` from 1 (empty for hand-off statistics). Values
    are exact: reading them back gives the same float64. A value that is undefined has a row whose value is empty.
    """
    _write(path, STATISTICS_HEADER, statistic_rows(run))


def write_exits(run: Run, rules: Sequence[ExitRule], path: Path) -> tuple[str, ...]:
    """Write ``exits.csv``: one row per prompt, token, block and rule, read post hoc from the full pass.

    ``exit_loop`` is a number of loops, ``never``, or empty where the rule is undefined. Returns one sentence
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
                try:
                    cells = _exit_cells(exits(rule, trajectory, block))
                except MissingReadout as error:
                    missing[f"{rule.title}: {error}"] = None
                    cells = ("",) * trajectory.tokens
                for position, cell in enumerate(cells):
                    keys = _keys(number, trajectory, position, block=block)
                    yield (*keys, rule.name, repr(rule.threshold), str(rule.patience), cell)


def _values(number: int, trajectory: Trajectory, block: int, *, statistic: Statistic) -> Iterator[Row]:
    values = statistic.values(trajectory, block)
    at_handoff = statistic.level == "handoff"
    table = np.atleast_2d(values)
    for position in range(trajectory.tokens):
        keys = _keys(number, trajectory, position, block=block)
        for row, value in enumerate(table[:, position].tolist()):
            yield (*keys, "" if at_handoff else str(row + 1), statistic.name, repr(value) if math.isfinite(value) else "")


def _exit_cells(found: Exits) -> tuple[str, ...]:
    pairs = zip(found.loop.tolist(), found.defined.tolist(), strict=True)
    return tuple("" if not defined else "never" if loop == NEVER else str(loop) for loop, defined in pairs)


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
