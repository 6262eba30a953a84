"""Put somebody's module into eval mode for a while, also when several runs share it, and give every flag back."""

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import torch
from torch import nn

_LOCK = threading.Lock()
# Runs in progress on each module, and the training flag to give back after the last of them.
_held: dict[nn.Module, tuple[int, bool]] = {}


@contextmanager
def evaluating(module: nn.Module) -> Generator[None]:
    """Eval mode and no gradients until the block is left.

    Modes are per module and gradients per thread: runs that overlap share the eval mode, the last one to end
    restores it. It is ``no_grad`` and no inference mode, because tables that a model makes lazily (rotary angles)
    would be inference tensors, with which the next training step fails.
    """
    found: Iterable[nn.Module] = module.modules()  # pyright: ignore[reportUnknownVariableType]
    parts = list(found)
    with _LOCK:
        for part in parts:
            runs, before = _held.get(part, (0, part.training))
            _held[part] = (runs + 1, before)
        if any(part.training for part in parts):
            module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            for part in parts:
                runs, before = _held.pop(part)
                if runs > 1:
                    _held[part] = (runs - 1, before)
                else:
                    part.training = before
