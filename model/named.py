"""Any model of the transformers library as an architecture, looped where its user says."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch

from model.architecture import LibraryArchitecture, LoopedNetwork, Objective, Space
from model.config import MOST_LAYERS
from model.library import LibraryModel, build_model, load_model, transformers
from model.locate import Located
from model.named_block import NamedBlock, parts
from model.named_network import NamedNetwork
from model.start import InitialRule

_REPEATED = re.compile(r"(^|_)(layers?|depth|blocks|experts|groups|loops)$")


def _check_repeats(config: Mapping[str, Any]) -> None:
    """Refuse absurd numbers of layers before the library makes any."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            _check_repeats(cast("Mapping[str, Any]", value))
        elif isinstance(value, int | float) and _REPEATED.search(name) and value > MOST_LAYERS:
            raise ValueError(f"{name} is {value}; at most {MOST_LAYERS} was expected")


def _kind(config: Mapping[str, Any]) -> LibraryModel:
    """The library's classes for a config. Raises ValueError when the library has none that gives logits."""
    _check_repeats(config)
    library = transformers("A named block")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in library.CONFIG_MAPPING:
        raise ValueError(
            f"model_type is {model_type!r}, which the transformers library does not know; code that comes with a checkpoint "
            "is never run"
        )
    config_class = library.CONFIG_MAPPING[model_type]
    mappings = (library.MODEL_FOR_CAUSAL_LM_MAPPING, library.MODEL_FOR_MASKED_LM_MAPPING)
    classes = [str(mapping[config_class].__name__) for mapping in mappings if config_class in mapping]
    if not classes:
        raise ValueError(f"the transformers library has no language model for model_type {model_type!r}")
    listed: Any = config.get("architectures") or ()
    chosen = next((name for name in classes if name in listed), classes[0])
    return LibraryModel(title=chosen, config_class=config_class.__name__, model_class=chosen, wrapped=False)


@dataclass(frozen=True)
class NamedArchitecture(LibraryArchitecture):
    """A model of the library whose looped blocks a person named; no family of the registry."""

    named: NamedBlock

    name: ClassVar[str] = "named"
    title: ClassVar[str] = "named block of a transformers model"
    space: ClassVar[Space] = "raw"
    injection: ClassVar[str] = "as the model does it"
    logit_lens: ClassVar[str] = "the named norm and head"
    recognised_by: ClassVar[str] = "named by the user"
    verified: ClassVar[str] = "in every run: the named head gives the model's own logits"

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """Always: the user says so."""
        return True

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The untrained network. Raises ValueError naming a path or field that leads nowhere."""
        return NamedNetwork(build_model(_kind(config), config), self.named)

    def load(self, located: Located, config: Mapping[str, Any], *, dtype: torch.dtype, device: torch.device) -> LoopedNetwork:
        """The network with its weights. Raises CheckpointError when a weight is missing or unexpected."""
        return NamedNetwork(load_model(_kind(config), located, config, dtype=dtype, device=device), self.named)

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """Nobody says."""
        return None

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """What the named count fields hold, None where none is named or the file leaves one out."""
        blocks, fields = len(parts(self.named.block)), parts(self.named.count)
        found = [_value(config, field) for field in fields]
        whole = [value for value in found if isinstance(value, int)]
        if not whole or len(whole) < len(fields):
            return None
        return tuple(whole * blocks if len(whole) == 1 else whole)

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """What the block is handed first."""
        return InitialRule(std=0.0, from_entry=True)


@dataclass(frozen=True)
class MaskedNamedArchitecture(NamedArchitecture):
    """The same for a masked language model."""

    objective: ClassVar[Objective] = "masked token"


def named_architecture(named: NamedBlock, config: Mapping[str, Any]) -> NamedArchitecture:
    """The architecture of a named block; what the logits predict follows from the library's class."""
    masked = _kind(config).model_class.endswith("ForMaskedLM")
    return MaskedNamedArchitecture(named) if masked else NamedArchitecture(named)


def _value(config: Mapping[str, Any], field: str) -> Any:
    found: Any = config
    for part in field.split("."):
        found = cast("Mapping[str, Any]", found).get(part) if isinstance(found, Mapping) else None
    return found
