"""Somebody's own looped language model: one attention block run again and again over a byte embedding."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each added to the state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """The state after one loop."""
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        seen = self.norms[0](x)
        x = x + self.attention(seen, seen, seen, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class LoopedLM(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, width: int = 32, loops: int = 8) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(64, width)
        self.block, self.loops = Block(width), loops
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, ``batch tokens 256``."""
        x = self.bytes(ids) + self.positions(torch.arange(ids.shape[1]))
        for _ in range(self.loops):
            x = self.block(x)
        return self.read(x)

    def read(self, x: Tensor) -> Tensor:
        """Logits of a state."""
        return self.head(self.norm(x))
