"""The ten likeliest next tokens."""

from typing import ClassVar

import torch
from jaxtyping import Shaped
from torch import Tensor

from ..readout import Batch, Chunk, Walked

_COUNT = 10


class Top10:
    """Ids and probabilities of the ten likeliest tokens, likeliest first, k = 1..K; fewer in smaller vocabularies."""

    name: ClassVar[str] = "top10"
    title: ClassVar[str] = "likeliest next tokens"
    unit: ClassVar[str] = ""
    first_loop: ClassVar[int] = 1
    again: ClassVar[bool] = False
    always: ClassVar[bool] = True

    def __init__(self, batch: Batch) -> None:
        self._logits: Tensor | None = None
        self._ids: Tensor | None = None

    def take(self, chunk: Chunk, walked: Walked | None) -> None:
        """Merge the best of this stretch with the best so far."""
        logits, ids = chunk.logits.topk(min(_COUNT, chunk.logits.shape[-1]), dim=-1)
        ids = ids + chunk.start
        if self._logits is not None and self._ids is not None:
            logits, ids = torch.cat([self._logits, logits], dim=-1), torch.cat([self._ids, ids], dim=-1)
            logits, order = logits.topk(min(_COUNT, logits.shape[-1]), dim=-1)
            ids = ids.gather(-1, order)
        self._logits, self._ids = logits, ids

    def result(self, walked: Walked) -> dict[str, Shaped[Tensor, "loops tokens n"]]:
        """Under ``top10_id`` (int64) and ``top10_probability``."""
        assert self._logits is not None, "take() comes first"
        assert self._ids is not None, "take() comes first"
        return {"top10_id": self._ids, "top10_probability": (self._logits - walked.log_z[..., None]).exp()}
