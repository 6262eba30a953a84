"""What an exit rule gives on a text, read post hoc from full-depth passes: loops, quality and cost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from analysis.exit_marks import lens_of
from analysis.exit_rule import NEVER, ExitRule, MissingReadout, default_lens, exits
from model.capture.trajectory import Provenance, Trajectory
from model.card import Flops

EQUAL_TERMS = "Rules are compared at equal mean loops or equal quality, never at equal threshold."
LAST_BLOCK = (
    "With several looped blocks, quality after an exit is defined post hoc for the last one only, because an earlier exit "
    "changes what follows; for the whole model a live run decides."
)


class ComparisonError(ValueError):
    """Runs that cannot be compared; the message says why and what to do."""


@dataclass(frozen=True)
class Ground:
    """What all rules are measured on: one block of several prompts, their tokens side by side.

    Attributes:
        block, name: the block's number and name. loops: K. lens: of the readouts, "" where quality is undefined.
        trajectories: the runs. prompt: which of them each token belongs to.
        counted: tokens whose states are finite and that have a next token, where the readout tells any.
        loss: cross-entropy at each loop, nats. divergence: KL from the readout to that of the last loop, nats.
        agrees: 1 where the likeliest token is that of the last loop, else 0. All NaN where undefined.
        flops: cost of the parts, None where unknown.
    """

    block: int
    name: str
    loops: int
    lens: str
    trajectories: tuple[Trajectory, ...]
    prompt: Int64[np.ndarray, " tokens"]
    counted: Bool[np.ndarray, " tokens"]
    loss: Float64[np.ndarray, "loops tokens"]
    divergence: Float64[np.ndarray, "loops tokens"]
    agrees: Float64[np.ndarray, "loops tokens"]
    flops: Flops | None

    @property
    def provenance(self) -> Provenance:
        """Of the first run; all have the same."""
        return self.trajectories[0].provenance


@dataclass(frozen=True)
class Compared:
    """One rule with its threshold on one block. Means are over the counted tokens; NaN where undefined.

    A token at which the rule never fires runs all K loops. One at which it is undefined is not counted.

    Attributes:
        exit_loop: loops run when it fires, per token of all prompts; NEVER where it does not. counted: see ``Ground``.
        undefined: tokens left out because the rule is undefined there.
        mean_loops: loops per token. never: share of tokens that never exit.
        agreement: share of tokens whose likeliest next token is that of full depth.
        premature: share of the exits that it stops at another one.
        divergence: KL from the readout at the exit to that of full depth, nats.
        cross_entropy, full_depth: nats per token at the exit, and after all loops.
        flops: share of the operations of full depth, the rule's own readouts included.
    """

    rule: ExitRule
    block: str
    lens: str
    exit_loop: Int64[np.ndarray, " tokens"]
    counted: Bool[np.ndarray, " tokens"]
    undefined: int
    loops: int
    mean_loops: float
    never: float
    agreement: float
    premature: float
    divergence: float
    cross_entropy: float
    full_depth: float
    flops: float

    @property
    def tokens(self) -> int:
        """Number of counted tokens."""
        return int(self.counted.sum())

    @property
    def histogram(self) -> Int64[np.ndarray, " loops"]:
        """Counted tokens that exit after each number of loops, 1..K; those that never exit are in none."""
        fired = self.exit_loop[self.counted & (self.exit_loop != NEVER)]
        return np.bincount(fired - 1, minlength=self.loops).astype(np.int64)


def compare(rule: ExitRule, trajectories: Sequence[Trajectory], block: int, *, flops: Flops | None = None) -> Compared:
    """The rule with its present threshold on one block of the runs, post hoc.

    Quality is read by the coda lens where it was recorded, else by the logit lens, and on the last block only. Raises
    MissingReadout when the runs lack what the rule needs, ComparisonError when they cannot be put side by side.
    """
    ground = ground_of(trajectories, block, flops=flops)
    found = [exits(rule, trajectory, block) for trajectory in trajectories]
    defined = np.concatenate([one.defined for one in found])
    return measured(ground, rule, np.concatenate([one.loop for one in found]), counted=ground.counted & defined)


def ground_of(trajectories: Sequence[Trajectory], block: int, *, flops: Flops | None = None) -> Ground:
    """The tokens of all runs side by side, with what was decoded of them. Raises ComparisonError."""
    traces = [trajectory.blocks[block] for trajectory in _comparable(trajectories, block)]
    tokens = [trajectory.tokens for trajectory in trajectories]
    loops = traces[0].loops
    lens, loss, divergence, agrees = "", *(np.full((loops, sum(tokens)), np.nan) for _ in range(3))
    if block == len(trajectories[0].blocks) - 1:
        lens = _quality_lens(trajectories, block)
    if lens:
        loss = -_joined(trajectories, block, (lens, "log_probability_next")).astype(np.float64)
        divergence = _joined(trajectories, block, (lens, "kl_last")).astype(np.float64)
        top = _joined(trajectories, block, (lens, "top10_id"))
        likeliest = top[..., 0] if top.ndim == 3 else np.full(loss.shape, -1)
        agrees = np.where((likeliest >= 0) & (likeliest[-1:] >= 0), likeliest == likeliest[-1:], np.nan)
    finite = np.concatenate([trace.nonfinite_from == 0 for trace in traces])
    scored = np.isfinite(loss).all(axis=0)
    return Ground(
        block=block,
        name=traces[0].name,
        loops=loops,
        lens=lens,
        trajectories=tuple(trajectories),
        prompt=np.repeat(np.arange(len(tokens)), tokens),
        counted=finite & scored if (finite & scored).any() else finite,
        loss=loss,
        divergence=divergence,
        agrees=agrees.astype(np.float64),
        flops=flops,
    )


def _comparable(trajectories: Sequence[Trajectory], block: int) -> Sequence[Trajectory]:
    if not trajectories:
        raise ComparisonError("There is no run to compare rules on; give at least one prompt.")
    if any(trajectory.provenance.mode == "live" for trajectory in trajectories):
        raise ComparisonError("A live run stopped where its own rule said; compare rules post hoc, on a run of full depth.")
    depths = {trajectory.blocks[block].loops for trajectory in trajectories}
    if len(depths) > 1:
        raise ComparisonError(
            f"The runs have {', '.join(map(str, sorted(depths)))} loops in block {block}; run all prompts with equal loops."
        )
    return trajectories


def _quality_lens(trajectories: Sequence[Trajectory], block: int) -> str:
    """The lens that recorded the likeliest tokens, "" where nothing was decoded."""
    try:
        lenses = {default_lens(trajectory, block, "top10_id") for trajectory in trajectories}
    except MissingReadout:
        return ""
    return "coda" if lenses == {"coda"} else "logit"


def _joined(trajectories: Sequence[Trajectory], block: int, key: tuple[str, str]) -> Shaped[np.ndarray, "loops tokens *n"]:
    """A readout of all runs side by side; NaN where one of them lacks it (a masked model has no next token)."""
    parts: list[np.ndarray] = []
    for trajectory in trajectories:
        trace = trajectory.blocks[block]
        found = trace.readouts.get(key)
        parts.append(np.full((trace.loops, trajectory.tokens), np.nan) if found is None else found)
    return np.concatenate(parts, axis=1)


def measured(
    ground: Ground, rule: ExitRule, exit_loop: Int64[np.ndarray, " tokens"], *, counted: Bool[np.ndarray, " tokens"]
) -> Compared:
    """What exits at these loops give, whatever chose them."""
    ran = np.where(exit_loop == NEVER, ground.loops, exit_loop)[counted]
    fired = (exit_loop != NEVER)[counted]
    at = (ran - 1, np.flatnonzero(counted))
    agrees, mean_loops = ground.agrees[at], mean(ran)
    return Compared(
        rule=rule,
        block=ground.name,
        lens=ground.lens,
        exit_loop=exit_loop,
        counted=counted,
        undefined=int((ground.counted & ~counted).sum()),
        loops=ground.loops,
        mean_loops=mean_loops,
        never=mean(~fired),
        agreement=mean(agrees),
        premature=1 - mean(agrees[fired]),
        divergence=mean(ground.divergence[at]),
        cross_entropy=mean(ground.loss[at]),
        full_depth=mean(ground.loss[-1, counted]),
        flops=flops_share(ground, check_lens(rule, ground), mean_loops),
    )


def mean(values: Shaped[np.ndarray, " n"]) -> float:
    """The mean, NaN of nothing."""
    return float(values.mean()) if len(values) else float("nan")


def check_lens(rule: ExitRule, ground: Ground) -> str:
    """The lens that a check of this rule pays for: "" for norms, and for oracles, which never run live."""
    return lens_of(rule, ground.trajectories[0], ground.block) if rule.causal else ""


def flops_share(ground: Ground, lens: str, mean_loops: float) -> float:
    """Operations of ``mean_loops`` loops of the block and as many checks, as a share of full depth; NaN where unknown.

    A check costs one readout by ``lens`` after every loop that runs; norms are vector operations and cost nothing here. By
    the coda lens the last readout is the output itself, so that it is not paid twice.
    """
    if ground.flops is None:
        return float("nan")
    depths = [trace.loops for trace in ground.trajectories[0].blocks]
    full = ground.flops.outside + sum(k * cost for k, cost in zip(depths, ground.flops.per_loop, strict=True))
    price = {"logit": ground.flops.logit_lens, "coda": ground.flops.coda_lens, "gate": ground.flops.gate}.get(lens, 0)
    checks = mean_loops - 1 if lens == "coda" else mean_loops
    saved = (ground.loops - mean_loops) * ground.flops.per_loop[ground.block]
    return (full - saved + checks * price) / full
