"""Card: what a checkpoint is, as its headers tell; no torch."""

from dataclasses import dataclass


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
