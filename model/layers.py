"""Norms, attention and feed-forward layers that the network families share."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def rms_norm(width: int) -> nn.RMSNorm:
    """Root-mean-square norm with weight and no bias, eps = machine epsilon of the dtype it runs in."""
    return nn.RMSNorm(width, eps=None)


class LayerNorm(nn.Module):
    """Layer norm (eps 1e-5) whose bias is optional."""

    def __init__(self, width: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Float[Tensor, "*shape width"]) -> Float[Tensor, "*shape width"]:
        """Normalise over the last axis."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalAttention(nn.Module):
    """Multi-head causal self-attention with one packed query, key, value projection (in that order)."""

    def __init__(self, width: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Attend to the own and all earlier positions."""
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(B, T, C))


class SiluMlp(nn.Module):
    """Feed-forward of fourfold width: down(SiLU(up(x)))."""

    def __init__(self, width: int, *, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Float[Tensor, "*shape C"]) -> Float[Tensor, "*shape C"]:
        """Widen, activate, narrow."""
        return self.down(F.silu(self.up(x)))
