"""The only doors to the torch side: run, inspect, tokenize, save, load.

Each door that needs torch imports it inside, because torch takes seconds to import and the app paints a
bundled run before that.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.bundled import bundled_card, bundled_others, bundled_request, bundled_run
from analysis.chart import ChartError
from analysis.comparison import ComparisonError
from analysis.exit_rule import MissingReadout
from analysis.projection import ProjectionError
from analysis.prompts import PromptError
from analysis.registry import first_sentence
from model.capture.errors import CaptureError
from model.capture.trajectory import Run, RunFormatError, Trajectory, load_run, save_run
from model.card import Card, Flops
from model.decoding import Decoding, Exit, Sampling
from model.files import check_allowed
from model.locate import CheckpointError, canonical, checked_digest, demo_names, digest, locate
from model.memory import Estimate, MemoryLimit, estimate_request
from model.named_block import NamedBlock
from model.noise import initial_state_digest
from model.request import (
    MAX_LOOPS,
    Cancelled,
    Dtype,
    InitialKind,
    InitialState,
    Lens,
    Prompt,
    Record,
    Request,
    RequestError,
)
from model.tokenizer import labels, load_tokenizer, prompt_ids
from model.tokenizer import warnings as tokenizer_warnings
from model.uploads import Content, Upload
from model.uploads import keep as keep_files
from model.uploads import remove as remove_upload

__all__ = [
    "KNOWN_ERRORS",
    "MAX_LOOPS",
    "Cancelled",
    "CaptureError",
    "Card",
    "CheckpointError",
    "Decoding",
    "Dtype",
    "Estimate",
    "Flops",
    "InitialKind",
    "InitialState",
    "Lens",
    "MemoryLimit",
    "NamedBlock",
    "Prompt",
    "Record",
    "Request",
    "RequestError",
    "Run",
    "RunFormatError",
    "Sampling",
    "Trajectory",
    "Upload",
    "architectures",
    "bundled_others",
    "bundled_request",
    "card",
    "check_allowed",
    "checkpoints",
    "devices",
    "estimate",
    "generate",
    "keep_upload",
    "load",
    "readouts",
    "remove_upload",
    "resolve",
    "run",
    "save",
    "tokenize",
    "warnings",
]

Progress = Callable[[str, float], None]
Cancel = Callable[[], bool]


KNOWN_ERRORS: tuple[type[Exception], ...] = (
    Cancelled,
    CaptureError,
    ChartError,
    CheckpointError,
    ComparisonError,
    MemoryLimit,
    MissingReadout,
    ProjectionError,
    PromptError,
    RequestError,
    RunFormatError,
)
"""Exceptions whose message is a sentence for the person at the screen."""


def checkpoints() -> tuple[str, ...]:
    """Names of the bundled checkpoints, in order of training; ``demo`` means the last."""
    return demo_names()


def _silent(stage: str, fraction: float) -> None:
    """Progress that nobody watches."""


def card(checkpoint: str, *, named: NamedBlock | None = None, progress: Progress = _silent) -> Card:
    """What a checkpoint is, from its headers. Bundled ones are read from their index, without torch.

    ``named`` are looped blocks that a person names in a transformers model; ``progress`` is told how far the hashing of
    the files is.
    """
    located = locate(checkpoint)
    bundled = bundled_card(checkpoint) if named is None else None
    if bundled is not None and bundled.digest == digest(located):
        return bundled
    from model.checkpoint import card as read_card  # torch: only its families can tell what the tensors are

    return read_card(checkpoint, named=named, progress=progress)


def keep_upload(files: Sequence[tuple[str, Content]], *, limit_bytes: int) -> Upload:
    """Keep uploaded files in a private folder, to be used by the name of the result until ``remove_upload``.

    Raises CheckpointError with a sentence when a file name is unsafe or the files are too large.
    """
    return keep_files(files, limit_bytes=limit_bytes)


def devices() -> tuple[str, ...]:
    """Kinds of devices that the network can run on here."""
    from model.checkpoint import devices as here  # torch: only it knows the machine's accelerators

    return here()


def warnings(request: Request) -> tuple[str, ...]:
    """What a reader should know about the special tokens of the prompts. Raises as the run itself would."""
    found = card(request.checkpoint, named=request.named)
    try:
        tokenizer = load_tokenizer(locate(request.checkpoint), found.vocabulary)
    except CheckpointError:
        return ()
    said: list[str] = []
    for prompt in request.prompts:
        said += tokenizer_warnings(tokenizer, prompt_ids(prompt, tokenizer, found.vocabulary, found.context))
    return tuple(dict.fromkeys(said))


def tokenize(checkpoint: str, text: str, *, named: NamedBlock | None = None) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Token ids of a text and their readable labels."""
    tokenizer = load_tokenizer(locate(checkpoint), card(checkpoint, named=named).vocabulary)
    ids = tokenizer.encode(text)
    return ids, labels(tokenizer, ids)


