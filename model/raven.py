"""What Huginn and the retrofitted models share, which are of one code base: sizes, network, tensor names, noise.

Source: Geiping et al., arXiv 2502.05171, and McLeish et al., arXiv 2511.07384, in the form of the authors' public code.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from model.config import choice, integer, layers, mapping, number, switch
from model.layers import Heads, rms_norm
from model.skeleton import Parts, PreludeCoreCoda, layer_keys
from model.start import InitialRule


@dataclass(frozen=True)
class RavenSizes:
    """What every layer of the code base is built from, and how many there are below, inside and above the loop."""

    heads: Heads
    hidden: int
    context: int
    vocabulary: int
    prelude: int
    core: int
    coda: int
    eps: float
    bias: bool
    tied: bool


def read_sizes(config: Mapping[str, Any], *, heads: Heads, context: int, tied: bool) -> RavenSizes:
    """The sizes that both families read alike, beside those that each reads in its own way.

    ``tied`` is what holds where the config does not tell. Raises ValueError naming the field that is missing, odd or not
    supported.
    """
    choice(config, "mlp_class_name", ("GatedMLP",), "GatedMLP")
    choice(config, "nonlin_name", ("SiLU",), "SiLU")
    choice(config, "injection_type", ("linear",), "linear")
    return RavenSizes(
        heads=heads,
        hidden=integer(config, "intermediate_size"),
        context=context,
        vocabulary=integer(config, "padded_vocab_size", config.get("vocab_size")),
        prelude=layers(config, "n_layers_in_prelude"),
        core=layers(config, "n_layers_in_recurrent_block", least=1),
        coda=layers(config, "n_layers_in_coda"),
        eps=number(config, "norm_eps", 1e-6),
        bias=switch(config, "bias", default=False),
        tied=switch(config, "tie_embeddings", default=tied),
    )


class RavenNetwork(PreludeCoreCoda):
    """Equal layers below, inside and above the loop, an adapter on [state; entry] before every loop.

    ``layer`` makes one of them. Families override ``rotary`` and ``embed``.
    """

    def __init__(self, sizes: RavenSizes, layer: Callable[[RavenSizes], nn.Module]) -> None:
        width = sizes.heads.width
        super().__init__(
            Parts(
                prelude=[layer(sizes) for _ in range(sizes.prelude)],
                core=[layer(sizes) for _ in range(sizes.core)],
                coda=[layer(sizes) for _ in range(sizes.coda)],
                norm=rms_norm(width, sizes.eps),
                width=width,
                vocabulary=sizes.vocabulary,
                context=sizes.context,
                tied=sizes.tied,
                name="core_block",
            )
        )
        self.adapter = nn.Linear(2 * width, width, bias=sizes.bias)

    def inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T C"], loop: int) -> Float[Tensor, "B T C"]:
        """adapter([state; entry])."""
        return self.adapter(torch.cat([state, entry], dim=-1))


_LAYER_KEYS = {
    "norm_1.weight": "norm_1.weight",
    "norm_2.weight": "norm_2.weight",
    "attn.Wqkv.weight": "attention.qkv.weight",
    "attn.proj.weight": "attention.out.weight",
    "mlp.fc.weight": "mlp.gate_up.weight",
    "mlp.proj.weight": "mlp.down.weight",
}
_BIAS_KEYS = {
    "attn.Wqkv.bias": "attention.qkv.bias",
    "attn.proj.bias": "attention.out.bias",
    "mlp.fc.bias": "mlp.gate_up.bias",
    "mlp.proj.bias": "mlp.down.bias",
}


def raven_keys(sizes: RavenSizes, extra: Mapping[str, str]) -> dict[str, str | None]:
    """The authors' tensor names -> ours; ``extra`` are names of a layer that one family has alone.

    The head shares the embedding where the config ties them.
    """
    own = _LAYER_KEYS | dict(extra) | (_BIAS_KEYS if sizes.bias else {})
    names: dict[str, str | None] = {
        "transformer.wte.weight": "tokens.weight",
        "lm_head.weight": "tokens.weight" if sizes.tied else "lm_head.weight",
        "transformer.adapter.weight": "adapter.weight",
        "transformer.ln_f.weight": "norm.weight",
    }
    if sizes.bias:
        names["transformer.adapter.bias"] = "adapter.bias"
    parts = (("prelude", "prelude", sizes.prelude), ("core_block", "core.layers", sizes.core), ("coda", "coda", sizes.coda))
    for theirs, ours, count in parts:
        names |= layer_keys(f"transformer.{theirs}", ours, count, own)
    return names


def noise_rule(config: Mapping[str, Any], *, scale: float) -> InitialRule:
    """Truncated normal of std ``init_values.std`` times ``scale``, cut at 3 std."""
    std = number(mapping(config, "init_values") or {}, "std", math.sqrt(2 / (5 * integer(config, "n_embd"))))
    return InitialRule(std=std * scale, from_entry=False, cut=3.0)
