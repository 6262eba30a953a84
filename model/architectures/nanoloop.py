"""nanoLOOP: a nanoGPT-style fork with one looped block, normed at the end of every loop.

Source: the public project of that name (LoopedLMs); it has no paper of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from model.architecture import LoopedNetwork, NativeArchitecture, Space
from model.config import choice, integer, layers, section, switch
from model.layers import CausalAttention, Heads, Mlp, PreNormLayer, rms_norm
from model.nanogpt import nanogpt_keys, with_bias
from model.skeleton import Parts, PreludeCoreCoda, layer_keys
from model.start import InitialRule

_INJECTIONS = ("inject_random", "inject", "passthrough")


@dataclass(frozen=True)
class _Config:
    heads: Heads
    context: int
    vocabulary: int
    prelude: int
    core: int
    coda: int
    bias: bool
    injection: str


def _read_config(config: Mapping[str, Any]) -> _Config:
    args = section(config, "model_args")
    return _Config(
        heads=Heads.of(integer(args, "n_embd"), integer(args, "n_head")),
        context=integer(args, "block_size"),
        vocabulary=integer(args, "vocab_size"),
        prelude=layers(args, "n_prelude"),
        core=layers(args, "n_block", least=1),
        coda=layers(args, "n_coda"),
        bias=switch(args, "bias", default=False),
        injection=choice(args, "input_injection", _INJECTIONS),
    )


def _layer(config: _Config) -> PreNormLayer:
    """The feed-forward is of fourfold width, its GELU the exact one."""
    width, bias = config.heads.width, config.bias
    return PreNormLayer(CausalAttention(config.heads, bias=bias), Mlp(width, 4 * width, bias=bias, activation=F.gelu))


class _Network(PreludeCoreCoda):
    def __init__(self, config: _Config) -> None:
        width = config.heads.width
        super().__init__(
            Parts(
                prelude=[_layer(config) for _ in range(config.prelude)],
                core=[_layer(config) for _ in range(config.core)],
                coda=[_layer(config) for _ in range(config.coda)],
                norm=rms_norm(width),
                loop_norm=rms_norm(width),
                width=width,
                vocabulary=config.vocabulary,
                context=config.context,
                tied=True,
                name="recur",
            )
        )
        self.positions = nn.Embedding(config.context, width)
        self.adapter = None if config.injection == "passthrough" else nn.Linear(2 * width, width, bias=False)

    def place(self, x: Float[Tensor, "B T C"], first: int) -> Float[Tensor, "B T C"]:
        return x + self.positions(torch.arange(first, first + x.shape[1], device=x.device))

    def inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T C"], loop: int) -> Float[Tensor, "B T C"]:
        return state if self.adapter is None else self.adapter(torch.cat([entry, state], dim=-1))


_NORM_KEYS = {"ln_1.weight": "norm_1.weight", "ln_2.weight": "norm_2.weight"}


@dataclass(frozen=True)
class NanoLoop(NativeArchitecture):
    """nanoLOOP, a looped fork of nanoGPT."""

    name: ClassVar[str] = "nanoloop"
    title: ClassVar[str] = "nanoLOOP"
    space: ClassVar[Space] = "normed"
    injection: ClassVar[str] = "inject([entry; state]) before every loop, none in mode passthrough"
    logit_lens: ClassVar[str] = "ln_f (another weight than the loop's norm), head"
    recognised_by: ClassVar[str] = "`model_args` with `n_prelude`, `n_block`, `n_loop`; `transformer.recur.N` and `norm_recur`"
    verified: ClassVar[str] = (
        "states, logits, every coda-lens logit; cross-entropy at eight depths and a greedy continuation of a trained one"
    )

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """The model arguments count prelude, block and coda, and the loop has a norm of its own."""
        args: Any = config.get("model_args", config)
        named = isinstance(args, Mapping) and "n_prelude" in args and "input_injection" in args
        return named and "norm_recur.weight" in keys

    def settled(self, config: Mapping[str, Any], keys: frozenset[str]) -> Mapping[str, Any]:
        """A missing ``bias`` is read from the tensor names."""
        return with_bias(config, keys)

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is missing, odd or not supported."""
        return _Network(_read_config(config))

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The project's tensor names -> ours; lm_head shares its storage with the token embedding."""
        read = _read_config(config)
        own = _NORM_KEYS | nanogpt_keys(bias=read.bias)
        names: dict[str, str | None] = {
            "transformer.wte.weight": "tokens.weight",
            "lm_head.weight": "tokens.weight",
            "transformer.wpe.weight": "positions.weight",
            "transformer.ln_f.weight": "norm.weight",
            "norm_recur.weight": "core.norm.weight",
        }
        if read.injection != "passthrough":
            names["inject.weight"] = "adapter.weight"
        parts = (("prelude", "prelude", read.prelude), ("recur", "core.layers", read.core), ("coda", "coda", read.coda))
        for theirs, ours, count in parts:
            names |= layer_keys(f"transformer.{theirs}", ours, count, own)
        return names

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``n_loop``."""
        loops = self.config_loops(config)
        return None if loops is None else float(loops[0])

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``n_loop``."""
        args = section(config, "model_args")
        return (integer(args, "n_loop"),) if args.get("n_loop") is not None else None

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """Standard normal times width^-0.5 in mode inject_random, else a copy of the entry."""
        read = _read_config(config)
        if read.injection == "inject_random":
            return InitialRule(std=read.heads.width**-0.5, from_entry=False)
        return InitialRule(std=0.0, from_entry=True)
