"""What the exit rules share: their common fields, the usual settings, and how they read a recorded run."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
from jaxtyping import Float64, Int64

from analysis.exit_rule import ExitRule, MissingReadout, Scope, Side, recorded_lens
from analysis.rule_fields import check_fields
from model.capture.trajectory import BlockTrace, Trajectory

LensChoice = Literal["default", "logit", "coda"]
"""``default`` is the coda's lens where it was recorded, else the logit lens."""
Direction = Literal["forward", "reverse"]
FirstLoop = Literal["undefined", "uniform"]


@dataclass(frozen=True)
class RuleBase:
    """The fields common to all exit rules, and the class attributes that most of them have.

    Attributes:
        threshold: what a score is compared with. patience: scores in a row that must be on the stopping side.
        minimum_loops: the first loop at which the rule may fire.
        scope: ``token`` judges each token by its own score, ``sequence`` all by the mean over tokens, as some reference
            code does.
        lowest, highest: range of the score; a threshold outside it is refused. Norms, divergences and counts are never below
            0; a rule with a signed score says ``lowest = -math.inf``.
        first_score: first loop with a score: 2 for a rule that compares a loop with the one before.
    """

    unit: ClassVar[str] = ""
    stops: ClassVar[Side] = "<"
    causal: ClassVar[bool] = True
    default_on: ClassVar[bool] = False
    quantity: ClassVar[str] = ""
    scale: ClassVar[Literal["linear", "log"]] = "log"
    holds_first_step: ClassVar[int] = 0
    lowest: ClassVar[float] = 0.0
    highest: ClassVar[float] = math.inf
    first_score: ClassVar[int] = 1

    threshold: float = 0.0
    patience: int = 1
    minimum_loops: int = 2
    scope: Scope = "token"

    def __post_init__(self) -> None:
        check_fields(cast("ExitRule", self))

    @property
    def asks(self) -> tuple[str, ...]:
        """Quantities that it reads and that a run has only where they are asked for."""
        return ()

    def defined_from(self) -> int:
        """The first loop with a score, with the present settings."""
        return self.first_score

    def fires_from(self) -> int:
        """Loops after which it can fire at the earliest: so many scores in a row must be there, and the minimum be run."""
        return max(self.minimum_loops, self.defined_from() + self.patience - 1)


def read(
    trajectory: Trajectory, block: int, quantity: str, *, lens: LensChoice, record: str = ""
) -> Float64[np.ndarray, "loops tokens *n"]:
    """A recorded quantity in float64. ``record`` is the word that asks for it, where not every run has it.

    Raises MissingReadout when the run has none.
    """
    found = recorded_lens(trajectory, block, quantity, wanted=lens, record=record)
    return trajectory.blocks[block].readouts[found, quantity].astype(np.float64)


def argmax(trajectory: Trajectory, block: int, *, lens: LensChoice) -> Int64[np.ndarray, "loops tokens"]:
    """Id of the likeliest token, -1 where undefined. Raises MissingReadout."""
    found = recorded_lens(trajectory, block, "top10_id", wanted=lens)
    return trajectory.blocks[block].readouts[found, "top10_id"][..., 0]


def gate_probability(trajectory: Trajectory, block: int) -> np.ndarray:
    """The learned gate's probability of stopping at each loop, float32. Raises MissingReadout where there is no gate."""
    trace = trajectory.blocks[block]
    if ("gate", "gate_probability") not in trace.readouts:
        raise MissingReadout(
            f"Block {trace.name} has no learned exit gate in this run; models of the Ouro family have one, and it is read "
            "when a lens is (--lens logit or --lens coda)."
        )
    return trace.readouts["gate", "gate_probability"]


def adapted(trajectory: Trajectory, block: int, quantity: str) -> Float64[np.ndarray, "loops tokens"]:
    """What was measured from the block's adapted input. Raises MissingReadout when the run did not record it."""
    trace = trajectory.blocks[block]
    if ("block", quantity) not in trace.readouts:
        raise MissingReadout(
            f"This run did not record the adapted input of block {trace.name}; run again with this rule chosen, or with "
            "--record adapted_input."
        )
    return trace.readouts["block", quantity].astype(np.float64)


def changes(values: Float64[np.ndarray, "loops tokens"]) -> Float64[np.ndarray, "loops tokens"]:
    """|values of loop k - values of loop k - 1|; the first row is NaN."""
    found = np.full(values.shape, np.nan)
    with np.errstate(invalid="ignore"):
        found[1:] = np.abs(np.diff(values, axis=0))
    return found


def where_finite(values: Float64[np.ndarray, "loops tokens"], trace: BlockTrace) -> Float64[np.ndarray, "loops tokens"]:
    """The values where the token's state is finite, NaN elsewhere."""
    return np.where(np.isfinite(trace.state_norm), values, np.nan)
