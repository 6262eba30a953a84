"""A checkpoint opened for a request: checked before weights are read, one model in memory, one run at a time."""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from model.architecture import Architecture, LoopedNetwork
from model.capture.quantities import ADAPTED_INPUT, UnknownQuantity, chosen_readouts
from model.checkpoint import Loaded, identify, load, untrained
from model.locate import CheckpointError, Located, checked_digest, locate
from model.named_block import NamedBlock
from model.request import Request, RequestError, loops_per_block
from model.tokenizer import Tokenizer, load_tokenizer, prompt_ids

Progress = Callable[[str, float], None]

# One run at a time: a model's hooks and its memory are not shared between users of one server.
_LOCK = threading.Lock()
_loaded: dict[tuple[str, str, str, NamedBlock | None], Loaded] = {}

# Shares of the bar: files are hashed up to the first, weights are there at the second, the rest is the run itself.
_HASHED, _READY = 0.05, 0.25


@dataclass(frozen=True)
class Shape:
    """What can be checked before weights are read: a family, its network on whatever device, loops and ids of the prompts."""

    architecture: Architecture
    network: LoopedNetwork
    loops: tuple[int, ...]
    prompts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Opened:
    """A network in memory and what a request asks of it.

    Attributes:
        tokenizer: None where there is none and all prompts are ids.
        begun: share of the progress bar that is behind us.
    """

    loaded: Loaded
    loops: tuple[int, ...]
    prompts: tuple[tuple[int, ...], ...]
    tokenizer: Tokenizer | None
    digest: str
    begun: float

    def labels(self, ids: Sequence[int]) -> tuple[str, ...]:
        """One readable label per id; the id in brackets where there is no tokenizer."""
        return tuple(f"⟨{token}⟩" if self.tokenizer is None else self.tokenizer.label(token) for token in ids)


@contextmanager
def opened(request: Request, *, check: Callable[[Shape], None], progress: Progress) -> Generator[Opened]:
    """The checkpoint of a request under the lock, in inference mode; ``check`` may refuse before weights are read.

    Raises CheckpointError or RequestError, and what ``check`` raises.
    """
    _check_quantities(request)
    with _LOCK, torch.inference_mode():
        located = locate(request.checkpoint)
        found = checked_digest(located, request.digest, progress=lambda done: progress("hashing", _HASHED * done))
        key = (found, request.dtype, request.device, request.named)
        if key in _loaded:
            family, network = _loaded[key].architecture, _loaded[key].network
        else:
            _loaded.clear()  # never two models in memory, not even while the next one is checked
            identified = identify(located, request.named)
            family, network = identified.architecture, untrained(identified, located.name)
        _check_start(family, network, request)
        loops = loops_per_block(request.loops, len(network.blocks))
        tokenizer = _tokenizer_for(located, network, request)
        prompts = tuple(prompt_ids(prompt, tokenizer, network.vocabulary, network.context) for prompt in request.prompts)
        check(Shape(family, network, loops, prompts))
        begun = _HASHED
        if key not in _loaded:
            begun = _READY

            def loading(stage: str, done: float) -> None:
                progress(stage, _HASHED + (_READY - _HASHED) * done)

            _loaded[key] = load(located, dtype=request.dtype, device=request.device, named=request.named, progress=loading)
        yield Opened(_loaded[key], loops, prompts, tokenizer, found, begun)


def _check_quantities(request: Request) -> None:
    try:
        chosen_readouts(request.quantities, also=(ADAPTED_INPUT,))
    except UnknownQuantity as error:
        raise RequestError(str(error)) from error


_START_WORDS = {
    "zeros": "Zeros were asked for",
    "normal": "Gaussian noise was asked for",
    "file": "A file was given",
}


def _check_start(family: Architecture, network: LoopedNetwork, request: Request) -> None:
    if network.fixed_start and request.initial_state.kind != "trained":
        raise RequestError(
            f"{_START_WORDS[request.initial_state.kind]} for the initial state; {family.title} runs in the transformers "
            "library, where every block starts from its own input and takes no other. Choose trained."
        )


def _tokenizer_for(located: Located, network: LoopedNetwork, request: Request) -> Tokenizer | None:
    try:
        return load_tokenizer(located, network.vocabulary)
    except CheckpointError:
        if all(prompt.ids is not None for prompt in request.prompts):
            return None
        raise
