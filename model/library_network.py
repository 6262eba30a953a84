"""A network of a library as a looped network: it runs as it is, hooks see its loops, a config field sets their number."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import BlockSpec, InitialState, Lens, LoopedNetwork, Observe, ignore
from model.capture.errors import CaptureError
from model.capture.hooks import first_tensor, spanned, tensors_in
from model.request import RequestError


@dataclass(frozen=True)
class Span:
    """One looped block of a network, by dotted module paths.

    Attributes:
        spec: its name and layers.
        first: called once per loop, with the state after injection as its first tensor.
        last: called once per loop; its output is the iterate.
        start: called once, its output is the initial state; "" where that is what ``first`` is handed in loop 1.
    """

    spec: BlockSpec
    first: str
    last: str
    start: str = ""


@dataclass(frozen=True)
class Sizes:
    """Width of the iterates, entries of the vocabulary, longest prompt in tokens."""

    width: int
    vocabulary: int
    context: int


class LibraryNetwork(LoopedNetwork):
    """Families override ``counts``, ``entry``, ``glance`` and ``head``.

    ``reader`` is the path of the module whose input the head's features are. ``rows_share_ids``: whether the layers
    above the loop take many states for one row of ids.
    """

    fixed_start = True
    rows_share_ids = False

    def __init__(self, model: nn.Module, spans: Sequence[Span], sizes: Sizes, *, reader: str) -> None:
        super().__init__()
        self.model, self.blocks = model, tuple(span.spec for span in spans)
        self.width, self.vocabulary, self.context = sizes.width, sizes.vocabulary, sizes.context
        self._spans, self._reader = tuple(spans), reader

    @property
    def bodies(self) -> tuple[nn.Module, ...]:
        """The modules that give the iterates."""
        return tuple(self.model.get_submodule(span.last) for span in self._spans)

    @property
    def openings(self) -> tuple[nn.Module, ...]:
        """The modules that begin a loop."""
        return tuple(self.model.get_submodule(span.first) for span in self._spans)

    def counts(self, loops: Sequence[int]) -> Mapping[str, int]:
        """Dotted config fields and the values that make block g run ``loops[g]`` loops. May raise RequestError."""
        return {}

    def entry(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """The entry that belongs to an initial state; by default they are the same."""
        return state

    def glance(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        """The logit lens: what the head would read if nothing came after this iterate."""
        raise TypeError(f"{type(self).__name__} has no logit lens")

    def forward(
        self, ids: Int[Tensor, "B T"], *, loops: Sequence[int], initial_state: InitialState, observe: Observe = ignore
    ) -> Float[Tensor, "B T V"]:
        """Logits after ``loops[g]`` loops of block g. ``initial_state`` is not asked: blocks start from their own input.

        Raises RequestError when the network ran another number of loops.
        """
        watch = _Watch(self, ids, observe)
        with counted(self.model, self.counts(loops)), watch.hooks():
            logits = self._logits(ids)
        if watch.calls != list(loops):
            raise RequestError(self._mismatch(watch.calls, loops))
        return logits

    def _mismatch(self, ran: Sequence[int], asked: Sequence[int]) -> str:
        return f"The network ran {list(ran)} loops of its blocks and {list(asked)} were asked for; ask for what it runs."

    def _logits(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """A plain pass of the library's network."""
        return cast("Any", self.model)(input_ids=ids, return_dict=True).logits

    def features(self, state: Float[Tensor, "B T C"], *, ids: Int[Tensor, " T"], lens: Lens) -> Float[Tensor, "B T D"]:
        """What the head reads of an iterate; ``coda`` lets the network's own pass go on from it."""
        return self.glance(state) if lens == "logit" else self._onward(state, ids)

    def _onward(self, state: Float[Tensor, "B T C"], ids: Int[Tensor, " T"]) -> Float[Tensor, "B T D"]:
        """A pass of one loop in which the last block gives ``state``: the input of the head in it."""
        read: list[Tensor] = []

        def instead(module: nn.Module, arguments: Any, output: Any) -> Any:
            return with_state(output, state)

        def keep(module: nn.Module, arguments: Any, keywords: Any) -> None:
            read[:] = tensors_in(arguments, keywords)
            raise _Arrived

        rows = 1 if self.rows_share_ids else len(state)
        handles = [
            self.bodies[-1].register_forward_hook(instead),
            self.model.get_submodule(self._reader).register_forward_pre_hook(keep, with_kwargs=True),
        ]
        try:
            with counted(self.model, self.counts([1] * len(self._spans))), suppress(_Arrived):
                self._logits(ids[None].expand(rows, -1))
        finally:
            for handle in handles:
                handle.remove()
        if not read or read[0].shape[:2] != state.shape[:2]:
            raise CaptureError(f"{self._reader} was not handed one vector per token after the last block; name another head.")
        return read[0]


class _Arrived(Exception):
    """A pass has come as far as it is needed: the logits of all iterates at once would not fit."""


class _Watch:
    """Counts the loops of one pass and tells an observer how each block starts."""

    def __init__(self, network: LibraryNetwork, ids: Tensor, observe: Observe) -> None:
        self._network, self._shape, self._observe = network, (*ids.shape, network.width), observe
        self._spans = network._spans  # pyright: ignore[reportPrivateUsage]
        self._below = [number for number, span in enumerate(self._spans) if span.start]
        self._starts: dict[int, Tensor] = {}
        self.calls = [0] * len(self._spans)

    def hooks(self) -> Any:
        """The context in which the pass is watched."""
        find = self._network.model.get_submodule
        pairs = [(find(span.first), find(span.last)) for span in self._spans]
        below = [find(self._spans[number].start) for number in self._below]
        return spanned([*pairs, *zip(below, below, strict=True)], self._goes_in, self._comes_out, whole=self._network.model)

    def _goes_in(self, number: int, handed: Sequence[Tensor]) -> None:
        if number >= len(self._spans) or self.calls[number]:
            return
        state = self._starts.get(number, handed[0] if handed else None)
        if state is None or state.shape != self._shape:
            found = "no tensor" if state is None else f"a tensor of shape {tuple(state.shape)}"
            raise CaptureError(
                f"{self._spans[number].first} was handed {found}; a looped block takes its state first, "
                f"of shape {self._shape} (rows, tokens, width)."
            )
        self._observe(number, self._network.entry(state), state)

    def _comes_out(self, number: int, call: int, output: Tensor) -> None:
        if number < len(self._spans):
            self.calls[number] = call
        else:
            self._starts[self._below[number - len(self._spans)]] = output


@contextmanager
def counted(model: nn.Module, counts: Mapping[str, int]) -> Generator[None]:
    """Set dotted fields of the model's config, until the block is left."""
    config = cast("Any", model).config
    undo: list[Callable[[], None]] = []
    try:
        for path, value in counts.items():
            *parents, field = path.split(".")
            owner = config
            for parent in parents:
                owner = getattr(owner, parent)
            undo.append(partial(setattr, owner, field, getattr(owner, field)))
            setattr(owner, field, value)
        yield
    finally:
        for restore in reversed(undo):
            restore()


def with_state(output: Any, state: Tensor) -> Any:
    """What a block returned, with another state in it. Raises CaptureError where the state has no place in it."""
    if isinstance(output, torch.Tensor):
        return state
    first_tensor(output)
    if isinstance(output, tuple | list):
        rest = cast("Sequence[Any]", output)[1:]
        return type(output)((state, *rest))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise CaptureError(f"The looped block returned {type(output).__name__}; its state cannot be replaced for the coda lens.")
