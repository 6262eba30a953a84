"""What attention keeps of earlier tokens: keys and values, preallocated per layer and, inside a looped block, per loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from model.layers import CausalAttention, Rotary


@dataclass(frozen=True, eq=False)
class _Kept:
    """Keys and values of one layer; row k - 1 is loop k, and a layer outside the loops has one row."""

    keys: Float[Tensor, "loops capacity KV hd"]
    values: Float[Tensor, "loops capacity KV hd"]


class KeyValues:
    """Keys and values of up to ``capacity`` tokens of one sequence.

    In loop k of a block a token attends to what every earlier token left in loop k. A token that left the block
    after e < k loops left nothing there: its entry of loop e, the deepest that it has, stands in for it (the policy
    of Huginn's own decoding, "latest-m4" in its code). ``leave`` writes that entry through to all deeper loops, so
    that attention reads one stretch of memory and never gathers.

    Attributes:
        capacity: tokens that fit. length: tokens held; whoever runs the passes calls ``advance`` after each.
        rotary: rotation of all positions, None in families without.
    """

    def __init__(
        self,
        plain: Sequence[CausalAttention],
        looped: Sequence[Sequence[CausalAttention]],
        *,
        loops: Sequence[int],
        tokens: int,
        rotary: Rotary | None,
    ) -> None:
        self.capacity, self.length, self.rotary = tokens, 0, rotary
        self._kept: dict[nn.Module, _Kept] = {layer: _empty(layer, 1, tokens) for layer in plain}
        self._of_block: list[list[_Kept]] = []
        for layers, count in zip(looped, loops, strict=True):
            made = {layer: _empty(layer, count, tokens) for layer in layers}
            self._kept |= made
            self._of_block.append(list(made.values()))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(kept.keys.nbytes + kept.values.nbytes for kept in self._kept.values())

    def rotation(self, tokens: int) -> Rotary | None:
        """Rotation of the next ``tokens`` positions."""
        return None if self.rotary is None else self.rotary.rows(self.length, tokens)

    def extend(
        self, layer: nn.Module, keys: Float[Tensor, "B T KV hd"], values: Float[Tensor, "B T KV hd"], *, loop: int
    ) -> tuple[Float[Tensor, "B S KV hd"], Float[Tensor, "B S KV hd"]]:
        """Earlier tokens' keys and values of that loop, and the new ones after them.

        One row of B is kept, over what a former pass at the same positions left. Several rows are guesses at the
        same tokens: they see the past and leave nothing. Raises ValueError when the tokens do not fit.
        """
        kept, stop = self._kept[layer], self.length + keys.shape[1]
        if stop > self.capacity:
            raise ValueError(f"{stop} tokens do not fit into the {self.capacity} that were asked for; ask for more.")
        held = kept.keys[loop - 1], kept.values[loop - 1]
        if len(keys) > 1:
            past = (one[None, : self.length].expand(len(keys), -1, -1, -1) for one in held)
            before_keys, before_values = past
            return torch.cat([before_keys, keys], dim=1), torch.cat([before_values, values], dim=1)
        held[0][self.length : stop] = keys[0]
        held[1][self.length : stop] = values[0]
        return held[0][None, :stop], held[1][None, :stop]

    def leave(self, block: int, loop: int, *, tokens: int) -> None:
        """The next ``tokens`` tokens left the block after ``loop`` loops: their entries stand in for deeper ones."""
        new = slice(self.length, self.length + tokens)
        for kept in self._of_block[block]:
            if loop < len(kept.keys):
                kept.keys[loop:, new] = kept.keys[loop - 1, new]
                kept.values[loop:, new] = kept.values[loop - 1, new]

    def advance(self, tokens: int) -> None:
        """The next ``tokens`` tokens are done and become earlier ones."""
        self.length += tokens


def bytes_per_token(layer: CausalAttention) -> int:
    """Bytes that one row of a layer's keys and values takes for each token."""
    return 2 * layer.heads.key * layer.heads.head_width * layer.out.weight.element_size()


def _empty(layer: CausalAttention, loops: int, tokens: int) -> _Kept:
    weight, heads = layer.out.weight, layer.heads
    shape = (loops, tokens, heads.key, heads.head_width)
    return _Kept(*(torch.empty(shape, dtype=weight.dtype, device=weight.device) for _ in range(2)))
