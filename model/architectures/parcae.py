"""Parcae: a looped block whose state decays channel by channel towards an injected, normed entry.

Source: "Parcae" (arXiv 2604.12946), in the form of the authors' public training code.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from model.architecture import Context, LoopedNetwork, NativeArchitecture, Space
from model.capture.head import Head
from model.config import choice, integer, layers, mean_loops, number, run_loops, switch
from model.layers import (
    Activation,
    Heads,
    Mlp,
    PackedGatedMlp,
    PreNormLayer,
    Rotary,
    SplitAttention,
    rms_norm,
    rotary_from_table,
)
from model.skeleton import Parts, PreludeCoreCoda, layer_keys
from model.start import InitialRule

_GATE_CHANNELS = 32
_EMBED_SCALES = ("scaled-zero", "takase")
_ACTIVATIONS: Mapping[str, Activation] = {
    "ReLU2": lambda x: 0.5 * F.relu(x).square(),
    "ReLU": F.relu,
    "SiLU": F.silu,
    "GELU": F.gelu,
}


@dataclass(frozen=True)
class _Place:
    """A layer: its sizes, its activation, and whether value embeddings reach it. ``number`` counts over the whole network."""

    heads: Heads
    hidden: int
    number: int
    value_gate: bool


@dataclass(frozen=True)
class _Config:
    prelude: tuple[_Place, ...]
    core: tuple[_Place, ...]
    coda: tuple[_Place, ...]
    context: int
    vocabulary: int
    eps: float
    bias: bool
    qk_bias: bool
    qk_norm: bool
    gated: bool
    activation: str
    injection: str
    prelude_norm: bool
    embed_scale: float
    softcap: float | None
    tied: bool

    @property
    def places(self) -> tuple[_Place, ...]:
        """All layers in the order in which they run, those of the loop once."""
        return self.prelude + self.core + self.coda

    @property
    def width(self) -> int:
        """Width of the layers around the loop."""
        return self.prelude[0].heads.width if self.prelude else self.coda[0].heads.width

    @property
    def state_width(self) -> int:
        """Width of the iterates."""
        return self.core[0].heads.width


def _read_config(config: Mapping[str, Any]) -> _Config:
    choice(config, "block_class_name", ("TransformerPreNormBlock",), "TransformerPreNormBlock")
    for field in ("center_attention", "debias_attention", "use_abacus"):
        if switch(config, field, default=False):
            raise ValueError(f"{field} is true; this version can build false only.")
    if config.get("clip_qkv") is not None:
        raise ValueError(f"clip_qkv is {config['clip_qkv']!r}; this version can build null only.")
    width, softcap = integer(config, "n_embd"), config.get("logit_softcap")
    return _Config(
        *_places(config),
        context=integer(config, "block_size"),
        vocabulary=integer(config, "padded_vocab_size", config.get("vocab_size")),
        eps=number(config, "norm_eps", 1e-5),
        bias=switch(config, "bias", default=False),
        qk_bias=switch(config, "qk_bias", default=False),
        qk_norm=switch(config, "qk_norm", default=True),
        gated=choice(config, "mlp_class_name", ("BaseMLP", "GatedMLP"), "BaseMLP") == "GatedMLP",
        activation=choice(config, "nonlin_name", tuple(_ACTIVATIONS), "ReLU2"),
        injection=choice(config, "injection_type", ("diagonal", "linear", "add"), "diagonal"),
        prelude_norm=switch(config, "prelude_norm", default=True),
        embed_scale=math.sqrt(width) if choice(config, "init_strategy", _EMBED_SCALES, "scaled-zero") == "takase" else 1.0,
        softcap=None if softcap is None or softcap == 0 else number(config, "logit_softcap"),
        tied=switch(config, "tie_embeddings", default=True),
    )


def _places(config: Mapping[str, Any]) -> tuple[tuple[_Place, ...], tuple[_Place, ...], tuple[_Place, ...]]:
    """The layers of prelude, core and coda."""
    outer, inner = _heads(config)
    hidden = integer(config, "intermediate_size")
    wide = integer(config, "recurrent_intermediation_embedding_dimension", hidden)
    prelude, core, coda = _counts(config)
    if prelude + coda == 0:
        raise ValueError(
            "n_layers_in_prelude and n_layers_in_coda are both 0; at least one layer around the loop was expected."
        )
    gates = set(cast("list[int]", config.get("value_embedding_layers", [])))

    def places(heads: Heads, width: int, numbers: range) -> tuple[_Place, ...]:
        return tuple(_Place(heads, width, number=n, value_gate=n in gates) for n in numbers)

    above = prelude + core
    return (
        places(outer, hidden, range(prelude)),
        places(inner, wide, range(prelude, above)),
        places(outer, hidden, range(above, above + coda)),
    )


def _heads(config: Mapping[str, Any]) -> tuple[Heads, Heads]:
    """Around the loop and inside; one rotary table has to fit both."""
    width, heads = integer(config, "n_embd"), integer(config, "num_attention_heads")
    outer = Heads.of(width, heads, integer(config, "num_key_value_heads", heads))
    state = integer(config, "recurrent_embedding_dimension", width)
    inner = Heads.of(state, outer.query, outer.key)
    if config.get("recurrent_num_attention_heads") is not None:
        inner = Heads.of(state, integer(config, "recurrent_num_attention_heads"))
    if inner.head_width != outer.head_width:
        raise ValueError(
            f"heads are {inner.head_width} wide inside the loop and {outer.head_width} outside; the one rotary table "
            "in the file fits equal widths only."
        )
    return outer, inner


def _counts(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Numbers of layers in prelude, core and coda."""
    return (
        layers(config, "n_layers_in_prelude"),
        layers(config, "n_layers_in_recurrent_block", least=1),
        layers(config, "n_layers_in_coda"),
    )


