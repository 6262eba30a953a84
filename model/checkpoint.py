"""Identify, check and load a checkpoint: every weight is matched exactly once or the load is refused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from model.architecture import Architecture, LibraryArchitecture, LoopedNetwork, NativeArchitecture
from model.card import Card
from model.families import architectures
from model.flops import flops
from model.locate import CheckpointError, Located, canonical, digest, locate
from model.named import named_architecture
from model.named_block import NamedBlock
from model.stranger import needless_names, stranger
from model.tokenizer import tokenizer_title
from model.weights import TensorHeader, headers, tensors

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_STORED = ("float32", "bfloat16", "float16", "float64")
_WRAPPER = "model."

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Loaded:
    """A network in memory, in eval mode, with what is needed to drive it."""

    located: Located
    architecture: Architecture
    config: Mapping[str, Any]
    network: LoopedNetwork


@dataclass(frozen=True)
class Identified:
    """A checkpoint's family and config, and the headers of its tensors, before anything is loaded.

    ``wrapper`` stands before every tensor name in the file and not before those in ``headers``.
    """

    architecture: Architecture
    config: Mapping[str, Any]
    headers: Mapping[str, TensorHeader]
    wrapper: str = ""

    @property
    def dtype(self) -> str:
        """Stored dtypes of the weights, commonest first; a float32 table beside half-precision weights is no weight."""
        counts: dict[str, int] = {}
        for header in self.headers.values():
            counts[header.dtype] = counts.get(header.dtype, 0) + 1
        return ", ".join(sorted(counts, key=lambda kind: -counts[kind]))


def identify(located: Located, named: NamedBlock | None = None) -> Identified:
    """Which family the files are of; blocks that a person named win. Raises CheckpointError when none recognises them."""
    contents = headers(located)
    if named is not None:
        hint = needless_names(contents.config, frozenset(contents.tensors))
        if hint:
            raise CheckpointError(f"Blocks were named in {located.name}. {hint}.")
        family = _guarded(located.name, None, lambda: named_architecture(named, contents.config))
        return Identified(family, contents.config, contents.tensors)
    for wrapper, found in _unwrapped(contents.tensors):
        keys = frozenset(found)
        for family in architectures().values():
            if family.recognises(contents.config, keys):
                try:
                    config = family.settled(contents.config, keys)
                except (ValueError, TypeError, KeyError) as error:
                    raise _unusable(located.name, family, error) from error
                return Identified(family, config, found, wrapper)
    raise CheckpointError(stranger(located, contents.config, frozenset(contents.tensors)))


def _unwrapped(found: Mapping[str, TensorHeader]) -> Iterator[tuple[str, Mapping[str, TensorHeader]]]:
    """The tensors by their own names, then without a ``model.`` that stands before all of them."""
    wrapper = ""
    while True:
        yield wrapper, found
        if not found or not all(name.startswith(_WRAPPER) for name in found):
            return
        found = {name.removeprefix(_WRAPPER): header for name, header in found.items()}
        wrapper += _WRAPPER


def _unusable(name: str, family: Architecture | None, error: Exception) -> CheckpointError:
    said = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
    title = f" ({family.title})" if family is not None else ""
    return CheckpointError(f"The config of {name}{title} cannot be used: {said.rstrip('.')}.")


def card(name: str, *, named: NamedBlock | None = None, progress: Progress = lambda stage, fraction: None) -> Card:
    """What a checkpoint is, from its headers; ``progress`` is told how far the hashing of its files is."""
    located = locate(name)
    found = identify(located, named)
    network = untrained(found, located.name)
    family = found.architecture
    _check_keys(located, found, network)
    training: Any = found.config.get("training")
    return Card(
        name=canonical(name),
        architecture=family.name,
        title=family.title,
        width=network.width,
        state_width=network.state_width,
        vocabulary=network.vocabulary,
        context=network.context,
        block_names=tuple(block.name for block in network.blocks),
        space=family.space,
        injection=family.injection,
        logit_lens=family.logit_lens,
        objective=family.objective,
        has_gate=_has_gate(network),
        fixed_start=network.fixed_start,
        initial_state_rule=_guarded(located.name, family, lambda: family.initial_rule(found.config)).words(),
        parameters=sum(p.numel() for p in network.parameters()),
        dtype=found.dtype,
        tokenizer=tokenizer_title(located, network.vocabulary),
        digest=digest(located, progress=lambda fraction: progress("hashing", fraction)),
        loops_trained=_guarded(located.name, family, lambda: family.loops_trained(found.config)),
        config_loops=_guarded(located.name, family, lambda: family.config_loops(found.config)),
        step=cast("dict[str, Any]", training).get("step") if isinstance(training, dict) else None,
        notes=(*_notes(family, found), *located.notes),
        flops=flops(network),
    )


def _has_gate(network: LoopedNetwork) -> bool:
    return type(network).gate is not LoopedNetwork.gate


def _notes(family: Architecture, found: Identified) -> tuple[str, ...]:
    notes: list[str] = []
    if family.objective == "masked token":
        notes.append("A masked language model: its logits guess the token at the same position, not the next one.")
    if "auto_map" in found.config:
        whose = "Loopscope's" if isinstance(family, NativeArchitecture) else "the transformers library's"
        notes.append(f"The config names code of its own (auto_map); it was not run: the network is {whose}.")
    return tuple(notes)


def untrained(found: Identified, name: str) -> LoopedNetwork:
    """The family's network on the meta device: shapes only. Raises CheckpointError when the config is wrong."""
    with torch.device("meta"):
        return _guarded(name, found.architecture, lambda: found.architecture.build(found.config))


