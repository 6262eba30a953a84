"""Card: what a checkpoint is, as its headers tell; no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flops:
    """Floating-point operations per token: 2 for every weight of every matrix that it passes, nothing for attention scores.

    Attributes:
        outside: below and above the loops, the output head among them. per_loop: one loop of each block, with its injection.
        logit_lens, coda_lens: decoding one iterate; 0 where nothing can be decoded.
        gate: asking the learned exit gate once; 0 without one.
    """

    outside: int
    per_loop: tuple[int, ...]
    logit_lens: int
    coda_lens: int
    gate: int = 0


@dataclass(frozen=True)
class Card:
    """What a checkpoint is, read from its headers: no weight was loaded.

    Attributes:
        parameters: number of weights, tied ones once. dtype: as stored.
        state_width: width of the iterates, where it differs from ``width``.
        objective: what the logits at a position predict.
        logit_lens: how the logit lens decodes an iterate, in words.
        has_gate: whether the model has a learned exit gate.
        loops_trained: mean loops per block in training, None where the checkpoint does not tell.
        config_loops: loops per block that the project's own code runs by default, None likewise.
        step: training step, None likewise.
        notes: sentences that a reader of the numbers should know.
        flops: what a token costs in each part, None where it could not be counted.
    """

    name: str
    architecture: str
    title: str
    width: int
    vocabulary: int
    context: int
    block_names: tuple[str, ...]
    space: str
    injection: str
    initial_state_rule: str
    parameters: int
    dtype: str
    tokenizer: str
    digest: str
    state_width: int = 0
    objective: str = "next token"
    logit_lens: str = ""
    has_gate: bool = False
    fixed_start: bool = False
    loops_trained: float | None = None
    config_loops: tuple[int, ...] | None = None
    step: int | None = None
    notes: tuple[str, ...] = ()
    flops: Flops | None = None
