"""Shared by the chart tests: pick marks out of a chart, and the run whose token 2 blows up."""

import dataclasses
from typing import Any, TypeVar

import numpy as np

from analysis.chart import Chart, Mark
from model.capture.trajectory import Run, Trajectory
from tests.toys import spiral, toy_block, toy_trajectory

AnyMark = TypeVar("AnyMark", bound=Mark)


def marks(chart: Chart, kind: type[AnyMark], *, panel: int = 0, **wanted: Any) -> list[AnyMark]:
    """Marks of one kind in one panel whose fields have the wanted values."""
    return [
        mark
        for mark in chart.panels[panel].marks
        if isinstance(mark, kind) and all(getattr(mark, name) == value for name, value in wanted.items())
    ]


def alone(trajectory: Trajectory) -> Run:
    return Run(request={}, trajectories=(trajectory,))


def inf_run() -> Run:
    """Case S1: one block of 8 loops whose token 2 is infinite from loop 5 on."""
    states = spiral(loops=8, tokens=4, width=6, seed=0)
    states[5:, 2] = np.inf
    return alone(dataclasses.replace(toy_trajectory(tokens=4, blocks=1), blocks=(toy_block(states),)))
