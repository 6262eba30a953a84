"""Ouro: the whole stack looped, normed at the end of every loop, with a learned exit gate.

Source: Zhu et al., "Scaling Latent Reasoning via Looped Language Models", arXiv 2510.25741, in the form of
the authors' public modelling code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from model.architecture import Context, LoopedNetwork, NativeArchitecture, Space
from model.config import choice, integer, layers, mapping, mean_loops, number, run_loops, switch
from model.layers import Heads, Rotary, SplitAttention, rms_norm
from model.rope import Rope
from model.skeleton import Parts, PreludeCoreCoda, layer_keys
from model.start import InitialRule


@dataclass(frozen=True)
class _Config:
    heads: Heads
    hidden: int
    context: int
    vocabulary: int
    layers: int
    eps: float
    tied: bool
    rope: Rope


def _read_config(config: Mapping[str, Any]) -> _Config:
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    choice(config, "hidden_act", ("silu",), "silu")
    kinds: Any = config.get("layer_types") or []
    if switch(config, "use_sliding_window", default=False) or any(kind != "full_attention" for kind in kinds):
        raise ValueError("it asks for sliding-window attention; this version can build full attention only.")
    scaling = mapping(config, "rope_scaling") or mapping(config, "rope_parameters")
    return _Config(
        heads=Heads.of(
            width, heads, integer(config, "num_key_value_heads", heads), integer(config, "head_dim", width // heads)
        ),
        hidden=integer(config, "intermediate_size"),
        context=integer(config, "max_position_embeddings"),
        vocabulary=integer(config, "vocab_size"),
        layers=layers(config, "num_hidden_layers", least=1),
        eps=number(config, "rms_norm_eps", 1e-6),
        tied=switch(config, "tie_word_embeddings", default=False),
        rope=Rope(number(config, "rope_theta", (scaling or {}).get("rope_theta", 10_000.0)), scaling),
    )


class _Mlp(nn.Module):
    """down(SiLU(gate x) * up x)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Float[Tensor, "*shape C"]) -> Float[Tensor, "*shape C"]:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class _Layer(nn.Module):
    """x += RMS_2(attn(RMS_1(x))); x += RMS_4(mlp(RMS_3(x)))."""

    def __init__(self, config: _Config) -> None:
        super().__init__()
        width = config.heads.width
        self.norm_1, self.norm_2 = rms_norm(width, config.eps), rms_norm(width, config.eps)
        self.norm_3, self.norm_4 = rms_norm(width, config.eps), rms_norm(width, config.eps)
        self.attention = SplitAttention(config.heads, bias=False)
        self.mlp = _Mlp(width, config.hidden)

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        x = x + self.norm_2(self.attention(self.norm_1(x), context))
        return x + self.norm_4(self.mlp(self.norm_3(x)))


class _Network(PreludeCoreCoda):
    """No layer below or above the loop. The one norm is part of the loop, so decoding does not norm again."""

    def __init__(self, config: _Config) -> None:
        width = config.heads.width
        super().__init__(
            Parts(
                prelude=[],
                core=[_Layer(config) for _ in range(config.layers)],
                coda=[],
                norm=nn.Identity(),
                loop_norm=rms_norm(width, config.eps),
                width=width,
                vocabulary=config.vocabulary,
                context=config.context,
                tied=config.tied,
                name="layers",
            )
        )
        self._config = config
        self.exit_gate = nn.Linear(width, 1)

    def rotary(self, tokens: int) -> Rotary:
        return self._config.rope.rotary(tokens, self._config.heads.head_width, device=self.tokens.weight.device)

    def gate(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T"]:
        return self.exit_gate(state)[..., 0]


_LAYER_KEYS = {
    "input_layernorm.weight": "norm_1.weight",
    "input_layernorm_2.weight": "norm_2.weight",
    "post_attention_layernorm.weight": "norm_3.weight",
    "post_attention_layernorm_2.weight": "norm_4.weight",
    "self_attn.q_proj.weight": "attention.q.weight",
    "self_attn.k_proj.weight": "attention.k.weight",
    "self_attn.v_proj.weight": "attention.v.weight",
    "self_attn.o_proj.weight": "attention.out.weight",
    "mlp.gate_proj.weight": "mlp.gate.weight",
    "mlp.up_proj.weight": "mlp.up.weight",
    "mlp.down_proj.weight": "mlp.down.weight",
}


@dataclass(frozen=True)
class Ouro(NativeArchitecture):
    """Ouro, a looped language model with a learned exit gate (arXiv 2510.25741)."""

    name: ClassVar[str] = "ouro"
    title: ClassVar[str] = "Ouro"
    space: ClassVar[Space] = "normed"
    injection: ClassVar[str] = "none: each loop reads the previous normed state"
    logit_lens: ClassVar[str] = "head on the normed iterate, no second norm"
    recognised_by: ClassVar[str] = "`model_type` ouro with `total_ut_steps`; an `early_exit_gate` and four norms a layer"
    verified: ClassVar[str] = (
        "states, gate logits and exit probabilities, logits of every iterate; cross-entropy at six depths and a greedy "
        "continuation of a trained one"
    )

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """Config names Ouro, and the keys hold its gate and its second input norm."""
        second = any(key.startswith("model.") and key.endswith(".input_layernorm_2.weight") for key in keys)
        return config.get("model_type") == "ouro" and second and "model.early_exit_gate.weight" in keys

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is missing, odd or not supported."""
        return _Network(_read_config(config))

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The authors' tensor names -> ours."""
        read = _read_config(config)
        names: dict[str, str | None] = {
            "model.embed_tokens.weight": "tokens.weight",
            "lm_head.weight": "tokens.weight" if read.tied else "lm_head.weight",
            "model.norm.weight": "core.norm.weight",
            "model.early_exit_gate.weight": "exit_gate.weight",
            "model.early_exit_gate.bias": "exit_gate.bias",
        }
        return names | layer_keys("model.layers", "core.layers", read.layers, _LAYER_KEYS)

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``total_ut_steps``."""
        return mean_loops(config, "total_ut_steps")

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``total_ut_steps``."""
        return run_loops(config, "total_ut_steps")

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """The bare token embeddings."""
        return InitialRule(std=0.0, from_entry=True)
