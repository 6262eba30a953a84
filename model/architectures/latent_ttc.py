"""The two-scale paper's network: a GPT whose layer groups are looped one after another.

Source: Pappone et al., "Two-Scale Latent Dynamics for Recurrent-Depth Transformers", arXiv 2509.23314,
section 2, in the form of the authors' public training code.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from model.architecture import BlockSpec, Context, InitialState, LoopedNetwork, NativeArchitecture, Observe, Space, Stops
from model.capture.head import Head
from model.config import integer, layers, number, section, switch
from model.layers import CausalAttention, Heads, LayerNorm, Mlp, rms_norm
from model.nanogpt import nanogpt_keys, with_bias
from model.native_network import LoopBody, NativeNetwork
from model.start import InitialRule


@dataclass(frozen=True)
class _Config:
    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int
    bias: bool
    groups: tuple[tuple[int, ...], ...]
    concat: bool
    noise_scale: float

    @property
    def noise_std(self) -> float:
        """Std of the initial state, sqrt(2 / (5 width)) times the configured scale."""
        return math.sqrt(2 / (5 * self.width)) * self.noise_scale


def _read_config(config: Mapping[str, Any]) -> _Config:
    args = section(config, "model_args")
    read = _Config(
        layers=layers(args, "n_layer", least=1),
        heads=integer(args, "n_head"),
        width=integer(args, "n_embd"),
        context=integer(args, "block_size"),
        vocabulary=integer(args, "vocab_size"),
        bias=switch(args, "bias", default=True),
        groups=_groups(args.get("loop_groups")),
        concat=switch(args, "concatenate_initial_representation", default=False),
        noise_scale=number(args, "loop_noise_scale", 0.0),
    )
    flat = [i for group in read.groups for i in group]
    if not flat or flat != sorted(set(flat)) or flat[0] < 0 or flat[-1] >= read.layers:
        raise ValueError(
            f"loop_groups is {[list(g) for g in read.groups]} for {read.layers} layers; expected rising layer "
            "indices from 0, each in one group."
        )
    if any(group != tuple(range(group[0], group[-1] + 1)) for group in read.groups):
        raise ValueError(f"loop_groups is {[list(g) for g in read.groups]}; the layers of a group must be adjacent.")
    Heads.of(read.width, read.heads)  # raises where the heads do not divide the width
    return read


def _groups(value: Any) -> tuple[tuple[int, ...], ...]:
    groups = [_list(group) for group in _list(value)]
    if not groups or not all(group and all(type(i) is int for i in group) for group in groups):
        raise ValueError(f"loop_groups is {value!r}; a list of lists of layer indices was expected.")
    return tuple(tuple(group) for group in groups)


def _list(value: Any) -> list[Any]:
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []


class _Layer(nn.Module):
    """x += RMS_out(attn(RMS_in(x))); x += RMS_mlp(mlp(x)). The feed-forward reads the residual without a norm."""

    def __init__(self, config: _Config) -> None:
        super().__init__()
        self.norm_in = rms_norm(config.width)
        self.attention = CausalAttention(Heads.of(config.width, config.heads), bias=config.bias)
        self.norm_out = rms_norm(config.width)
        self.mlp = Mlp(config.width, 4 * config.width, bias=config.bias, activation=F.silu)
        self.norm_mlp = rms_norm(config.width)

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        x = x + self.norm_out(self.attention(self.norm_in(x), context))
        return x + self.norm_mlp(self.mlp(x))


class _Network(NativeNetwork):
    def __init__(self, config: _Config) -> None:
        super().__init__()
        self.config = config
        self.width, self.vocabulary, self.context = config.width, config.vocabulary, config.context
        self.blocks = tuple(BlockSpec(f"h[{','.join(map(str, g))}]", g) for g in config.groups)
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.stages = nn.ModuleList(
            LoopBody([_Layer(config) for _ in layers]) if looped else _Layer(config) for looped, layers in _stages(config)
        )
        self.adapter = nn.Linear(2 * config.width, config.width) if config.concat else None
        self.norm = LayerNorm(config.width, bias=config.bias)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=math.sqrt(2 / (5 * self.width)))
        bias: nn.Parameter | None = getattr(module, "bias", None)
        if bias is not None:
            nn.init.zeros_(bias)

    @property
    def bodies(self) -> tuple[LoopBody, ...]:
        return tuple(stage for stage in self.stages if isinstance(stage, LoopBody))

    def run(
        self,
        context: Context,
        *,
        loops: Sequence[int],
        initial_state: InitialState,
        observe: Observe,
        stops: Stops,
    ) -> Float[Tensor, "B T V"]:
        ids, first = context.ids, context.first
        x = self.tokens(ids) + self.positions(torch.arange(first, first + ids.shape[1], device=ids.device))
        x = x * math.sqrt(self.width)
        block = 0
        for stage in self.stages:
            if isinstance(stage, LoopBody):
                # A single loop, where no more were asked for, is a plain pass: neither noise nor adapter.
                plain = loops[block] == 1
                start = x if plain else initial_state(block, x)
                observe(block, x, start)
                turn = _plain_turn(stage) if plain else self._turn(stage, x)
                x = self.iterate(block, start, loops=loops[block], turn=turn, context=context, stops=stops)
                block += 1
            else:
                x = stage(x, context)
        return self.head.logits(self.norm(x))

    def _turn(self, body: LoopBody, entry: Float[Tensor, "B T C"]) -> Callable[[Tensor, int, Context], Tensor]:
        return lambda state, loop, context: body(self._inject(entry, state, loop), context)

    def _inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T C"], loop: int) -> Float[Tensor, "B T C"]:
        if self.adapter is not None:
            return self.adapter(torch.cat([entry, state], dim=-1))
        return state if loop == 1 else entry + state

    def glance(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.norm(state)

    def above(self, state: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        last = max(i for i, stage in enumerate(self.stages) if isinstance(stage, LoopBody))
        for stage in self.stages[last + 1 :]:
            state = stage(state, context)
        return self.norm(state)

    @property
    def head(self) -> Head:
        return Head(self.tokens.weight)


def _plain_turn(body: LoopBody) -> Callable[[Tensor, int, Context], Tensor]:
    return lambda state, loop, context: body(state, context)


def _stages(config: _Config) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """(looped?, layer indices) in the order in which the stages run."""
    starts = {group[0]: group for group in config.groups}
    inside = {i for group in config.groups for i in group}
    for i in range(config.layers):
        if i in starts:
            yield True, starts[i]
        elif i not in inside:
            yield False, (i,)


_NORM_KEYS = {
    "rms_norm_attn_input.weight": "norm_in.weight",
    "rms_norm_attn_output.weight": "norm_out.weight",
    "rms_norm_mlp_output.weight": "norm_mlp.weight",
}


@dataclass(frozen=True)
class LatentTTC(NativeArchitecture):
    """The two-scale paper's looped GPT (arXiv 2509.23314, section 2)."""

    name: ClassVar[str] = "latent_ttc"
    title: ClassVar[str] = "Two-scale looped GPT"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "adapter([entry; state]) before every loop, or entry + state from loop 2 on"
    logit_lens: ClassVar[str] = "ln_f, head"
    recognised_by: ClassVar[str] = "`model_args` (or config.json) with `loop_groups`; `rms_norm_mlp_output` in every layer"
    verified: ClassVar[str] = (
        "states, entries, hand-offs, logits, every coda-lens logit; with adapter and without, with biases and without"
    )

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """Config has loop groups, and the layers carry the family's three norms."""
        args: Any = config.get("model_args", config)
        layers_here = any(key.startswith("transformer.h.") and key.endswith("rms_norm_mlp_output.weight") for key in keys)
        return isinstance(args, Mapping) and "loop_groups" in args and layers_here

    def settled(self, config: Mapping[str, Any], keys: frozenset[str]) -> Mapping[str, Any]:
        """A missing ``bias`` is read from the tensor names."""
        return with_bias(config, keys)

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError when a size or a group is missing or contradictory."""
        return _Network(_read_config(config))

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The authors' tensor names -> ours. lm_head shares its storage with the token embedding."""
        read = _read_config(config)
        names: dict[str, str | None] = {
            "transformer.wte.weight": "tokens.weight",
            "transformer.wpe.weight": "positions.weight",
            "transformer.ln_f.weight": "norm.weight",
            "lm_head.weight": "tokens.weight",
        }
        if read.bias:
            names["transformer.ln_f.bias"] = "norm.bias"
        if read.concat:
            names["initial_representation_adapter.weight"] = "adapter.weight"
            names["initial_representation_adapter.bias"] = "adapter.bias"
        own = _NORM_KEYS | nanogpt_keys(bias=read.bias)
        for stage, (looped, members) in enumerate(_stages(read)):
            for place, layer in enumerate(members):
                prefix = f"stages.{stage}.layers.{place}" if looped else f"stages.{stage}"
                names |= {f"transformer.h.{layer}.{theirs}": f"{prefix}.{ours}" for theirs, ours in own.items()}
        return names

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """Mean of the training distribution, r + 1, where the trainer wrote it into the config."""
        training: Any = config.get("training")
        if not isinstance(training, Mapping) or training.get("mean_loops") is None:
            return None
        return number(cast("Mapping[str, Any]", training), "mean_loops")

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``loop_counts`` per group (0 or less means 1), else ``max_loops`` for all."""
        args, groups = section(config, "model_args"), len(_read_config(config).groups)
        counts: Any = args.get("loop_counts")
        if isinstance(counts, list | tuple) and len(cast("list[Any]", counts)) == groups:
            return tuple(max(1, int(n)) for n in cast("list[Any]", counts))
        return (integer(args, "max_loops"),) * groups if args.get("max_loops") is not None else None

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """Noise alone in adapter models; the entry, plus noise if any, without an adapter or with noise scale 0."""
        read = _read_config(config)
        return InitialRule(std=read.noise_std, from_entry=not read.concat or read.noise_scale == 0)
