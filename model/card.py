"""Card: what a checkpoint is, as its headers tell; no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """What a checkpoint is, read from its headers: no weight was loaded.

    Attributes:
        parameters: number of weights, tied ones once. dtype: as stored.
        loops_trained: mean loops per block in training, None where the checkpoint does not tell.
        step: training step, None likewise.
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
    loops_trained: float | None = None
    step: int | None = None
