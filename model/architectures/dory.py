"""Dory: layers on the unit sphere; a block in the middle is looped, and the entry is added before every loop.

Source: the Dory model of the transformers library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from model.architecture import BlockSpec, LibraryArchitecture, LoopedNetwork, Space
from model.capture.head import Head
from model.config import integer, layers
from model.library import LibraryModel, build_model, load_model
from model.library_network import LibraryNetwork, Sizes, Span
from model.locate import Located
from model.start import InitialRule

_MODEL = LibraryModel(title="Dory", config_class="DoryConfig", model_class="DoryForCausalLM")


def _check_sizes(config: Mapping[str, Any]) -> None:
    """Refuse absurd sizes before the library makes anything of them."""
    layers(config, "num_hidden_layers", 36, least=1)
    layers(config, "n_input_layers", 8)
    layers(config, "n_recurrent_layers", 1, least=1)
    layers(config, "n_output_layers", 8)
    integer(config, "n_recurrent_loops", 2)
    for name, default in (
        ("vocab_size", 131072),
        ("hidden_size", 2560),
        ("intermediate_size", 7168),
        ("num_attention_heads", 16),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("max_position_embeddings", 8192),
        ("sliding_window", 1024),
    ):
        integer(config, name, default)


class _Network(LibraryNetwork):
    rows_share_ids = True

    def __init__(self, model: nn.Module) -> None:
        made = cast("Any", model).config  # the library has halved the counts of attention and MLP blocks
        start, stop = made.n_input_layers, made.n_input_layers + made.n_recurrent_layers
        if stop <= start:
            raise ValueError("n_recurrent_layers is 0; a looped block of one layer or more was expected.")
        span = Span(
            BlockSpec("recurrent layers", tuple(range(start, stop))),
            first=f"model.layers.{start}",
            last=f"model.layers.{stop - 1}",
            start=f"model.layers.{start - 1}" if start else "model.embed_tokens",
        )
        sizes = Sizes(made.hidden_size, made.vocab_size, made.max_position_embeddings)
        super().__init__(model, [span], sizes, reader="lm_head")
        self._inner: Any = model

    def counts(self, loops: Sequence[int]) -> Mapping[str, int]:
        return {"n_recurrent_loops": loops[0]}

    def entry(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self._inner.model.norm(state)

    def glance(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self._inner.model.norm(state)

    @property
    def head(self) -> Head:
        """The matrix times the logit scale of every entry, in float32, as the library multiplies them."""
        head = self._inner.lm_head
        scale = head.logit_scale.float() * head.logit_scale_factor
        return Head(head.weight.float() * scale[:, None])


@dataclass(frozen=True)
class Dory(LibraryArchitecture):
    """Dory, a normalised transformer with a recurrent section."""

    name: ClassVar[str] = "dory"
    title: ClassVar[str] = "Dory"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "the state scaled to length 1, plus the entry, before every loop"
    logit_lens: ClassVar[str] = "scaled to length 1, head times its logit scale"
    recognised_by: ClassVar[str] = (
        "`model_type` dory; tensors `backbone.layers...` or `model.layers...` and `lm_head.logit_scale`"
    )
    verified: ClassVar[str] = "states, logits, every coda-lens logit"

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """By the model type and the scale of the head."""
        return config.get("model_type") == "dory" and "lm_head.logit_scale" in keys

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is odd, CheckpointError without the library."""
        _check_sizes(config)
        return _Network(build_model(_MODEL, config))

    def load(self, located: Located, config: Mapping[str, Any], *, dtype: torch.dtype, device: torch.device) -> LoopedNetwork:
        """The network with its weights. Raises CheckpointError when a weight is missing or unexpected."""
        _check_sizes(config)
        return _Network(load_model(_MODEL, located, config, dtype=dtype, device=device))

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``n_recurrent_loops``."""
        return float(self._loops(config))

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """``n_recurrent_loops``."""
        return (self._loops(config),)

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """What the layers below the block give; the entry is that, scaled to length 1."""
        return InitialRule(std=0.0, from_entry=True)

    def _loops(self, config: Mapping[str, Any]) -> int:
        return integer(config, "n_recurrent_loops", 2)
