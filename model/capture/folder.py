"""Trajectories of one's own to and from a run folder, which `loopscope export` and the page open."""

from collections.abc import Sequence
from pathlib import Path

from .trajectory import Run, Trajectory, load_run, save_run


def save(trajectories: Trajectory | Sequence[Trajectory], folder: str | Path) -> None:
    """Write a run folder with one file per trajectory; what an older run left there is replaced.

    Raises ValueError when there is none.
    """
    given = (trajectories,) if isinstance(trajectories, Trajectory) else tuple(trajectories)
    if not given:
        raise ValueError("There is no trajectory to save; give at least one.")
    save_run(Run(request={}, trajectories=given), Path(folder))


def load(folder: str | Path) -> Run:
    """Read a run folder, whoever wrote it. Raises RunFormatError naming what is missing or damaged."""
    return load_run(Path(folder))
