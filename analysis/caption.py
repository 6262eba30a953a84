"""Sentences that charts share: where the numbers come from, what is missing, how a value moved."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from model.capture.trajectory import Provenance, Trajectory


def counted(count: int, noun: str) -> str:
    """``1 token``, ``2 tokens``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def joined(*sentences: str) -> str:
    """The sentences that are not empty, as one paragraph."""
    return " ".join(sentence for sentence in sentences if sentence)


def source_words(provenance: Provenance) -> str:
    """Checkpoint, space, dtype, start, trained depth and mode, as they stand at the end of every caption."""
    how = {"post hoc": "post hoc (read from one full-depth pass)", "live": "live (the loop really stopped)"}[provenance.mode]
    return (
        f"Checkpoint {provenance.checkpoint}, {provenance.space} states, {provenance.dtype}, initial state ("
        f"{provenance.initial_state}), seed {provenance.seed}; {how}.{trained_words(provenance)}"
    )


def trained_words(provenance: Provenance) -> str:
    """How deep training looped, with a space in front; empty where the checkpoint does not tell."""
    if provenance.loops_trained is None:
        return ""
    return f" Training used {provenance.loops_trained:g} loops per block on average."


def loops_words(trajectory: Trajectory, blocks: Sequence[int]) -> str:
    """``K = 8`` for all blocks, or ``K = 8 (h[1]), 16 (h[2])``."""
    traces = [trajectory.blocks[g] for g in blocks]
    if len({trace.loops for trace in traces}) == 1:
        return f"K = {traces[0].loops}"
    return "K = " + ", ".join(f"{trace.loops} ({trace.name})" for trace in traces)


def block_words(trajectory: Trajectory, blocks: Sequence[int]) -> str:
    """``block h[1]`` or ``blocks h[1], h[2]``."""
    names = ", ".join(trajectory.blocks[g].name for g in blocks)
    return f"block {names}" if len(blocks) == 1 else f"blocks {names}"


def token_words(trajectory: Trajectory, position: int) -> str:
    """A token with its position, as repeated tokens look alike: ``token #2 (·the)``."""
    return f"token #{position} ({trajectory.labels[position]})"


def nonfinite_words(trajectory: Trajectory, blocks: Sequence[int]) -> tuple[str, ...]:
    """One sentence per token and block whose state became Inf or NaN; nothing is drawn from there on."""
    return tuple(
        f"Block {trajectory.blocks[g].name}: non-finite from loop {trajectory.blocks[g].nonfinite_from[position]}, "
        f"{token_words(trajectory, int(position))}."
        for g in blocks
        for position in np.flatnonzero(trajectory.blocks[g].nonfinite_from)
    )


def movement(values: Float[np.ndarray, " loops"]) -> str:
    """``falls from 3.1 to 0.002 (loops 1 to 8)``: the first and the last defined value of a curve."""
    defined = np.flatnonzero(~np.isnan(values))
    if not len(defined):
        return "is undefined"
    first, last = float(values[defined[0]]), float(values[defined[-1]])
    if len(defined) == 1:
        return f"is {first:.3g} (loop {defined[0] + 1})"
    where = f"(loops {defined[0] + 1} to {defined[-1] + 1})"
    if first == last:
        return f"stays, all in all, at {first:.3g} {where}"
    return f"{'falls' if last < first else 'rises'} from {first:.3g} to {last:.3g} {where}"
