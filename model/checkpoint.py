"""Identify, check and load a checkpoint: every weight is matched exactly once or the load is refused."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint

from model.architecture import Architecture, LoopedNetwork
from model.card import Card
from model.families import architectures
from model.locate import CheckpointError, Located, canonical, digest, locate, read_config
from model.tokenizer import load_tokenizer

_PREFIXES = ("_orig_mod.", "module.")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Loaded:
    """A network in memory, in eval mode, with what is needed to drive it."""

    located: Located
    architecture: Architecture
    config: Mapping[str, Any]
    network: LoopedNetwork


@dataclass(frozen=True)
class Identified:
    """A checkpoint's family and config, and the shape and dtype of its tensors, before anything is loaded."""

    architecture: Architecture
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    dtype: str


def identify(located: Located) -> Identified:
    """Which family the files are of. Raises CheckpointError when none of the known ones recognises them."""
    config, shapes, dtype = _headers(located)
    keys = frozenset(shapes)
    for family in architectures().values():
        if family.recognises(config, keys):
            return Identified(family, config, shapes, dtype)
    some = ", ".join(sorted(keys)[:3]) or "none"
    raise CheckpointError(
        f"{located.weights.name} is of no family known here (its tensors begin with {some}; "
        f"known: {', '.join(architectures())}). Check that config and weights belong together."
    )


def card(name: str) -> Card:
    """What a checkpoint is, from its headers."""
    located = locate(name)
    found = identify(located)
    network = untrained(found, located.name)
    training: Any = found.config.get("training")
    return Card(
        name=canonical(name),
        architecture=found.architecture.name,
        title=found.architecture.title,
        width=network.width,
        vocabulary=network.vocabulary,
        context=network.context,
        block_names=tuple(block.name for block in network.blocks),
        space=found.architecture.space,
        injection=found.architecture.injection,
        initial_state_rule=found.architecture.initial_rule(found.config).words(),
        parameters=sum(p.numel() for p in network.parameters()),
        dtype=found.dtype,
        tokenizer=_tokenizer_title(located, network.vocabulary),
        digest=digest(located),
        loops_trained=found.architecture.loops_trained(found.config),
        step=cast("dict[str, Any]", training).get("step") if isinstance(training, dict) else None,
    )


def _tokenizer_title(located: Located, vocabulary: int) -> str:
    try:
        return load_tokenizer(located, vocabulary).title
    except CheckpointError:
        return "none: give token ids"


def untrained(found: Identified, name: str) -> LoopedNetwork:
    """The family's network on the meta device: shapes only. Raises CheckpointError when the config is wrong."""
    try:
        with torch.device("meta"):
            return found.architecture.build(found.config)
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"The config of {name} cannot be used: {error}") from error


def load(located: Located, *, dtype: str, device: str) -> Loaded:
    """Load onto the device. Raises CheckpointError naming the tensor that is missing, unknown or of another shape."""
    found = identify(located)
    network = untrained(found, located.name)
    names = found.architecture.key_map(found.config)
    _check_keys(located, found.shapes, names, network)
    tensors = _tensors(located)
    target, place = _DTYPES[dtype], _device(device)
    state = {ours: tensors[theirs].to(place, target) for theirs, ours in names.items() if ours is not None}
    network.load_state_dict(state, assign=True)
    network.eval().requires_grad_(False)
    return Loaded(located, found.architecture, found.config, network)


def _device(device: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.split(":")[0]
    if not available.get(kind, False):
        usable = ", ".join(name for name, here in available.items() if here)
        raise CheckpointError(f"Device {device!r} is not available on this machine; choose one of {usable}.")
    return torch.device(device)


def _check_keys(
    located: Located, shapes: Mapping[str, tuple[int, ...]], names: Mapping[str, str | None], network: LoopedNetwork
) -> None:
    wanted = {theirs for theirs, ours in names.items() if ours is not None}
    unknown, missing = sorted(set(shapes) - set(names)), sorted(wanted - set(shapes))
    if missing:
        raise CheckpointError(
            f"{len(wanted) - len(missing)} of {len(wanted)} tensors matched in {located.weights.name}; "
            f"missing: {', '.join(missing[:3])}{' and more' if len(missing) > 3 else ''}."
        )
    if unknown:
        raise CheckpointError(
            f"{located.weights.name} holds {len(unknown)} tensors that the family does not know: "
            f"{', '.join(unknown[:3])}{' and more' if len(unknown) > 3 else ''}."
        )
    own = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    for theirs, ours in names.items():
        if ours is not None and shapes[theirs] != own[ours]:
            raise CheckpointError(
                f"Tensor {theirs} in {located.weights.name} has shape {shapes[theirs]}; the config asks for {own[ours]}."
            )


def _headers(located: Located) -> tuple[Mapping[str, Any], dict[str, tuple[int, ...]], str]:
    config = read_config(located)
    if located.weights.suffix == ".safetensors":
        shapes, kinds = _safetensors_headers(located.weights)
        return config, shapes, kinds
    content = _load_pickle(located.weights, map_location="meta")
    tensors = _state(content, located.weights)
    merged = {key: value for key, value in content.items() if key != "model"} | dict(config)
    kinds = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    return merged, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, ", ".join(sorted(kinds))


_SAFETENSORS_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


def _safetensors_headers(path: Path) -> tuple[dict[str, tuple[int, ...]], str]:
    try:
        reader: Any = safe_open(path, framework="pt")  # the library has no types
        with reader as file:
            names: list[str] = list(file.keys())
            slices: dict[str, Any] = {name: file.get_slice(name) for name in names}
            kinds = {str(part.get_dtype()) for part in slices.values()}
            shapes: dict[str, tuple[int, ...]] = {_bare(name): tuple(part.get_shape()) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path.name} is no safetensors file that can be read ({error}); copy it again.") from error
    return shapes, ", ".join(sorted(_SAFETENSORS_DTYPES.get(kind, kind) for kind in kinds))


def _tensors(located: Located) -> dict[str, Tensor]:
    if located.weights.suffix == ".safetensors":
        return {_bare(name): tensor for name, tensor in load_file(located.weights).items()}
    return _state(_load_pickle(located.weights, map_location="cpu"), located.weights)


def _state(content: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    inner: Any = content.get("model", content)
    items = cast("dict[Any, Any]", inner) if isinstance(inner, dict) else {}
    found = {_bare(str(key)): value for key, value in items.items() if isinstance(value, Tensor)}
    if not found:
        raise CheckpointError(f"{path.name} holds no tensors under 'model'; save a dict of tensors, or use safetensors.")
    return found


def _bare(name: str) -> str:
    """A tensor's name without what compilers and parallel wrappers put before it, in any order."""
    while name.startswith(_PREFIXES):
        name = name.split(".", 1)[1]
    return name


def _load_pickle(path: Path, *, map_location: str) -> Mapping[str, Any]:
    """Weights-only: nothing in the file is executed."""
    try:
        content: Any = torch.load(path, map_location=map_location, weights_only=True, mmap=map_location == "cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} cannot be loaded safely: {_why(path)}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name} holds a {type(content).__name__}; expected a dict with the weights under 'model'.")
    return cast("dict[str, Any]", content)


def _why(path: Path) -> str:
    try:
        blocked = get_unsafe_globals_in_checkpoint(path)
    except Exception:  # a file so damaged that its list of imports cannot be read either
        blocked = []
    if blocked:
        return f"it wants to import {', '.join(sorted(blocked)[:3])}. Save a plain dict of tensors again, or use safetensors."
    return "it is damaged or no checkpoint at all. Copy it again, or save its weights as safetensors."
