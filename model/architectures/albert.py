"""ALBERT: groups of layers with shared weights, looped one after the other; a bidirectional masked language model.

Source: Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", arXiv 1909.11942,
section 3.1, in the form of the transformers library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import BlockSpec, Lens, LibraryArchitecture, LoopedNetwork, Objective, Space
from model.capture.head import Head
from model.config import integer, layers
from model.library import LibraryModel, build_model, load_model
from model.library_network import LibraryNetwork, Sizes, Span
from model.locate import Located
from model.request import RequestError
from model.start import InitialRule

_GROUPS = "albert.encoder.albert_layer_groups"
_MODEL = LibraryModel(
    title="ALBERT",
    config_class="AlbertConfig",
    model_class="AlbertForMaskedLM",
    # Heads of other tasks, and a table of positions that old files carry.
    ignored=("albert.pooler.", "sop_classifier.", "albert.embeddings.position_ids"),
)


@dataclass(frozen=True)
class _Config:
    applications: int
    groups: int
    layers_per_group: int
    sizes: Sizes


def _read_config(config: Mapping[str, Any]) -> _Config:
    for name, default in (("embedding_size", 128), ("intermediate_size", 16384), ("num_attention_heads", 64)):
        integer(config, name, default)
    return _Config(
        applications=layers(config, "num_hidden_layers", 12, least=1),
        groups=layers(config, "num_hidden_groups", 1, least=1),
        layers_per_group=layers(config, "inner_group_num", 1, least=1),
        sizes=Sizes(
            width=integer(config, "hidden_size", 4096),
            vocabulary=integer(config, "vocab_size", 30000),
            context=integer(config, "max_position_embeddings", 512),
        ),
    )


class _Network(LibraryNetwork):
    def __init__(self, model: nn.Module, config: _Config) -> None:
        inner = config.layers_per_group
        spans = [
            Span(
                BlockSpec(f"albert_layer_groups.{g}", tuple(range(g * inner, (g + 1) * inner))),
                first=f"{_GROUPS}.{g}",
                last=f"{_GROUPS}.{g}",
            )
            for g in range(config.groups)
        ]
        super().__init__(model, spans, config.sizes, reader="predictions.decoder")
        self._head: Any = cast("Any", model).predictions

    def counts(self, loops: Sequence[int]) -> Mapping[str, int]:
        if len(set(loops)) > 1:
            raise RequestError(
                f"{', '.join(map(str, loops))} loops were asked for; ALBERT runs its {len(loops)} layer groups equally often: "
                "give one number for all."
            )
        return {"num_hidden_layers": sum(loops)}

    @property
    def head(self) -> Head:
        return Head(self._head.decoder.weight, self._head.decoder.bias)

    def features(self, state: Float[Tensor, "B T C"], *, ids: Int[Tensor, " T"], lens: Lens) -> Float[Tensor, "B T D"]:
        """Both lenses are one: nothing but the head follows the last group."""
        return self._head.LayerNorm(self._head.activation(self._head.dense(state)))


@dataclass(frozen=True)
class Albert(LibraryArchitecture):
    """ALBERT, whose layers share their weights."""

    name: ClassVar[str] = "albert"
    title: ClassVar[str] = "ALBERT"
    space: ClassVar[Space] = "normed"
    injection: ClassVar[str] = "none"
    logit_lens: ClassVar[str] = "dense, activation, norm, head: the whole masked-language-model head, so both lenses agree"
    objective: ClassVar[Objective] = "masked token"
    recognised_by: ClassVar[str] = "`model_type` albert; tensors `albert.encoder.albert_layer_groups...`"
    verified: ClassVar[str] = "states, logits, every coda-lens logit"

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """By the model type and the layer groups."""
        return config.get("model_type") == "albert" and any(key.startswith(f"{_GROUPS}.") for key in keys)

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a field that is odd, CheckpointError without the library."""
        read = _read_config(config)
        return _Network(build_model(_MODEL, config), read)

    def load(self, located: Located, config: Mapping[str, Any], *, dtype: torch.dtype, device: torch.device) -> LoopedNetwork:
        """The network with its weights. Raises CheckpointError when a weight is missing or unexpected."""
        read = _read_config(config)
        return _Network(load_model(_MODEL, located, config, dtype=dtype, device=device), read)

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """``num_hidden_layers`` over ``num_hidden_groups``."""
        read = _read_config(config)
        return read.applications / read.groups

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The same, None where the groups would not run equally often."""
        read = _read_config(config)
        each, left = divmod(read.applications, read.groups)
        return (each,) * read.groups if each and not left else None

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """The mapped embeddings, or what the group before has left."""
        return InitialRule(std=0.0, from_entry=True)
