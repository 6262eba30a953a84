"""Steps measured from a block's adapted input: what its first layer reads in each loop, after the entry was injected."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from .hooks import tensors_in
from .trajectory import ReadoutKey

BLOCK_LENS = "block"
"""Stands where a lens would: these numbers come from the block itself, not from the head."""


class AdaptedSteps:
    """Takes the input u_k and the output x_k of every loop of one block; gives ||x_k - u_k|| and the norm of its change.

    The change ||(x_k - u_k) - (x_(k-1) - u_(k-1))|| is the acceleration of the two-scale paper's public code.
    ``measured`` is False where an input has not the shape of the output: then there is nothing to subtract.
    """

    def __init__(self, *, loops: int, tokens: int, device: torch.device) -> None:
        self.measured = True
        self._exact = torch.float32 if device.type == "mps" else torch.float64
        self._numbers = torch.full((2, loops, tokens), torch.nan, dtype=self._exact, device=device)
        self._input: Tensor | None = None
        self._step: Tensor | None = None

    def begin(self, state: Float[Tensor, "tokens width"]) -> None:
        """Copy what the block is handed: it may be changed in place."""
        self._input = state.detach().to(torch.float32, copy=True)

    def end(self, loop: int, state: Float[Tensor, "tokens width"]) -> None:
        """Measure a loop that has just ended."""
        if self._input is None or self._input.shape != state.shape or loop > self._numbers.shape[1]:
            self.measured = False
            return
        step = state.detach().to(torch.float32).to(self._exact) - self._input.to(self._exact)
        self._numbers[0, loop - 1] = step.norm(dim=-1)
        if self._step is not None:
            self._numbers[1, loop - 1] = (step - self._step).norm(dim=-1)
        self._step = step

    def readouts(self) -> dict[ReadoutKey, np.ndarray]:
        """Both norms ``loops tokens``, NaN where undefined; the second from k = 2. Empty where nothing was measured."""
        if not self.measured:
            return {}
        numbers = self._numbers.double().cpu().numpy()
        numbers[~np.isfinite(numbers)] = np.nan
        names = ("adapted_step_norm", "adapted_acceleration")
        return {(BLOCK_LENS, name): array.copy() for name, array in zip(names, numbers, strict=True)}


@contextmanager
def inputs_watched(modules: Sequence[nn.Module], steps: Sequence[AdaptedSteps]) -> Generator[None]:
    """Hand each module's input to its ``AdaptedSteps`` while this thread runs the block; the hooks go however it ends.

    The input is the first tensor of a call, [1, tokens, width]. Without ``steps`` nothing is hooked.
    """
    owner = threading.get_ident()

    def hook_for(number: int) -> Any:
        def hook(module: nn.Module, arguments: Any, keywords: Any = None) -> None:
            given = next(tensors_in(arguments, keywords or {}), None)
            if threading.get_ident() == owner and given is not None:
                steps[number].begin(given[0])

        return hook

    handles = [modules[n].register_forward_pre_hook(hook_for(n), with_kwargs=True) for n in range(len(steps))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
