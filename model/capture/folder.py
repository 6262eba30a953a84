"""Trajectories of one's own to and from a run folder, which `loopscope export` and the page open."""

from collections.abc import Sequence
from pathlib import Path

from .trajectory import Run, Trajectory, load_run, save_run


def save(trajectories: Trajectory | Sequence[Trajectory], folder: str | Path, *, overwrite: bool = False) -> None:
    """Write a run folder with one file per trajectory; ``overwrite`` replaces an older run there.

    Raises ValueError when there is no trajectory, a run that may not be replaced, or a checkpoint in the folder.
    """
    given = (trajectories,) if isinstance(trajectories, Trajectory) else tuple(trajectories)
    if not given:
        raise ValueError("There is no trajectory to save; give at least one.")
    if (Path(folder) / "run.json").exists() and not overwrite:
        raise ValueError(f"{folder} holds a run already; give another folder, or overwrite=True to replace it.")
    save_run(Run(request={}, trajectories=given), Path(folder))


def load(folder: str | Path) -> Run:
    """Read a run folder, whoever wrote it. Raises RunFormatError naming what is missing or damaged."""
    return load_run(Path(folder))
