"""Norms, rotary positions, attention and feed-forward layers that the network families share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from model.architecture import Context
else:
    Context = Any  # the contract names this module's Rotary: one of the two has to come first

Pairing = Literal["neighbours", "halves"]
Activation = Callable[[Tensor], Tensor]


def rms_norm(width: int, eps: float | None = None) -> nn.RMSNorm:
    """Root-mean-square norm with weight and no bias; eps None is machine epsilon of the dtype it runs in."""
    return nn.RMSNorm(width, eps=eps)


class LayerNorm(nn.Module):
    """Layer norm (eps 1e-5) whose bias is optional."""

    def __init__(self, width: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Float[Tensor, "*shape width"]) -> Float[Tensor, "*shape width"]:
        """Normalise over the last axis."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


@dataclass(frozen=True)
class Rotary:
    """Rotary position embedding: the pair i of a head is turned by the angle whose cosine and sine stand at [t, i].

    Attributes:
        pairing: which channels make pair i: (2i, 2i + 1), or (i, i + half).
    """

    cos: Float[Tensor, "T half"]
    sin: Float[Tensor, "T half"]
    pairing: Pairing

    def rows(self, first: int, tokens: int) -> "Rotary":
        """Rotation of ``tokens`` positions from ``first`` on."""
        some = slice(first, first + tokens)
        return Rotary(self.cos[some], self.sin[some], self.pairing)

    def turn(self, x: Float[Tensor, "B T H hd"]) -> Float[Tensor, "B T H hd"]:
        """Heads turned according to their position; computed in float32."""
        wide, cos, sin = x.float(), self.cos[:, None], self.sin[:, None]
        if self.pairing == "neighbours":
            first, second = wide[..., 0::2], wide[..., 1::2]
            turned = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)
        else:
            half = wide.shape[-1] // 2
            first, second = wide[..., :half], wide[..., half:]
            turned = torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
        return turned.to(x.dtype)


def rotary_from_table(table: Float[Tensor, "1 L 1 half 2"], tokens: int) -> Rotary:
    """The first positions of a stored table of (cos, sin), neighbouring channels paired."""
    return Rotary(table[0, :tokens, 0, :, 0].float(), table[0, :tokens, 0, :, 1].float(), "neighbours")


def attend(
    q: Float[Tensor, "B T H hd"], k: Float[Tensor, "B S KV hd"], v: Float[Tensor, "B S KV hd"]
) -> Float[Tensor, "B T width"]:
    """Causal attention with scale 1 / sqrt(hd); each group of H / KV query heads shares a key and a value head.

    The T queries are those of the last T of S positions.
    """
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    new, known, shared = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    if new == 1 and known > 1:
        # One query sees everything: the heads that share keys stand in one row's place, and nothing is repeated.
        rows = q.reshape(len(q), k.shape[1], shared, -1)
        return F.scaled_dot_product_attention(rows, k, v).reshape(len(q), 1, -1)
    if shared > 1:
        k, v = (x.repeat_interleave(shared, dim=1) for x in (k, v))
    if new == known:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        seen = torch.ones(new, known, dtype=torch.bool, device=q.device).tril(known - new)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return mixed.transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class Heads:
    """Sizes of an attention layer: input and output width, query heads, key and value heads, width of a head."""

    width: int
    query: int
    key: int
    head_width: int

    @staticmethod
    def of(width: int, query: int, key: int | None = None, head_width: int | None = None) -> "Heads":
        """Sizes with the usual defaults. Raises ValueError when they do not divide."""
        if head_width is None and width % query:
            raise ValueError(f"the width {width} is no multiple of the {query} heads.")
        if key is not None and query % key:
            raise ValueError(f"{query} query heads cannot share {key} key and value heads evenly.")
        return Heads(width, query, key or query, head_width or width // query)


class CausalAttention(nn.Module):
    """Causal self-attention with one packed query, key, value projection (in that order).

    Families that norm, turn or shift queries and keys override ``prepare``.
    """

    def __init__(self, heads: Heads, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(heads.width, (heads.query + 2 * heads.key) * heads.head_width, bias=bias)
        self.out = nn.Linear(heads.query * heads.head_width, heads.width, bias=bias)

    def project(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries ``B T H hd``, keys and values ``B T KV hd``."""
        heads = self.qkv(x).unflatten(-1, (-1, self.heads.head_width))
        q, k, v = heads.split([self.heads.query, self.heads.key, self.heads.key], dim=2)
        return q, k, v

    def prepare(
        self, q: Tensor, k: Tensor, v: Tensor, x: Float[Tensor, "B T C"], context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as they are compared and mixed; turned by the context's rotation, if any."""
        if context.rotary is not None:
            q, k = context.rotary.turn(q), context.rotary.turn(k)
        return q, k, v

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        """Attend to the own and all earlier positions, those of the context's memory first."""
        q, k, v = self.prepare(*self.project(x), x, context)
        if context.memory is not None:
            k, v = context.memory.extend(self, k, v, loop=context.loop)
        return self.out(attend(q, k, v))


class SplitAttention(CausalAttention):
    """Causal self-attention with projections of their own for queries, keys and values."""

    def __init__(self, heads: Heads, *, bias: bool) -> None:
        super().__init__(heads, bias=bias)
        del self.qkv
        self.q = nn.Linear(heads.width, heads.query * heads.head_width, bias=bias)
        self.k = nn.Linear(heads.width, heads.key * heads.head_width, bias=bias)
        self.v = nn.Linear(heads.width, heads.key * heads.head_width, bias=bias)

    def project(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries ``B T H hd``, keys and values ``B T KV hd``."""
        width = self.heads.head_width
        return (
            self.q(x).unflatten(-1, (-1, width)),
            self.k(x).unflatten(-1, (-1, width)),
            self.v(x).unflatten(-1, (-1, width)),
        )


class Mlp(nn.Module):
    """Feed-forward: down(activation(up x))."""

    def __init__(self, width: int, hidden: int, *, bias: bool, activation: Activation) -> None:
        super().__init__()
        self._activation = activation
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Float[Tensor, "*shape C"]) -> Float[Tensor, "*shape C"]:
        """Widen, activate, narrow."""
        return self.down(self._activation(self.up(x)))


class PackedGatedMlp(nn.Module):
    """Gated feed-forward: down(activation(gate x) * up x), gate and up in one matrix, gate first."""

    def __init__(self, width: int, hidden: int, *, bias: bool, activation: Activation = F.silu) -> None:
        super().__init__()
        self._activation = activation
        self.gate_up = nn.Linear(width, 2 * hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Float[Tensor, "*shape C"]) -> Float[Tensor, "*shape C"]:
        """Gate, multiply, narrow."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self._activation(gate) * up)


class PreNormLayer(nn.Module):
    """x += attn(RMS_1(x)); x += mlp(RMS_2(x))."""

    def __init__(self, attention: CausalAttention, mlp: nn.Module, *, eps: float | None = None) -> None:
        super().__init__()
        width = attention.heads.width
        self.norm_1, self.norm_2 = rms_norm(width, eps), rms_norm(width, eps)
        self.attention, self.mlp = attention, mlp

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        """Add what attention and feed-forward make of the normed state."""
        x = x + self.attention(self.norm_1(x), context)
        return x + self.mlp(self.norm_2(x))
