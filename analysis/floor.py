"""Below which threshold an exit rule compares rounding: what the dtype of a run can resolve, per rule."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from analysis.comparison import Ground
from analysis.exit_rule import ExitRule
from analysis.rule_name import condition

_OF_NAME: Mapping[str, Callable[[float, float], float]] = MappingProxyType(
    {
        "relative_step_norm": lambda noise, norm: noise,
        "step_norm": lambda noise, norm: noise * norm,
        "step_norm_difference": lambda noise, norm: 2 * noise * norm,
        "acceleration": lambda noise, norm: 2 * noise * norm,
        "acceleration_over_state": lambda noise, norm: 2 * noise,
        "state_cosine": lambda noise, norm: noise**2 / 2,
    }
)
"""From the relative step norm that is rounding, and the norm of the states: two steps have twice the rounding of one."""


def threshold_floor(rule: ExitRule, ground: Ground) -> float:
    """The threshold below which the rule's scores are mostly rounding; NaN where none is known.

    A divergence grows with the square of what moves the logits: a quarter of the squared noise floor, 9e-4 nats in bfloat16.
    """
    noise = ground.provenance.noise_floor
    if rule.family == "divergence":
        return noise**2 / 4
    if rule.name not in _OF_NAME:
        return float("nan")
    norms = [trajectory.blocks[ground.block].state_norm[-1] for trajectory in ground.trajectories]
    norm = np.concatenate(norms)[ground.counted]
    return _OF_NAME[rule.name](noise, float(np.median(norm)) if len(norm) else float("nan"))


def below_floor(rule: ExitRule, floor: float) -> bool:
    """Whether the rule's threshold asks for less than the run can resolve."""
    return rule.stops in ("<", "<=") and rule.threshold < floor


def floor_words(rule: ExitRule, floor: float, dtype: str) -> str:
    """A sentence about a threshold below the floor; "" for any other."""
    if not below_floor(rule, floor):
        return ""
    return (
        f"{condition(rule, digits=3)} lies below {floor:.2g}, where scores are mostly rounding of {dtype}; "
        f"{'' if dtype == 'float32' else 'run in float32, or '}take a larger threshold."
    )