def resolve(request: Request, *, progress: Progress = _silent) -> Request:
    """The request with its checkpoint's one name and the digests of all files it reads.

    ``progress`` is told how far the hashing is.

    Raises CheckpointError or RequestError when a file is not there or has changed since the request was made.
    """
    located = locate(request.checkpoint)
    found = checked_digest(located, request.digest, progress=lambda fraction: progress("hashing", fraction))
    state = request.initial_state
    if state.kind == "file" and state.path is not None:
        state = replace(state, digest=initial_state_digest(state.path))
    return replace(request, checkpoint=canonical(request.checkpoint), digest=found, initial_state=state)


def estimate(request: Request) -> Estimate:
    """Memory that a run takes, from sizes alone.

    Raises RequestError as the run itself would when prompt or loops do not suit the checkpoint.
    """
    found = card(request.checkpoint, named=request.named)
    tokenizer = None
    if any(prompt.text is not None for prompt in request.prompts):
        tokenizer = load_tokenizer(locate(request.checkpoint), found.vocabulary)
    lengths = [len(prompt_ids(prompt, tokenizer, found.vocabulary, found.context)) for prompt in request.prompts]
    return estimate_request(request, found, lengths)


def run(request: Request, *, progress: Progress | None = None, cancel: Cancel | None = None) -> Run:
    """Run the model as the request says, or give the bundled run of an equal request without importing torch.

    ``progress`` is told a stage and a fraction; ``cancel`` is asked between loops and stops the run with Cancelled.
    """
    request = resolve(request)
    bundled = bundled_run(request)
    if bundled is not None:
        return bundled
    from model import runner  # torch: the network itself runs here

    return runner.run(
        request,
        progress=progress if progress is not None else lambda stage, fraction: None,
        cancel=cancel if cancel is not None else lambda: False,
    )


def generate(
    request: Request,
    decoding: Decoding,
    exit_: Exit | None = None,
    *,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Run:
    """Run the model token by token, leaving its loops where ``exit_`` says so, and write on; ``analysis.live`` asks a rule.

    The run is like any other, in mode ``live``. Cancelled, it keeps the tokens that were done.
    """
    request = resolve(request)
    from model import generate as live  # torch: the network itself runs here

    return live.generate(
        request,
        decoding,
        exit_,
        progress=progress if progress is not None else _silent,
        cancel=cancel if cancel is not None else lambda: False,
    )


def save(run: Run, folder: Path) -> None:
    """Write a run folder: run.json and one .safetensors file per prompt."""
    save_run(run, folder)


def load(folder: Path) -> Run:
    """Read a run folder. Raises RunFormatError with a sentence when it cannot be read."""
    return load_run(folder)


def readouts() -> dict[str, str]:
    """Readout quantities and what they are."""
    from model.capture.readout import readouts as kinds  # torch: readouts are computed where the model runs

    return {name: first_sentence(kind) for name, kind in kinds().items()}


def architectures() -> dict[str, str]:
    """Network families and what they are."""
    from model.families import architectures as families  # torch: a family's file holds its network

    return {name: first_sentence(type(family)) for name, family in families().items()}
