"""How a live run decodes: where the loop may stop, how the prompt is read, how the next token is chosen; no torch."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64

from model.request import RequestError
from model.running import Leaves

ReadPrompt = Literal["exits", "full depth"]

ASKED_FROM = "asked from token"
"""Key in a live run's ``Provenance.decoding``: the first position that could leave early, after a prompt read in one pass."""

_SAMPLING_STREAM = 2**63 - 1  # the second half of the key; those of the noise are block numbers


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    Attributes:
        temperature: 0 takes the likeliest token, whatever else is set. top_k: draw among so many, None is all.
        seed: with the position, it decides the draw; an equal prefix is continued alike.
    """

    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise RequestError(f"The temperature is {self.temperature}; give 0 for the likeliest token, or a positive number.")
        if self.top_k is not None and self.top_k < 1:
            raise RequestError(f"top-k is {self.top_k}; give 1 or more, or leave it out to draw among all tokens.")
        if not 0 <= self.seed < 2**63:
            raise RequestError(f"The sampling seed {self.seed} is out of range; give a whole number from 0 to 2^63 - 1.")

    def choose(self, logits: Float64[np.ndarray, " vocabulary"], position: int) -> int:
        """Id of the token at ``position``. Raises RequestError when no logit is finite."""
        scores = np.where(np.isnan(logits), -np.inf, logits)
        if not np.isfinite(scores.max()):
            raise RequestError(
                f"The model's logits for the token at position {position} are not finite, so that none can be chosen; "
                "run fewer loops, or in float32."
            )
        if self.temperature == 0:
            return int(scores.argmax())
        order = np.argsort(-scores, kind="stable")[: self.top_k]
        weights = np.exp((scores[order] - scores[order[0]]) / self.temperature)
        stream = np.random.Generator(np.random.Philox(key=[self.seed, _SAMPLING_STREAM], counter=[0, 0, 0, position]))
        drawn = int((np.cumsum(weights) <= stream.random() * weights.sum()).sum())
        return int(order[min(drawn, len(order) - 1)])

    def words(self) -> str:
        """The sampling in words."""
        if self.temperature == 0:
            return "greedy"
        among = "" if self.top_k is None else f" among the {self.top_k} likeliest"
        return f"drawn at temperature {self.temperature:g}{among}, seed {self.seed}"


@dataclass(frozen=True)
class Exit:
    """Where a live run leaves its blocks: the question asked after every loop, and the rule behind it in words."""

    leaves: Leaves
    words: str


@dataclass(frozen=True)
class Decoding:
    """What a live run adds to a request.

    Attributes:
        new_tokens: tokens to write after each prompt. Each of them is run through the network, the last one too, so
            that the whole text can stand beside a post hoc run of it. With 0, the given text is read and no more.
        prompt: ``exits`` reads the prompt token by token, each leaving its blocks by the rule; ``full depth`` reads it
            in one pass with all loops, as the public decoding code of these models does.
    """

    new_tokens: int = 0
    prompt: ReadPrompt = "exits"
    sampling: Sampling = Sampling()

    def __post_init__(self) -> None:
        if self.new_tokens < 0:
            raise RequestError(f"{self.new_tokens} new tokens were asked for; give 0 or more.")
        if self.prompt not in get_args(ReadPrompt):
            raise RequestError(f"The prompt cannot be read {self.prompt!r}; choose one of {', '.join(get_args(ReadPrompt))}.")
