"""Record every call of a looped block, in order: hooks that copy, that belong to one thread, and that always go."""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .errors import CaptureError

# (module number, call number from 1, output of the call). The output may change afterwards: copy it.
OnCall = Callable[[int, int, Tensor], object]


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
