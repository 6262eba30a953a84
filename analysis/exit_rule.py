"""What an exit rule is, and where it fires on a recorded run."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from analysis.registry import collect
from model.capture.trajectory import BlockTrace, Trajectory

Side = Literal["<", "<=", ">", ">="]
Scope = Literal["token", "sequence"]
Family = Literal["step", "acceleration", "divergence", "prediction", "confidence", "gate", "reference"]
_COMPARE: Mapping[Side, Callable[..., Any]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

NEVER = -1
"""Stands in loop arrays where a rule does not fire, or does not cross back."""


@runtime_checkable
class ExitRule(Protocol):
    """Scores every loop of every token; fires at the ``patience``-th loop in a row on the stopping side.

    Implementations are frozen dataclasses, one per file, that inherit from ``exit_base.RuleBase`` the fields ``threshold``,
    ``patience``, ``minimum_loops`` and ``scope``; the front end makes its widgets from these and what else the rule has.

    Attributes:
        name: word in CSV, URL and command line. title, formula, source, unit: words for a person.
        family: what it looks at; rules of a family stand together and share a colour.
        stops: the stopping side of the threshold.
        causal: whether loop k is judged from loops up to k alone; a rule that is not never runs live.
        default_on: whether it is evaluated where nobody chose rules.
        quantity: the readout quantity it reads, "" when norms are enough.
        scale: the axis that suits the score.
        holds_first_step: last loop whose score contains the step away from the initial state.
        lowest, highest: range of the score, and so of the threshold.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    formula: ClassVar[str]
    source: ClassVar[str]
    unit: ClassVar[str]
    family: ClassVar[Family]
    stops: ClassVar[Side]
    causal: ClassVar[bool]
    default_on: ClassVar[bool]
    quantity: ClassVar[str]
    scale: ClassVar[Literal["linear", "log"]]
    holds_first_step: ClassVar[int]
    lowest: ClassVar[float]
    highest: ClassVar[float]

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

    @property
    def scope(self) -> Scope:
        """Whether each token is judged by its own score, or all by the mean over the sequence."""
        ...

    @property
    def asks(self) -> tuple[str, ...]:
        """Quantities that it reads and that a run has only where they are asked for (``Request.quantities``)."""
        ...

    def defined_from(self) -> int:
        """The first loop with a score."""
        ...

    def fires_from(self) -> int:
        """Loops after which it can fire at the earliest."""
        ...

    def scores(self, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
        """Each token's own score, row r is loop r + 1; NaN where undefined. See ``rule_scores`` for the scope.

        Raises MissingReadout when the run lacks what the rule needs.
        """
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


def exit_rules_by_family() -> dict[str, ExitRuleClass]:
    """Every exit rule class by name, families together, those that are on by default first in theirs."""
    families = get_args(Family)
    return dict(
        sorted(exit_rules().items(), key=lambda item: (families.index(item[1].family), not item[1].default_on, item[0]))
    )


def default_rules() -> dict[str, ExitRuleClass]:
    """The exit rules that are evaluated where nobody chose any: those of the two-scale paper's comparison."""
    return {name: kind for name, kind in exit_rules().items() if kind.default_on}


def rule_scores(rule: ExitRule, trajectory: Trajectory, block: int) -> Float64[np.ndarray, "loops tokens"]:
    """What the rule compares with its threshold: each token's score, or the mean over the sequence in every column.

    Raises MissingReadout when the run lacks what the rule needs.
    """
    scores = rule.scores(trajectory, block)
    return scores if rule.scope == "token" else sequence_mean(scores, trajectory.blocks[block])


def sequence_mean(scores: Float64[np.ndarray, "loops tokens"], trace: BlockTrace) -> Float64[np.ndarray, "loops tokens"]:
    """Mean of each loop's defined scores, in the column of every token whose state is finite; NaN elsewhere.

    A mean over positions looks ahead of the earlier ones: live, it can be had while a prompt is read, not while one writes.
    """
    defined = np.isfinite(scores)
    total, count = np.where(defined, scores, 0.0).sum(axis=1), defined.sum(axis=1)
    mean = np.divide(total, count, out=np.full(len(scores), np.nan), where=count > 0)
    return np.where(np.isfinite(trace.state_norm), mean[:, None], np.nan)


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
    return exits_from_scores(rule, rule_scores(rule, trajectory, block))


def recorded_lens(trajectory: Trajectory, block: int, quantity: str, *, wanted: str, record: str = "") -> str:
    """The lens to read a quantity through: the named one, or with ``default`` that of ``default_lens``.

    ``record`` names the extra quantity that has to be asked for, where the readout is not made of every run. Raises
    MissingReadout when the lens did not record the quantity on this block.
    """
    if wanted == "default":
        return default_lens(trajectory, block, quantity, record=record)
    trace = trajectory.blocks[block]
    if (wanted, quantity) in trace.readouts:
        return wanted
    if any(lens == wanted for lens, _ in trace.readouts):
        raise MissingReadout(_not_asked(trace.name, quantity, record))
    why = " It exists on the last looped block only." if wanted == "coda" else ""
    raise MissingReadout(
        f"Block {trace.name} has no readout by the {wanted} lens.{why} Choose another lens, or run again with it "
        f"(--lens {wanted}, on the page: Lenses, in record(): decode=)."
    )


def default_lens(trajectory: Trajectory, block: int, quantity: str, *, record: str = "") -> str:
    """``coda`` where it recorded the quantity, else ``logit``. Raises MissingReadout when neither did."""
    trace = trajectory.blocks[block]
    for lens in ("coda", "logit"):
        if (lens, quantity) in trace.readouts:
            return lens
    if any(lens in ("coda", "logit") for lens, _ in trace.readouts):
        raise MissingReadout(_not_asked(trace.name, quantity, record))
    also = f" and --record {record}" if record else ""
    raise MissingReadout(
        f"This run has no readout {quantity!r} for block {trace.name}; "
        f"run again with a lens (--lens logit or --lens coda{also}, on the page: Lenses, in record(): decode=)."
    )


def _not_asked(block: str, quantity: str, record: str) -> str:
    if not record:
        return (
            f"This run has no readout {quantity!r} for block {block}: its kind of model has none, or an older version ran it."
        )
    return (
        f"This run did not record {quantity!r} for block {block}; run again with this rule chosen, or with --record {record} "
        "(in record(): quantities=)."
    )
