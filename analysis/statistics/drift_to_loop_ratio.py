"""Drift-to-loop ratio: how much larger the jump between blocks is than a step inside one."""

import warnings
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from analysis.steps import ratio
from model.capture.trajectory import Trajectory


@dataclass(frozen=True)
class DriftToLoopRatio:
    """Drift out of block g over its mean step norm for k = 2..K_g, per token; NaN for the last block and for K_g = 1.

    It grows with K_g, since the mean step gets smaller, so K_g stands beside it wherever it is shown
    (arXiv 2509.23314, equation 2).
    """

    name: ClassVar[str] = "drift_to_loop_ratio"
    title: ClassVar[str] = "drift-to-loop ratio"
    unit: ClassVar[str] = ""
    level: ClassVar[Literal["loop", "handoff"]] = "handoff"
    scale: ClassVar[Literal["linear", "log"]] = "log"
    first_loop: ClassVar[int] = 1
    holds_first_step: ClassVar[int] = 0

    def values(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, " tokens"]:
        """Shape ``tokens``."""
        here = trajectory.blocks[block]
        if block + 1 == len(trajectory.blocks) or here.loops < 2:
            return np.full(trajectory.tokens, np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a token without any defined step is NaN, as wished
            mean_step = np.nanmean(here.step_norm[1:], axis=0)
        mean_step = np.where(here.nonfinite_from == 0, mean_step, np.nan)
        return ratio(trajectory.blocks[block + 1].drift_in, mean_step)
