"""record(module, block=..., run=...): the trajectory of a looped block in anybody's own module."""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from .blocks import BlockPath, Span, find_blocks
from .buffer import BlockBuffer
from .calls import Calls, rows
from .errors import CaptureError
from .evaluating import evaluating
from .hooks import spanned
from .labels import Labels, Tokens, ids_of, label_of, labels_of
from .lenses import Decode, Lens, check_coda, named_lenses, read_out
from .quantities import chosen_readouts
from .readout import ReadoutClass
from .trajectory import Provenance, ReadoutKey, Trajectory

Given = Tensor | Sequence[Tensor | None] | None

_FLOORS = {torch.bfloat16: 6e-2, torch.float16: 8e-3}


def record(
    module: nn.Module,
    block: BlockPath | Sequence[BlockPath],
    *,
    run: Callable[[], Any],
    decode: Decode | Mapping[str, Decode] | None = None,
    tokens: Tokens = None,
    labels: Labels = None,
    loops: int | Sequence[int] | None = None,
    entry: Given = None,
    initial_state: Given = None,
    every: int = 1,
    positions: tuple[int, int] | None = None,
    states: bool = True,
    name: str = "",
    space: Literal["raw", "normed"] = "raw",
    seed: int = 0,
    loops_trained: float | None = None,
    quantities: Sequence[str] = (),
) -> Trajectory:
    """Run a forward pass and record every call of its looped block: one call is one loop.

    The pass runs in eval mode without gradients, and the module is left as it was. Calls of other threads on the
    same module are not mixed in, and threads that ``run`` starts are not seen. States are kept in float32.

    Args:
        module: the whole model; its modes are set and restored.
        block: path of the looped block (``"transformer.h.4"``), the module itself, or a ModuleList whose layers
            make one loop together. Several looped blocks are given in the order in which they run.
        run: makes one forward pass over one prompt, ``lambda: model(ids)``. States are [1, tokens, width] or
            [tokens, width]; of what a block returns, the first tensor is the state.
        decode: states [n, tokens, width] -> logits [n, tokens, vocabulary], for each token by itself, such as
            ``lambda x: model.head(model.norm(x))``; or ``{"logit": ..., "coda": ...}``, where the coda is the rest of
            the network and decodes the last block only. Where ``run`` returns the model's logits, the coda of the last
            iterate must equal them. Without it no readouts are made.
        tokens: the ids that went in, in order; they give the log-probability of the true next token.
        labels: text of every position, or a function from id to text, which then names predicted tokens too; whitespace is
            made visible.
        loops: how many loops must have run, one number or one per block; None takes what ran.
        entry: what came into the block from below, one tensor or one per block. None takes what the first call was
            handed; of several inputs of the state's shape, that one in whose place the second call gets the first
            output, else the first.
        initial_state: what the first loop started from; None as for ``entry``.
        every: store every n-th state. Statistics are recorded for all loops and tokens, whatever is stored.
        positions: half-open range of the tokens whose states are stored; None is all.
        states: False stores no state.
        name: the checkpoint, as captions say it.
        space: whether the block norms its output.
        seed: the seed that was set, for captions.
        loops_trained: mean number of loops in training, for captions.
        quantities: readouts beyond those that every run has, by name (``"min_p_kl"``); they need ``decode``.

    Returns:
        The trajectory; ``save`` writes it as a run folder.

    Raises:
        CaptureError: the path is wrong, the block was not called, or what was seen is not one full pass over one
            prompt. The message says what to do.
    """
    spans, lenses, kinds = find_blocks(module, block), named_lenses(decode), chosen_readouts(quantities)
    asked = None if loops is None else _per_block(loops, len(spans))
    keep = _Keep(every, positions, states)
    with evaluating(module):
        calls, output = _watched_run(module, spans, run)
        _check_loops(calls, asked)
        for seen, one in zip(calls.blocks, _given(entry, calls, what="entry"), strict=True):
            seen.entry = one
        for seen, one in zip(calls.blocks, _given(initial_state, calls, what="initial_state"), strict=True):
            seen.initial_state = one
        ids = ids_of(tokens, calls.first.tokens)
        buffers = _measured(calls, spans, keep=keep, working=bool(lenses))
        if "coda" in lenses:
            check_coda(lenses["coda"], buffers[-1].working[-1:].to(calls.first.dtype), output)
        decoded = _decoded(buffers, ids, lenses=lenses, dtype=calls.first.dtype, kinds=kinds)
    known = {int(i) for found in decoded for key, a in found.items() if key[1] == "top10_id" for i in np.unique(a) if i >= 0}
    architecture = type(getattr(module, "_orig_mod", module)).__name__  # torch.compile wraps
    return Trajectory(
        prompt=None,
        token_ids=ids,
        labels=labels_of(labels, ids),
        vocabulary={token: label_of(labels, token) for token in sorted(known)},
        blocks=tuple(buffer.trace(found) for buffer, found in zip(buffers, decoded, strict=True)),
        provenance=Provenance(
            checkpoint=name or architecture,
            digest="",
            architecture=architecture,
            space=space,
            dtype=str(calls.first.dtype).removeprefix("torch."),
            device=str(calls.first.device),
            seed=seed,
            initial_state="as the block's first call was handed it" if initial_state is None else "given by the caller",
            loops_trained=loops_trained,
            noise_floor=_FLOORS.get(calls.first.dtype, 1e-6),
            versions=_versions(),
        ),
    )


