"""The initial states of one prompt's tokens, as the request says, wherever in the prompt a pass begins."""

from collections.abc import Set as AbstractSet

import torch
from jaxtyping import Float
from torch import Tensor

from model.checkpoint import Loaded
from model.noise import initial_state_digest, read_initial_states, ruled_noise
from model.request import Request, RequestError
from model.start import InitialRule


class InitialStates:
    """Makes the state that a block's first loop is handed; noise depends on (seed, block, position) alone.

    Raises RequestError when a file of states does not fit ``tokens`` tokens, or has changed since the request was made.
    """

    def __init__(self, loaded: Loaded, request: Request, *, tokens: int) -> None:
        self._loaded, self._request, self._tokens = loaded, request, tokens
        weight = next(loaded.network.parameters())
        self._device, self._dtype = weight.device, weight.dtype
        self._rows: dict[int, Tensor] = {}
        self._started: set[int] = set()
        self._rule = self._asked_rule()
        if request.initial_state.kind == "file":
            self._read()

    @property
    def started(self) -> AbstractSet[int]:
        """Blocks whose family asked for an initial state."""
        return self._started

    def __call__(self, block: int, entry: Float[Tensor, "1 T C"], *, first: int = 0) -> Float[Tensor, "1 T S"]:
        """The state of the tokens from position ``first`` on, as many as the entry has."""
        self._started.add(block)
        some = slice(first, first + entry.shape[1])
        if self._rule is None:
            return self._rows[block][some][None]
        width = self._loaded.network.state_width
        zeros = torch.zeros(1, entry.shape[1], width, dtype=self._dtype, device=self._device)
        base = entry if self._rule.from_entry else zeros
        return base if self._rule.std == 0 else base + self._noise(block, self._rule)[some][None]

    def _asked_rule(self) -> InitialRule | None:
        """What the request asks for, as a rule; None for states from a file."""
        asked = self._request.initial_state
        if asked.kind == "file":
            return None
        if asked.kind == "trained":
            return self._loaded.architecture.initial_rule(self._loaded.config)
        return InitialRule(std=asked.std or 0.0, from_entry=False)

    def _noise(self, block: int, rule: InitialRule) -> Float[Tensor, "tokens width"]:
        if block not in self._rows:
            width = self._loaded.network.state_width
            noise = ruled_noise(rule, seed=self._request.seed, block=block, tokens=self._tokens, width=width)
            self._rows[block] = torch.from_numpy(noise).to(self._device, self._dtype)
        return self._rows[block]

    def _read(self) -> None:
        asked, network = self._request.initial_state, self._loaded.network
        assert asked.path is not None, "a request of this kind has one"
        if asked.digest and asked.digest != initial_state_digest(asked.path):
            raise RequestError(f"The initial-state file {asked.path!r} has changed since this request was made; run it anew.")
        expected = (self._tokens, network.state_width)
        for block, array in enumerate(read_initial_states(asked.path, len(network.blocks))):
            if array.shape != expected:
                raise RequestError(
                    f"initial_state_{block} has shape {array.shape}; this prompt and model need {expected} (tokens, width)."
                )
            self._rows[block] = torch.from_numpy(array).to(self._device, self._dtype)
