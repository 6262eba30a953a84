"""A model of the transformers library that is looped where a person says: paths are found, checked, and hooked."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import BlockSpec
from model.capture.head import Head
from model.capture.hooks import tensors_in
from model.library_network import LibraryNetwork, Sizes, Span
from model.locate import CheckpointError
from model.named_block import NamedBlock, parts
from model.request import RequestError

_MOST_TOKENS = 2**24  # of a model that names no longest prompt
_SLICE = re.compile(r"(?P<path>.+)\.(?P<start>\d+):(?P<stop>\d+)")


class NamedNetwork(LibraryNetwork):
    """A model of the library with its looped blocks found. Raises CheckpointError naming the path that leads nowhere."""

    def __init__(self, model: nn.Module, named: NamedBlock) -> None:
        spans = [_span(model, path, number) for number, path in enumerate(parts(named.block))]
        if not spans:
            raise CheckpointError("No looped block was named; give the path of a module, such as model.layers.")
        if len({span.last for span in spans}) < len(spans):
            raise CheckpointError(f"The blocks {named.block} end in the same module; name every block once.")
        super().__init__(model, spans, _sizes(model), reader=named.head)
        self.readable = bool(named.head)
        self._named = named
        self._fields = parts(named.count)
        self._norms = [_module(model, path) for path in parts(named.norm)]
        if len(self._fields) not in (0, 1, len(spans)):
            raise CheckpointError(
                f"{len(self._fields)} count fields were named for {len(spans)} blocks; name one, or one per block."
            )
        for field in self._fields:
            _check_field(model, field)
        if self.readable:
            self._check_lens()

    def _check_lens(self) -> None:
        """One token through norm and head, so that modules that do not fit are refused before anything is run."""
        weight, width = self.head.weight, self.width
        probe = torch.zeros(1, 1, width, dtype=weight.dtype, device=weight.device)
        try:
            with torch.no_grad():
                found = tuple(self.glance(probe).shape)
        except (RuntimeError, TypeError) as error:
            raise CheckpointError(
                f"{self._named.norm} does not take a state of width {width} ({error}); name another norm."
            ) from error
        if found != (1, 1, weight.shape[1]):
            raise CheckpointError(
                f"{self._named.norm or 'the iterate'} gives {found[-1]} numbers per token and {self._named.head} takes "
                f"{weight.shape[1]}; name what lies between them as norm, in order, separated by commas."
            )

    def counts(self, loops: Sequence[int]) -> Mapping[str, int]:
        """The named fields, each set to its block's loops; one field sets the loops of all."""
        if len(self._fields) == 1 and len(set(loops)) > 1:
            raise RequestError(
                f"{', '.join(map(str, loops))} loops were asked for and {self._named.count} sets one number; "
                "give one number for all blocks, or name one field per block."
            )
        return dict(zip(self._fields, loops, strict=False))

    def glance(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        """The named norm."""
        for norm in self._norms:
            state = norm(state)
        return state

    @property
    def head(self) -> Head:
        """The named head. Raises CheckpointError when it is no linear module."""
        module: Any = _module(self.model, self._named.head)
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if not isinstance(weight, torch.Tensor) or weight.ndim != 2:
            raise CheckpointError(f"The head {self._named.head} is a {type(module).__name__}; a linear module was expected.")
        return Head(weight, bias)

    def _logits(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """A plain pass, in which the named head must give the model's own logits."""
        if not self.readable:
            return super()._logits(ids)
        read: list[Tensor] = []

        def keep(module: nn.Module, arguments: Any, keywords: Any) -> None:
            read[:] = [tensor[:, -1:] for tensor in tensors_in(arguments, keywords)][:1]

        handle = self.model.get_submodule(self._reader).register_forward_pre_hook(keep, with_kwargs=True)
        try:
            logits = super()._logits(ids)
        finally:
            handle.remove()
        self._check_head(read, logits[:, -1:])
        return logits

    def _check_head(self, read: Sequence[Tensor], logits: Tensor) -> None:
        head = self.head
        fits = bool(read) and read[0].is_floating_point() and read[0].shape[-1] == head.weight.shape[1]
        own = head.logits(read[0]) if fits else None
        if own is None or own.shape != logits.shape:
            raise CheckpointError(f"{self._named.head} is not what gives this model's logits; name another head, or none.")
        tolerance = 1e-3 if own.dtype == torch.float32 else 5e-2
        gap, size = float((own - logits).abs().max()), float(logits.abs().max())
        if gap > tolerance * (1 + size):
            raise CheckpointError(
                f"{self._named.head} alone gives other logits than the model (they differ by {gap:.3g}): the model scales or "
                "caps them, or the head is another. Name another head, or none."
            )

    def _mismatch(self, ran: Sequence[int], asked: Sequence[int]) -> str:
        said = f"{self._named.block} ran {_listed(ran)} loops and {_listed(asked)} were asked for"
        if self._fields:
            return f"{said}: {self._named.count} does not set their number in this model. Name another count field, or none."
        return f"{said}. Ask for {_listed(ran)}, or name the config field that sets the number of loops as count."


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _module(model: nn.Module, path: str) -> nn.Module:
    """The module at a path. Raises CheckpointError with near names where there is none."""
    try:
        return model.get_submodule(path)
    except AttributeError:
        names: list[str] = [name for name, _ in model.named_modules() if name]  # pyright: ignore[reportUnknownVariableType]
    near = difflib.get_close_matches(path, names, n=3, cutoff=0.5)
    near = near or [name for name in names if name.rsplit(".", 1)[-1] == path.rsplit(".", 1)[-1]][:3] or names[:3]
    raise CheckpointError(f"{type(model).__name__} has no module {path!r}; near names: {', '.join(near)}.")


def _span(model: nn.Module, path: str, number: int) -> Span:
    found = _SLICE.fullmatch(path)
    whole = _module(model, found["path"] if found else path)
    if not isinstance(whole, nn.ModuleList):
        if found:
            raise CheckpointError(
                f"{found['path']} is a {type(whole).__name__} and no list; name it without {path[found.end(1) :]}."
            )
        return Span(BlockSpec(path, (number,)), first=path, last=path)
    outer = found["path"] if found else path
    start, stop = (int(found["start"]), int(found["stop"])) if found else (0, len(whole))
    if not 0 <= start < stop <= len(whole):
        raise CheckpointError(f"{path} names the layers {start} to {stop - 1}, and {outer} has {len(whole)}, counted from 0.")
    return Span(BlockSpec(path, tuple(range(start, stop))), first=f"{outer}.{start}", last=f"{outer}.{stop - 1}")


def _sizes(model: nn.Module) -> Sizes:
    config: Any = cast("Any", model).config.get_text_config()
    width, vocabulary = getattr(config, "hidden_size", None), getattr(config, "vocab_size", None)
    context = getattr(config, "max_position_embeddings", None)
    if not isinstance(width, int) or not isinstance(vocabulary, int):
        raise CheckpointError("hidden_size or vocab_size is missing; the config of a language model was expected.")
    return Sizes(width, vocabulary, context if isinstance(context, int) and context > 0 else _MOST_TOKENS)


def _check_field(model: nn.Module, field: str) -> None:
    """Whether a dotted config field holds a number that can be set."""
    owner: Any = cast("Any", model).config
    for part in field.split("."):
        inner = getattr(owner, part, None)
        if inner is None:
            fields = cast("dict[str, Any]", vars(owner))
            known = [name for name, value in fields.items() if isinstance(value, int) and not isinstance(value, bool)]
            near = difflib.get_close_matches(part, known, n=3, cutoff=0.4) or sorted(known)[:3]
            raise CheckpointError(f"The config has no field {field!r}; near names: {', '.join(near)}.")
        owner = inner
    if isinstance(owner, bool) or not isinstance(owner, int):
        raise CheckpointError(f"{field} is {owner!r}; a field that holds the number of loops was expected.")
