"""Record every call of a looped block, in order: hooks that copy, that belong to one thread, and that always go."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from .errors import CaptureError

# (module number, call number from 1, output of the call). The output may change afterwards: copy it.
OnCall = Callable[[int, int, Tensor], object]
# (module number, tensors that a call is handed). They may change afterwards: copy them.
OnInput = Callable[[int, Sequence[Tensor]], object]

# The innermost ``spanned`` of this thread or task; a new thread has none.
_watcher: ContextVar[object | None] = ContextVar("loopscope_watcher", default=None)


@contextmanager
def hooked(modules: Sequence[nn.Module], on_call: OnCall) -> Generator[list[int]]:
    """Call ``on_call`` after every forward call of the modules made by this thread, until the block is left.

    Yields the number of calls per module, counted as they happen. Calls made by other threads on the same
    modules are theirs: they are neither counted nor reported. The hooks are removed however the block ends.
    """
    owner = threading.get_ident()
    counts = [0] * len(modules)

    def hook_for(number: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            if threading.get_ident() == owner:
                counts[number] += 1
                on_call(number, counts[number], first_tensor(output))

        return hook

    handles = [module.register_forward_hook(hook_for(number)) for number, module in enumerate(modules)]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def spanned(
    spans: Sequence[tuple[nn.Module, nn.Module]], on_input: OnInput, on_call: OnCall, *, whole: nn.Module
) -> Generator[list[int]]:
    """Like ``hooked`` for blocks that begin with one module and end with another, and with what goes in.

    Yields a list whose one entry is the number of calls of ``whole``, the model itself. Only calls of this context
    count: neither those of other threads (also not of threads started inside), nor those of other tasks, nor those
    made under another ``spanned`` within this one. The hooks are removed however the block ends.
    """
    me, counts, wholes = object(), [0] * len(spans), [0]

    def before(number: int) -> Callable[[nn.Module, Any, Any], None]:
        # A thread in the middle of its own pass may meet the hook half registered: then it is handed no keywords.
        def hook(module: nn.Module, arguments: Any, keywords: Any = None) -> None:
            if _watcher.get() is me:
                on_input(number, list(tensors_in(arguments, keywords or {})))

        return hook

    def after(number: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            if _watcher.get() is me:
                counts[number] += 1
                on_call(number, counts[number], first_tensor(output))

        return hook

    def count(module: nn.Module, arguments: Any) -> None:
        wholes[0] += _watcher.get() is me

    handles = [whole.register_forward_pre_hook(count)]
    for number, (first, last) in enumerate(spans):
        handles.append(first.register_forward_pre_hook(before(number), with_kwargs=True))
        handles.append(last.register_forward_hook(after(number)))
    token = _watcher.set(me)
    try:
        yield wholes
    finally:
        _watcher.reset(token)
        for handle in handles:
            handle.remove()


def tensors_in(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that a call is handed directly: positional ones first, then keywords in the order given."""
    for value in (*arguments, *keywords.values()):
        if isinstance(value, torch.Tensor):
            yield value


@contextmanager
def recorded(module: nn.Module) -> Generator[list[Tensor]]:
    """Collect a copy of the output of every call of one module, in order."""
    outputs: list[Tensor] = []

    def keep(number: int, call: int, output: Tensor) -> None:
        outputs.append(output.detach().clone())

    with hooked([module], keep):
        yield outputs


def first_tensor(output: Any) -> Tensor:
    """The state in what a block returns: the tensor itself, or the first entry of a tuple, list or mapping.

    Raises CaptureError when there is no tensor in that place.
    """
    found = output
    if isinstance(found, Mapping):
        found = next(iter(found.values()), None)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(found, tuple | list):
        found = found[0] if found else None  # pyright: ignore[reportUnknownVariableType]
    if isinstance(found, torch.Tensor):
        return found
    raise CaptureError(
        f"The looped block returned {type(output).__name__} whose first entry is no tensor; "
        "expected a tensor, or a tuple or mapping that starts with one."
    )