class _Attention(SplitAttention):
    """Queries and keys: bias, rotation, RMS norm per head without weight. Values: plus a gated embedding of the token."""

    def __init__(self, config: _Config, place: _Place) -> None:
        super().__init__(place.heads, bias=config.bias)
        heads, self._normed, self._number = place.heads, config.qk_norm, place.number
        shape = (2, 1, heads.query, heads.head_width)
        self.qk_bias = nn.Parameter(torch.zeros(shape)) if config.qk_bias else None
        self.value_gate = nn.Linear(_GATE_CHANNELS, heads.key, bias=False) if place.value_gate else None
        self.values = nn.Embedding(config.vocabulary, heads.key * heads.head_width) if place.value_gate else None

    def prepare(
        self, q: Tensor, k: Tensor, v: Tensor, x: Float[Tensor, "B T C"], context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.value_gate is not None and self.values is not None:
            gate = 2 * torch.sigmoid(self.value_gate(x[..., :_GATE_CHANNELS]))
            v = v + gate[..., None] * self.values(context.ids).unflatten(-1, v.shape[-2:])
        if self.qk_bias is not None:
            q, k = q + self.qk_bias[0], k + self.qk_bias[1]
        q, k, v = super().prepare(q, k, v, x, context)
        if self._normed:
            q, k = (F.rms_norm(y, (y.shape[-1],)) for y in (q, k))
        return q, k, v


def _layer(config: _Config, place: _Place) -> PreNormLayer:
    """The feed-forward is plain, or gated with gate and up packed in one matrix."""
    attention = _Attention(config, place)
    kind, activation = PackedGatedMlp if config.gated else Mlp, _ACTIVATIONS[config.activation]
    mlp = kind(place.heads.width, place.hidden, bias=config.bias, activation=activation)
    return PreNormLayer(attention, mlp, eps=config.eps)


class _Diagonal(nn.Module):
    """x exp(-s exp(A)) + s (e B^T) with s = softplus(bias): every channel decays at its own rate."""

    def __init__(self, width: int, state_width: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.zeros(state_width))
        self.dt_bias = nn.Parameter(torch.zeros(state_width))
        self.B = nn.Parameter(torch.zeros(state_width, width))

    def forward(self, state: Float[Tensor, "B T S"], entry: Float[Tensor, "B T C"]) -> Float[Tensor, "B T S"]:
        step = F.softplus(self.dt_bias)
        return state * torch.exp(-step * torch.exp(self.A_log)) + step * (entry @ self.B.T)


class _Linear(nn.Module):
    """adapter([x; e])."""

    def __init__(self, width: int, state_width: int, *, bias: bool) -> None:
        super().__init__()
        self.adapter = nn.Linear(state_width + width, state_width, bias=bias)

    def forward(self, state: Float[Tensor, "B T S"], entry: Float[Tensor, "B T C"]) -> Float[Tensor, "B T S"]:
        return self.adapter(torch.cat([state, entry], dim=-1))


class _Network(PreludeCoreCoda):
    def __init__(self, config: _Config) -> None:
        super().__init__(
            Parts(
                prelude=[_layer(config, place) for place in config.prelude],
                core=[_layer(config, place) for place in config.core],
                coda=[_layer(config, place) for place in config.coda],
                norm=rms_norm(config.width, config.eps),
                width=config.width,
                state_width=config.state_width,
                vocabulary=config.vocabulary,
                context=config.context,
                tied=config.tied,
                name="core_block",
            )
        )
        self._config = config
        self.entry_norm = rms_norm(config.width, config.eps) if config.prelude_norm else nn.Identity()
        self.out = nn.Linear(config.state_width, config.width, bias=False)
        half = config.places[0].heads.head_width // 2
        self.table = nn.Buffer(torch.zeros(1, config.context, 1, half, 2))
        self.adapter: nn.Module | None = None
        if config.injection == "diagonal":
            self.adapter = _Diagonal(config.width, config.state_width)
        elif config.injection == "linear":
            self.adapter = _Linear(config.width, config.state_width, bias=config.bias)

    @property
    def head(self) -> Head:
        plain = super().head
        return plain if self._config.softcap is None else Head(plain.weight, softcap=self._config.softcap)

    def rotary(self, tokens: int) -> Rotary:
        return rotary_from_table(self.table, tokens)

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        return self.tokens(ids) * self._config.embed_scale

    def enter(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.entry_norm(x)

    def inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T S"], loop: int) -> Float[Tensor, "B T S"]:
        return state + entry if self.adapter is None else self.adapter(state, entry)

    def leave(self, state: Float[Tensor, "B T S"]) -> Float[Tensor, "B T C"]:
        return self.out(state)

    def glance(self, state: Float[Tensor, "B T S"]) -> Float[Tensor, "B T C"]:
        return self.norm(self.out(state))


_LAYER_KEYS = {
    "norm_1.weight": "norm_1.weight",
    "norm_2.weight": "norm_2.weight",
    "attn.c_q.weight": "attention.q.weight",
    "attn.c_k.weight": "attention.k.weight",
    "attn.c_v.weight": "attention.v.weight",
    "attn.c_proj.weight": "attention.out.weight",
    "mlp.proj.weight": "mlp.down.weight",
}
_INJECTION_KEYS: Mapping[str, tuple[str, ...]] = {
    "diagonal": ("A_log", "dt_bias", "B"),
    "linear": ("adapter.weight",),
    "add": (),
}


def _value_layers(keys: frozenset[str], counts: tuple[int, int, int]) -> tuple[list[int], list[str]]:
    """Layers with both a gate and a table of value embeddings, and the names of those that have no counterpart."""
    places: dict[int, str] = {}
    for part, first, count in zip(
        ("prelude", "core_block", "coda"), (0, counts[0], counts[0] + counts[1]), counts, strict=True
    ):
        places |= {first + i: f"transformer.{part}.{i}.attn.ve_gate.weight" for i in range(count)}
    both = [n for n, gate in places.items() if gate in keys and f"value_embeds.{n}.weight" in keys]
    named = {places[n] for n in both} | {f"value_embeds.{n}.weight" for n in both}
    alone = [key for key in keys if (key.endswith(".ve_gate.weight") or key.startswith("value_embeds.")) and key not in named]
    return both, sorted(alone)


@dataclass(frozen=True)
class Parcae(NativeArchitecture):
    """Parcae, a looped transformer with a decaying state (arXiv 2604.12946)."""

    name: ClassVar[str] = "parcae"
    title: ClassVar[str] = "Parcae"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "state decayed per channel plus a linear map of the normed entry, before every loop"
    logit_lens: ClassVar[str] = "C (back to the model's width), ln_f, head"
    recognised_by: ClassVar[str] = (
        "`_class_name` ParcaeConfig with `injection_type`; `transformer.C` and `transformer.core_block.N`"
    )
    verified: ClassVar[str] = (
        "states, logits, every coda-lens logit (diagonal injection, value embeddings, normed queries and keys)"
    )

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """The class name stands in the config, and the state is mapped back by its own matrix."""
        return config.get("_class_name") == "ParcaeConfig" and "injection_type" in config and "transformer.C.weight" in keys

    def settled(self, config: Mapping[str, Any], keys: frozenset[str]) -> Mapping[str, Any]:
        """Which layers have value embeddings stands in the tensor names alone."""
        both, alone = _value_layers(keys, _counts(config))
        return {**config, "value_embedding_layers": both, "unused_value_embeddings": alone}

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is missing, odd or not supported."""
        return _Network(_read_config(config))

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The authors' tensor names -> ours."""
        read = _read_config(config)
        own = _LAYER_KEYS | {"mlp.fc.weight": "mlp.gate_up.weight" if read.gated else "mlp.up.weight"}
        if read.bias:
            own |= {a.replace("weight", "bias"): b.replace("weight", "bias") for a, b in own.items() if "norm" not in a}
        if read.qk_bias:
            own["attn.qk_bias"] = "attention.qk_bias"
        names: dict[str, str | None] = {
            "transformer.wte.weight": "tokens.weight",
            "lm_head.weight": "tokens.weight" if read.tied else "lm_head.weight",
            "transformer.C.weight": "out.weight",
            "transformer.ln_f.weight": "norm.weight",
            "freqs_cis": "table",
        }
        if read.prelude_norm:
            names["transformer.ln_prelude.weight"] = "entry_norm.weight"
        own_adapter = _INJECTION_KEYS[read.injection] + (("adapter.bias",) if read.bias and read.injection == "linear" else ())
        names |= {f"transformer.adapter.{key}": f"adapter.{key}" for key in own_adapter}
        parts = (("prelude", "prelude", read.prelude), ("core_block", "core.layers", read.core), ("coda", "coda", read.coda))
        for theirs, ours, places in parts:
            names |= layer_keys(f"transformer.{theirs}", ours, len(places), own)
            for i, place in enumerate(places):
                if place.value_gate:
                    names[f"transformer.{theirs}.{i}.attn.ve_gate.weight"] = f"{ours}.{i}.attention.value_gate.weight"
                    names[f"value_embeds.{place.number}.weight"] = f"{ours}.{i}.attention.values.weight"
        return names | dict.fromkeys(cast("list[str]", config.get("unused_value_embeddings", [])))

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``mean_recurrence``."""
        return mean_loops(config, "mean_recurrence")

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``mean_recurrence``, which the authors' code runs in evaluation."""
        return run_loops(config, "mean_recurrence")

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """``state_init``: like-init is a truncated normal of std sqrt(2 / (5 width)) times the embedding scale."""
        read = _read_config(config)
        kind = choice(config, "state_init", ("like-init", "normal", "embed", "zero", "unit"), "like-init")
        if kind == "like-init":
            return InitialRule(std=math.sqrt(2 / (5 * read.width)) * read.embed_scale, from_entry=False, cut=3.0)
        stds = {"normal": 1.0, "unit": 1.0, "embed": read.width**-0.5, "zero": 0.0}
        return InitialRule(std=stds[kind], from_entry=False, standardised=kind == "unit")
