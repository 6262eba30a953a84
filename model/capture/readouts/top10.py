"""The ten likeliest next tokens."""

from typing import ClassVar

import torch
from jaxtyping import Shaped
from torch import Tensor

from ..readout import Batch, Chunk

_COUNT = 10


class Top10:
    """Ids and probabilities of the ten likeliest tokens, likeliest first, k = 1..K; fewer in smaller vocabularies."""

    name: ClassVar[str] = "top10"
    title: ClassVar[str] = "likeliest next tokens"
    unit: ClassVar[str] = ""
    first_loop: ClassVar[int] = 1
    turns: ClassVar[int] = 1
    always: ClassVar[bool] = True

    def __init__(self, batch: Batch) -> None:
        self._log_p: Tensor | None = None
        self._ids: Tensor | None = None

    def take(self, chunk: Chunk, turn: int) -> None:
        """Merge the best of this stretch with the best so far."""
        log_p, ids = chunk.log_p.topk(min(_COUNT, chunk.log_p.shape[-1]), dim=-1)
        ids = ids + chunk.start
        if self._log_p is not None and self._ids is not None:
            log_p, ids = torch.cat([self._log_p, log_p], dim=-1), torch.cat([self._ids, ids], dim=-1)
            log_p, order = log_p.topk(min(_COUNT, log_p.shape[-1]), dim=-1)
            ids = ids.gather(-1, order)
        self._log_p, self._ids = log_p, ids

    def result(self) -> dict[str, Shaped[Tensor, "loops tokens n"]]:
        """Under ``top10_id`` (int64) and ``top10_probability``."""
        assert self._log_p is not None, "take() comes first"
        assert self._ids is not None, "take() comes first"
        return {"top10_id": self._ids, "top10_probability": self._log_p.exp()}