def _guarded(name: str, family: Architecture | None, read: Callable[[], Any]) -> Any:
    """Whatever a config does to a family's reader becomes one sentence."""
    try:
        return read()
    except CheckpointError:  # says what it has to say
        raise
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise _unusable(name, family, error) from error


def load(
    located: Located,
    *,
    dtype: str,
    device: str,
    named: NamedBlock | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> Loaded:
    """Load onto the device. Raises CheckpointError naming the tensor that is missing, unknown or of another shape."""
    found = identify(located, named)
    family, target, place = found.architecture, _DTYPES[dtype], torch_device(device)
    if isinstance(family, LibraryArchitecture):
        network = _guarded(located.name, family, lambda: family.load(located, found.config, dtype=target, device=place))
    else:
        network = untrained(found, located.name)
        names = _check_keys(located, found, network)
        stored = tensors(located, progress=lambda fraction: progress("loading", fraction / 2))
        state = _matched(located, found, network, names, stored, target, place, progress)
        network.load_state_dict(state, assign=True)
    network.eval().requires_grad_(False)
    return Loaded(located, family, found.config, network)


def _matched(
    located: Located,
    found: Identified,
    network: LoopedNetwork,
    names: Mapping[str, list[str]],
    stored: dict[str, Tensor],
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress,
) -> dict[str, Tensor]:
    """Our names -> tensors. Weights come in the dtype asked for; tables (buffers) stay in float32."""
    tables = {name for name, _ in network.named_buffers()}
    state: dict[str, Tensor] = {}
    for number, (ours, theirs) in enumerate(names.items(), start=1):
        first, *others = [stored.pop(found.wrapper + name) for name in theirs]
        for name, other in zip(theirs[1:], others, strict=True):
            if other.data_ptr() != first.data_ptr() and not torch.equal(other, first):
                raise CheckpointError(
                    f"{theirs[0]} and {name} in {located.weights.name} are tied by the config and differ in the file; "
                    "correct the config, or save one of them."
                )
        state[ours] = first.to(device, torch.float32 if ours in tables else dtype)
        progress("loading", 0.5 + 0.5 * number / len(names))
    return state


def torch_device(device: str) -> torch.device:
    """The device by name. Raises CheckpointError when this machine has none of that kind."""
    if device.split(":")[0] not in devices():
        raise CheckpointError(f"Device {device!r} is not available on this machine; choose one of {', '.join(devices())}.")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise CheckpointError(f"Device {device!r} is no device; choose one of {', '.join(devices())}.") from error


def devices() -> tuple[str, ...]:
    """Kinds of devices that this machine has."""
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return tuple(kind for kind, available in here.items() if available)


def _check_keys(located: Located, found: Identified, network: LoopedNetwork) -> dict[str, list[str]]:
    """Our name -> its names in the file (several where tied weights are stored twice).

    Raises CheckpointError when one of ours is in the file under none of its names, when the file holds a name that
    the family does not know, or when shapes differ.
    """
    family = found.architecture
    if not isinstance(family, NativeArchitecture):
        return {}
    names = cast("Mapping[str, str | None]", _guarded(located.name, family, lambda: family.key_map(found.config)))
    wanted: dict[str, list[str]] = {}
    for theirs, ours in names.items():
        if ours is not None:
            wanted.setdefault(ours, []).append(theirs)
    present = {ours: [name for name in theirs if name in found.headers] for ours, theirs in wanted.items()}
    missing = sorted(" or ".join(wanted[ours]) for ours, theirs in present.items() if not theirs)
    unknown = sorted(set(found.headers) - set(names))
    strange = f"{len(unknown)} tensors that {family.title} does not know: {_some(unknown)}" if unknown else ""
    if missing:
        raise CheckpointError(
            f"{len(wanted) - len(missing)} of {len(wanted)} tensors matched in {located.weights.name}; "
            f"missing: {_some(missing)}{f'; it holds {strange}' if strange else ''}."
        )
    if unknown:
        raise CheckpointError(f"{located.weights.name} holds {strange}.")
    own = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    for ours, theirs in present.items():
        for name in theirs:
            if found.headers[name].dtype not in _STORED:
                raise CheckpointError(
                    f"Tensor {name} in {located.weights.name} is stored as {found.headers[name].dtype}; expected one of "
                    f"{', '.join(_STORED)}. Quantised weights cannot be read; save it unquantised."
                )
            if found.headers[name].shape != own[ours]:
                raise CheckpointError(
                    f"Tensor {name} in {located.weights.name} has shape {found.headers[name].shape}; "
                    f"the config asks for {own[ours]}."
                )
    return present


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}"