@dataclass(frozen=True)
class _Keep:
    """Which states are stored."""

    every: int
    positions: tuple[int, int] | None
    states: bool

    def __post_init__(self) -> None:
        if self.every < 1:
            raise CaptureError(f"every={self.every} was given; storing every n-th state needs 1 or more.")
        if self.positions is not None and not 0 <= self.positions[0] < self.positions[1]:
            raise CaptureError(f"positions={self.positions} is empty or negative; give (start, stop) with start < stop.")

    def loops(self, count: int) -> list[int]:
        return sorted({0, 1, count, *range(0, count + 1, self.every)}) if self.states else []

    def tokens(self, count: int) -> slice:
        start, stop = self.positions or (0, count)
        if start >= count:
            raise CaptureError(f"positions={self.positions} start behind the {count} tokens of this pass; they count from 0.")
        return slice(start, min(stop, count))


def _watched_run(module: nn.Module, spans: Sequence[Span], run: Callable[[], Any]) -> tuple[Calls, Any]:
    calls = Calls([span.name for span in spans])
    pairs = [(span.first, span.last) for span in spans]
    with spanned(pairs, calls.on_input, calls.on_call, whole=module) as wholes:
        output = run()
    calls.check_all_called()
    if wholes[0] > 1 and all(module is not m for pair in pairs for m in pair):
        raise CaptureError(
            f"run called the model {wholes[0]} times; it must make one forward pass over one prompt. Record each by itself."
        )
    return calls, output


def _per_block(loops: int | Sequence[int], blocks: int) -> list[int]:
    asked = [loops] * blocks if isinstance(loops, int) else list(loops)
    if len(asked) != blocks:
        wanted = "1" if blocks == 1 else f"1 or {blocks}"
        raise CaptureError(f"{len(asked)} numbers of loops were given and the looped blocks are {blocks}; give {wanted}.")
    return asked


def _check_loops(calls: Calls, asked: list[int] | None) -> None:
    counts = [len(seen.outputs) for seen in calls.blocks]
    if asked is not None and counts != asked:
        raise CaptureError(
            f"{counts} loops ran and {asked} were asked for; the model did not run as it was told, so nothing is recorded. "
            "Check how it takes its number of loops, or leave out loops= to record what runs."
        )


def _given(given: Given, calls: Calls, *, what: str) -> list[Tensor | None]:
    """The caller's tensor of every block as ``tokens width``."""
    blocks = len(calls.blocks)
    each = [given] * blocks if given is None or isinstance(given, Tensor) else list(given)
    if len(each) != blocks or (isinstance(given, Tensor) and blocks > 1):
        raise CaptureError(f"{what} must have one tensor (or None) for each of the {blocks} blocks.")
    checked: list[Tensor | None] = []
    for one, seen in zip(each, calls.blocks, strict=True):
        found = None if one is None else rows(one)
        if one is not None and (found is None or found.shape != calls.first.shape):
            raise CaptureError(
                f"{what} has shape {list(one.shape)}; block {seen.name!r} needs {list(calls.first.shape)} (tokens, width)."
            )
        checked.append(None if found is None else found.detach().to(calls.first.device))
    return checked


def _measured(calls: Calls, spans: Sequence[Span], *, keep: _Keep, working: bool) -> list[BlockBuffer]:
    """Feed every block's calls, in order, to the buffer that computes the statistics; the copies are let go."""
    buffers: list[BlockBuffer] = []
    for seen, span in zip(calls.blocks, spans, strict=True):
        entry, initial_state = seen.begin()
        loops = len(seen.outputs)
        buffer = BlockBuffer(
            name=span.name,
            layers=span.layers,
            loops=loops,
            tokens=calls.first.tokens,
            width=calls.first.shape[-1],
            device=calls.first.device,
            keep=keep.loops(loops),
            keep_working=working,
            kept=keep.tokens(calls.first.tokens),
        )
        buffer.start(entry, initial_state)
        for loop in range(1, loops + 1):
            buffer.add(loop, seen.outputs.pop(0), before=buffers[-1] if buffers else None)
        buffers.append(buffer)
    return buffers


def _decoded(
    buffers: Sequence[BlockBuffer],
    ids: Int64[np.ndarray, " tokens"],
    *,
    lenses: Mapping[Lens, Decode],
    dtype: torch.dtype,
    kinds: Sequence[ReadoutClass],
) -> list[dict[ReadoutKey, np.ndarray]]:
    made: list[dict[ReadoutKey, np.ndarray]] = []
    for number, buffer in enumerate(buffers):
        targets = torch.tensor([*ids[1:].tolist(), -1], device=buffer.device)
        found: dict[ReadoutKey, np.ndarray] = {}
        for lens, decode in lenses.items():
            if lens == "coda" and number < len(buffers) - 1:
                continue  # what follows an inner block depends on more than its iterate
            found |= read_out(buffer.working[1:], targets, lens=lens, decode=decode, dtype=dtype, quantities=kinds)
        made.append(found)
    return made


def _versions() -> dict[str, str]:
    return {
        "loopscope": version("loopscope"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
