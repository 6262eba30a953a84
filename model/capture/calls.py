"""The calls of somebody's looped blocks as they come: copied at once, and refused where they are not one full pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from .errors import CaptureError


def rows(state: Tensor) -> Float[Tensor, "tokens width"] | None:
    """A state as ``tokens width``, from that shape or with a batch axis of one; None for anything else."""
    if state.dim() == 3 and len(state) == 1:
        return state[0]
    return state if state.dim() == 2 else None


@dataclass
class Seen:
    """What one block was handed first, and what every call of it returned, in float32.

    Attributes:
        handed: the inputs of the first call that could be a state. state_at: which of them is.
        entry, initial_state: the caller's, where given.
    """

    name: str
    handed: list[Tensor] = field(default_factory=list[Tensor])
    state_at: int | None = None
    calls_begun: int = 0
    outputs: list[Tensor] = field(default_factory=list[Tensor])
    entry: Tensor | None = None
    initial_state: Tensor | None = None

    def begin(self) -> tuple[Float[Tensor, "tokens width"], Float[Tensor, "tokens width"]]:
        """Entry and initial state. Raises CaptureError when neither the caller nor the first call gives them."""
        shape = self.outputs[0].shape
        fitting = [tensor for tensor in self.handed if tensor.shape == shape]
        handed = fitting[0] if fitting else None
        if self.state_at is not None:
            handed = self.handed[self.state_at]
        entry = handed if self.entry is None else self.entry
        initial_state = handed if self.initial_state is None else self.initial_state
        if entry is None or initial_state is None:
            raise CaptureError(
                f"Block {self.name!r} is handed no tensor of the shape of its output, {list(shape)} (tokens, width), so its "
                "initial state is not known; give initial_state= and entry=."
            )
        return entry, initial_state


@dataclass(frozen=True)
class First:
    """The state that the first call of all returned: ``tokens width``, the dtype it was computed in, where it is."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @property
    def tokens(self) -> int:
        """Positions of the pass."""
        return self.shape[0]


class Calls:
    """Takes the hooks' reports of one pass."""

    def __init__(self, names: Sequence[str]) -> None:
        self.blocks = [Seen(name) for name in names]
        self._running = 0
        self._first: First | None = None

    @property
    def first(self) -> "First":
        """What the first call returned; everything after is like it."""
        assert self._first is not None, "check_all_called() comes first"
        return self._first

    def on_input(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Copy the inputs of the first call; at the second, see which one carries the state on."""
        seen = self.blocks[number]
        seen.calls_begun += 1
        if seen.calls_begun > 2:
            return
        states = [found for tensor in tensors if tensor.is_floating_point() and (found := rows(tensor)) is not None]
        if seen.calls_begun == 1:
            seen.handed = [_copy(state) for state in states]
        elif seen.outputs:
            carried = (i for i, state in enumerate(states[: len(seen.handed)]) if _same(state, seen.outputs[0]))
            seen.state_at = next(carried, None)

    def on_call(self, number: int, call: int, output: Tensor) -> None:
        """Copy what a call returned. Raises CaptureError where it cannot be a loop of one full pass."""
        seen = self.blocks[number]
        state = rows(output)
        if state is None:
            raise CaptureError(_shape_words(seen.name, output))
        if not state.numel():
            raise CaptureError(
                f"Block {seen.name!r} ran over an empty prompt (shape {list(output.shape)}); give a token or more."
            )
        if number < self._running:
            raise CaptureError(
                f"Block {seen.name!r} was called after {self.blocks[self._running].name!r} had started. Give blocks in the "
                "order in which they run; blocks that take turns are one looped block: give the module that holds them."
            )
        self._running = number
        first = self._first = self._first or First(state.shape, output.dtype, output.device)
        if first.shape != state.shape:
            raise CaptureError(
                f"Block {seen.name!r} gave a state of shape {list(state.shape)} in call {call}, before {list(first.shape)} "
                "(tokens, width). Record one full pass over one prompt: no generation, no key-value cache, one width."
            )
        seen.outputs.append(_copy(state))

    def check_all_called(self) -> None:
        """Raise CaptureError when a block was not called at all."""
        silent = [repr(seen.name) for seen in self.blocks if not seen.outputs]
        if silent:
            raise CaptureError(
                f"run finished and no call of block {', '.join(silent)} was seen. A hook sees block(x), not block.forward(x); "
                "a compiled model skips hooks: record before torch.compile, or inside "
                'torch.compiler.set_stance("force_eager"); and calls in other threads are not looked at.'
            )


def _copy(state: Tensor) -> Tensor:
    return state.detach().to(torch.float32, copy=True)


def _same(state: Tensor, output: Tensor) -> bool:
    return state.shape == output.shape and torch.equal(state.detach().to(torch.float32), output)


def _shape_words(name: str, output: Tensor) -> str:
    shape = list(output.shape)
    if output.dim() == 3:
        return (
            f"Block {name!r} returned a batch of {shape[0]} (shape {shape}); padding and company change states, so prompts are "
            "recorded one by one: pass [1, tokens, width] or [tokens, width]."
        )
    return f"Block {name!r} returned a state of shape {shape}; expected [1, tokens, width] or [tokens, width]."
