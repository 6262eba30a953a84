"""What an exit rule is, and where it fires on a recorded run."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from analysis.registry import collect
from model.capture.trajectory import Trajectory

Side = Literal["<", "<=", ">", ">="]
_COMPARE: Mapping[Side, Callable[..., Any]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

NEVER = -1
"""Stands in loop arrays where a rule does not fire, or does not cross back."""


@runtime_checkable
class ExitRule(Protocol):
    """Scores every loop of every token; fires at the ``patience``-th loop in a row on the stopping side.

    Implementations are frozen dataclasses, one per file, whose fields are ``threshold``, ``patience``,
    ``minimum_loops`` and what else the rule has; the front end makes its widgets from them.

    Attributes:
        name: word in CSV, URL and command line. title, formula, source, unit: words for a person.
        stops: the stopping side of the threshold.
        causal: whether loop k is judged from loops up to k alone; a rule that is not never runs live.
        quantity: the readout quantity it reads, "" when norms are enough.
        scale: the axis that suits the score.
        holds_first_step: last loop whose score contains the step away from the initial state.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    formula: ClassVar[str]
    source: ClassVar[str]
    unit: ClassVar[str]
    stops: ClassVar[Side]
    causal: ClassVar[bool]
    quantity: ClassVar[str]
    scale: ClassVar[Literal["linear", "log"]]
    holds_first_step: ClassVar[int]

    @property
    def threshold(self) -> float:
        """The value that a score is compared with."""
        ...

    @property
    def patience(self) -> int:
        """Scores in a row that must be on the stopping side."""
        ...

    @property
    def minimum_loops(self) -> int:
        """The first loop at which it may fire."""
        ...

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Row r is loop r + 1; NaN where undefined. Raises MissingReadout when the run lacks what the rule needs."""
        ...


class MissingReadout(LookupError):
    """The run has no readout that a rule or chart needs; the message says which option records it."""


@dataclass(frozen=True)
class Exits:
    """Where a rule fires, per token.

    Attributes:
        loop: loops run when it fires; NEVER where it does not.
        defined: False where the rule did not fire and the last loop's score is undefined (the state became
            non-finite, say, or too few loops ran): such a token is neither fired nor never.
        crosses_back: first later loop whose defined score is off the stopping side; NEVER if none.
    """

    loop: Int64[np.ndarray, " tokens"]
    defined: Bool[np.ndarray, " tokens"]
    crosses_back: Int64[np.ndarray, " tokens"]

    @property
    def fired(self) -> Bool[np.ndarray, " tokens"]:
        """Whether the rule fires at all."""
        return self.loop != NEVER

    def words(self) -> tuple[str, ...]:
        """Per token: the loop as digits, ``never``, or "" where the rule is undefined."""
        return tuple(
            str(int(loop)) if loop != NEVER else ("never" if defined else "")
            for loop, defined in zip(self.loop, self.defined, strict=True)
        )


if TYPE_CHECKING:
    ExitRuleClass = type[ExitRule]
else:
    ExitRuleClass = type  # a protocol with fields cannot be asked about subclasses, so run-time checks go no deeper


def exit_rules() -> dict[str, ExitRuleClass]:
    """Every exit rule class by name; call one without arguments for its defaults."""
    return collect("analysis.exits")


def on_stopping_side(rule: ExitRule, scores: Float64[np.ndarray, "loops tokens"]) -> Bool[np.ndarray, "loops tokens"]:
    """Where a score is finite and on the stopping side of the threshold: an infinite one never stops anything."""
    with np.errstate(invalid="ignore"):
        return _COMPARE[rule.stops](scores, rule.threshold) & np.isfinite(scores)


def exits_from_scores(rule: ExitRule, scores: Float64[np.ndarray, "loops tokens"]) -> Exits:
    """First loop k >= minimum_loops at which the last ``patience`` scores are all on the stopping side.

    An undefined score resets the count.
    """
    stopping = on_stopping_side(rule, scores)
    loops, tokens = scores.shape
    count = np.zeros(tokens, dtype=np.int64)
    fired_at = np.full(tokens, NEVER, dtype=np.int64)
    back_at = np.full(tokens, NEVER, dtype=np.int64)
    for row in range(loops):
        loop = row + 1
        crossed = (fired_at != NEVER) & (back_at == NEVER) & ~np.isnan(scores[row]) & ~stopping[row]
        back_at[crossed] = loop
        count = np.where(stopping[row], count + 1, 0)
        fires = (fired_at == NEVER) & (count >= rule.patience) & (loop >= rule.minimum_loops)
        fired_at[fires] = loop
    return Exits(loop=fired_at, defined=(fired_at != NEVER) | np.isfinite(scores[-1]), crosses_back=back_at)


def exits(rule: ExitRule, trajectory: Trajectory, block: int) -> Exits:
    """Where the rule fires, post hoc, on one block of one trajectory."""
    return exits_from_scores(rule, rule.scores(trajectory, block))


def check_common_fields(rule: ExitRule) -> None:
    """Raise ValueError unless threshold is a number, patience and minimum loops are at least 1."""
    if np.isnan(rule.threshold):
        raise ValueError(f"The threshold of {rule.name} is not a number; give one.")
    if rule.patience < 1 or rule.minimum_loops < 1:
        raise ValueError(
            f"{rule.name} has patience {rule.patience} and minimum loops {rule.minimum_loops}; both must be at least 1."
        )


def recorded_lens(trajectory: Trajectory, block: int, quantity: str, *, wanted: str) -> str:
    """The lens to read a quantity through: the named one, or with ``default`` that of ``default_lens``.

    Raises MissingReadout when the lens did not record the quantity on this block.
    """
    if wanted == "default":
        return default_lens(trajectory, block, quantity)
    trace = trajectory.blocks[block]
    if (wanted, quantity) not in trace.readouts:
        why = " It exists on the last looped block only." if wanted == "coda" else ""
        raise MissingReadout(
            f"Block {trace.name} has no readout by the {wanted} lens.{why} Choose another lens, or run again with it "
            f"(--lens {wanted}, on the page: Lenses, in record(): decode=)."
        )
    return wanted


def default_lens(trajectory: Trajectory, block: int, quantity: str) -> str:
    """``coda`` where it recorded the quantity, else ``logit``. Raises MissingReadout when neither did."""
    readouts = trajectory.blocks[block].readouts
    for lens in ("coda", "logit"):
        if (lens, quantity) in readouts:
            return lens
    raise MissingReadout(
        f"This run has no readout {quantity!r} for block {trajectory.blocks[block].name}; "
        "run again with a lens (--lens logit or --lens coda, on the page: Lenses, in record(): decode=)."
    )
