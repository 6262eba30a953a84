"""Rotary positions whose angles follow from a base, as configs describe them: Ouro and the retrofits have no stored table."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from model.config import number
from model.layers import Rotary


@dataclass(frozen=True)
class Rope:
    """Position t turns the pair i of a head by t * base^(-2i / head_width); halves of the head are paired.

    ``scaling`` is a config's rope_scaling, None for none. Raises ValueError when its type is neither "default" nor "llama3",
    or a number of llama3's is missing or 0.
    """

    base: float
    scaling: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if _kind(self.scaling) == "llama3" and self.scaling is not None:
            for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
                if number(self.scaling, name) == 0:
                    raise ValueError(f"rope_scaling.{name} is 0; a positive number was expected.")

    def rotary(self, tokens: int, head_width: int, *, device: torch.device) -> Rotary:
        """Rotation of the first ``tokens`` positions, computed in float32."""
        exponent = torch.arange(0, head_width, 2, dtype=torch.int64, device=device).float() / head_width
        frequency = _scaled(1.0 / self.base**exponent, self.scaling)
        angle = torch.outer(torch.arange(tokens, dtype=torch.float32, device=device), frequency)
        return Rotary(angle.cos(), angle.sin(), "halves")


def _kind(scaling: Mapping[str, Any] | None) -> str:
    kind = "default" if scaling is None else str(scaling.get("rope_type", scaling.get("type", "default")))
    if kind not in ("default", "llama3"):
        raise ValueError(f"rope_scaling has the type {kind!r}; this version can build default, llama3.")
    return kind


def _scaled(frequency: Float[Tensor, " half"], scaling: Mapping[str, Any] | None) -> Float[Tensor, " half"]:
    """Llama 3's scaling: long waves are slowed by ``factor``, short ones kept, those between blended linearly."""
    if scaling is None or _kind(scaling) == "default":
        return frequency
    factor, low, high = (number(scaling, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = number(scaling, "original_max_position_embeddings")
    wave = 2 * math.pi / frequency
    blend = ((trained / wave - low) / (high - low)).clamp(0.0, 1.0)
    return frequency * (blend + (1 - blend) / factor)
