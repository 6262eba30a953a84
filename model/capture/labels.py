"""Token ids and what stands for them on screen, from what people have at hand."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from .errors import CaptureError
from .visible import visible

Tokens = Sequence[int] | np.ndarray | Tensor | None
Labels = Sequence[str] | Callable[[int], str] | None

_UNKNOWN = -1  # the id of a token that was not told


def ids_of(tokens: Tokens, count: int) -> Int64[np.ndarray, " tokens"]:
    """The ids of all positions, -1 where none were told. Raises CaptureError when they are not those of the pass."""
    if tokens is None:
        return np.full(count, _UNKNOWN, dtype=np.int64)
    listed = cast("list[Any]", list(tokens) if isinstance(tokens, Sequence) else tokens.flatten().tolist())
    if len(listed) != count:
        raise CaptureError(
            f"{len(listed)} tokens were given and the block ran over {count} positions; give the ids of the whole pass, "
            "special tokens included, and no padding."
        )
    ids = np.array([int(i) for i in listed], dtype=np.int64)
    if ids.min() < 0:
        raise CaptureError(f"Token id {ids.min()} is negative; give the ids that went into the model.")
    return ids


def label_of(labels: Labels, token: int) -> str:
    """A token's text: by the function that was given, else its id; whitespace is made visible."""
    if token == _UNKNOWN:
        return "⟨?⟩"
    return visible(labels(token)) if callable(labels) else f"⟨{token}⟩"


def labels_of(labels: Labels, ids: Int64[np.ndarray, " tokens"]) -> tuple[str, ...]:
    """The text of every position. Raises CaptureError when there are more or fewer than tokens."""
    if labels is None or callable(labels):
        return tuple(label_of(labels, int(i)) for i in ids)
    if len(labels) != len(ids):
        raise CaptureError(f"{len(labels)} labels were given for {len(ids)} tokens; give one for each.")
    return tuple(visible(label) for label in labels)
