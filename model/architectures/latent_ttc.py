"""The two-scale paper's network: a GPT whose layer groups are looped one after another.

Source: Pappone et al., "Two-Scale Latent Dynamics for Recurrent-Depth Transformers", arXiv 2509.23314,
section 2, in the form of the authors' public training code.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import BlockSpec, InitialRule, InitialState, Lens, LoopBody, LoopedNetwork, Observe, Space, ignore
from model.layers import CausalAttention, LayerNorm, SiluMlp, rms_norm


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
    args = config.get("model_args", config)
    missing = [name for name in ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "loop_groups") if name not in args]
    if missing:
        raise ValueError(f"The latent_ttc config has no {', '.join(missing)}; it needs all of them in model_args.")
    read = _Config(
        layers=int(args["n_layer"]),
        heads=int(args["n_head"]),
        width=int(args["n_embd"]),
        context=int(args["block_size"]),
        vocabulary=int(args["vocab_size"]),
        bias=bool(args.get("bias", True)),
        groups=tuple(tuple(int(i) for i in group) for group in args["loop_groups"]),
        concat=bool(args.get("concatenate_initial_representation", False)),
        noise_scale=float(args.get("loop_noise_scale", 0.0)),
    )
    flat = [i for group in read.groups for i in group]
    if not flat or flat != sorted(set(flat)) or flat[0] < 0 or flat[-1] >= read.layers:
        raise ValueError(
            f"loop_groups is {[list(g) for g in read.groups]} for {read.layers} layers; expected rising layer "
            "indices from 0, each in one group."
        )
    if any(group != tuple(range(group[0], group[-1] + 1)) for group in read.groups):
        raise ValueError(f"loop_groups is {[list(g) for g in read.groups]}; the layers of a group must be adjacent.")
    if read.width % read.heads:
        raise ValueError(f"n_embd {read.width} is no multiple of n_head {read.heads}.")
    return read


class _Layer(nn.Module):
    """x += RMS_out(attn(RMS_in(x))); x += RMS_mlp(mlp(x)). The feed-forward reads the residual without a norm."""

    def __init__(self, config: _Config) -> None:
        super().__init__()
        self.norm_in = rms_norm(config.width)
        self.attention = CausalAttention(config.width, config.heads, bias=config.bias)
        self.norm_out = rms_norm(config.width)
        self.mlp = SiluMlp(config.width, bias=config.bias)
        self.norm_mlp = rms_norm(config.width)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        x = x + self.norm_out(self.attention(self.norm_in(x)))
        return x + self.norm_mlp(self.mlp(x))


class _Network(LoopedNetwork):
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

    def forward(
        self, ids: Int[Tensor, "B T"], *, loops: Sequence[int], initial_state: InitialState, observe: Observe = ignore
    ) -> Float[Tensor, "B T V"]:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = x * math.sqrt(self.width)
        block = 0
        for stage in self.stages:
            if isinstance(stage, LoopBody):
                # A single loop is a plain pass: neither noise nor adapter.
                start = x if loops[block] == 1 else initial_state(block, x)
                observe(block, x, start)
                x = stage(x) if loops[block] == 1 else self._loop(stage, x, loops=loops[block], state=start)
                block += 1
            else:
                x = stage(x)
        return self.norm(x) @ self.head_weight.T

    def _loop(
        self, body: LoopBody, entry: Float[Tensor, "B T C"], *, loops: int, state: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        first_with_gradient = 1 if self.gradient_loops is None else loops - self.gradient_loops + 1
        for loop in range(1, loops + 1):
            with torch.set_grad_enabled(torch.is_grad_enabled() and loop >= first_with_gradient):
                state = body(self._inject(entry, state, loop))
        return state

    def _inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T C"], loop: int) -> Float[Tensor, "B T C"]:
        if self.adapter is not None:
            return self.adapter(torch.cat([entry, state], dim=-1))
        return state if loop == 1 else entry + state

    def features(self, state: Float[Tensor, "B T C"], *, lens: Lens) -> Float[Tensor, "B T C"]:
        if lens == "coda":
            last = max(i for i, stage in enumerate(self.stages) if isinstance(stage, LoopBody))
            for stage in self.stages[last + 1 :]:
                state = stage(state)
        return self.norm(state)

    @property
    def head_weight(self) -> Float[Tensor, "V C"]:
        return self.tokens.weight


def _stages(config: _Config) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """(looped?, layer indices) in the order in which the stages run."""
    starts = {group[0]: group for group in config.groups}
    inside = {i for group in config.groups for i in group}
    for i in range(config.layers):
        if i in starts:
            yield True, starts[i]
        elif i not in inside:
            yield False, (i,)


_LAYER_KEYS = {
    "rms_norm_attn_input.weight": "norm_in.weight",
    "attn.c_attn.weight": "attention.qkv.weight",
    "attn.c_attn.bias": "attention.qkv.bias",
    "attn.c_proj.weight": "attention.out.weight",
    "attn.c_proj.bias": "attention.out.bias",
    "rms_norm_attn_output.weight": "norm_out.weight",
    "mlp.c_fc.weight": "mlp.up.weight",
    "mlp.c_fc.bias": "mlp.up.bias",
    "mlp.c_proj.weight": "mlp.down.weight",
    "mlp.c_proj.bias": "mlp.down.bias",
    "rms_norm_mlp_output.weight": "norm_mlp.weight",
}


@dataclass(frozen=True)
class LatentTTC:
    """The two-scale paper's looped GPT (arXiv 2509.23314, section 2)."""

    name: ClassVar[str] = "latent_ttc"
    title: ClassVar[str] = "Two-scale looped GPT"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "adapter([entry; state]) before every loop, or entry + state from loop 2 on"

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """Config has loop groups, and the layers carry the family's three norms."""
        args = config.get("model_args", config)
        return "loop_groups" in args and any(key.endswith("rms_norm_mlp_output.weight") for key in keys)

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
            "lm_head.weight": None,
        }
        if read.bias:
            names["transformer.ln_f.bias"] = "norm.bias"
        if read.concat:
            names["initial_representation_adapter.weight"] = "adapter.weight"
            names["initial_representation_adapter.bias"] = "adapter.bias"
        for stage, (looped, layers) in enumerate(_stages(read)):
            for place, layer in enumerate(layers):
                prefix = f"stages.{stage}.layers.{place}" if looped else f"stages.{stage}"
                for theirs, ours in _LAYER_KEYS.items():
                    if read.bias or not theirs.endswith(".bias"):
                        names[f"transformer.h.{layer}.{theirs}"] = f"{prefix}.{ours}"
        return names

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """Mean of the training distribution, r + 1, where the trainer wrote it into the config."""
        mean = config.get("training", {}).get("mean_loops")
        return None if mean is None else float(mean)

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """Noise alone in adapter models; the entry, plus noise if any, without an adapter or with noise scale 0."""
        read = _read_config(config)
        return InitialRule(std=read.noise_std, from_entry=not read.concat or read.noise_scale == 0)
