"""Checkpoint + Request -> Run: one prompt at a time, under a lock, in eval and inference mode."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from model.architecture import Lens
from model.capture.adapted import AdaptedSteps, inputs_watched
from model.capture.buffer import BlockBuffer
from model.capture.errors import CaptureError
from model.capture.hooks import hooked
from model.capture.quantities import ADAPTED_INPUT, chosen_readouts
from model.capture.readout import decode
from model.capture.trajectory import ReadoutKey, Run, Trajectory
from model.gate import gate_readouts
from model.memory import BYTES_PER_WEIGHT, MemoryLimit, Sizes, estimate
from model.opened import Opened, Shape, opened
from model.origin import origin
from model.request import Cancelled, Prompt, Request, RequestError
from model.starting import InitialStates

Progress = Callable[[str, float], None]
Cancel = Callable[[], bool]

_MASKED = (
    "log-probability of the next token: this is a masked language model, whose logits guess the token at the same position"
)

_UNREADABLE = "everything decoded: no head was named, so iterates cannot be read"


def run(request: Request, *, progress: Progress = lambda stage, fraction: None, cancel: Cancel = lambda: False) -> Run:
    """Run every prompt of the request and read it out.

    Raises CheckpointError, RequestError or MemoryLimit before anything is computed, Cancelled when ``cancel``
    says so, and CaptureError when other iterates arrive than were asked for.
    """
    with opened(request, check=lambda shape: _check_memory(shape, request), progress=progress) as there:
        share, begun = len(there.prompts), there.begun
        trajectories: list[Trajectory] = []
        for number in range(share):

            def part(stage: str, fraction: float, done: int = number) -> None:
                if cancel():
                    raise Cancelled("The run was cancelled; nothing of it was kept.")
                progress(stage, begun + (1 - begun) * (done + fraction) / share)

            trajectories.append(_Pass(there, request, number, part).trajectory(request.prompts[number]))
        return Run(request=request.to_json(), trajectories=tuple(trajectories))


def _check_memory(shape: Shape, request: Request) -> None:
    network = shape.network
    sizes = Sizes(
        max(network.width, network.state_width),
        sum(p.numel() for p in network.parameters()),
        BYTES_PER_WEIGHT[request.dtype],
    )
    lenses, tokens = len(request.lenses) if network.readable else 0, [len(ids) for ids in shape.prompts]
    found = estimate(sizes, tokens=tokens, loops=shape.loops, lenses=lenses, record=request.record)
    if not found.fits:
        raise MemoryLimit(found.sentence())


class _Pass:
    """One prompt's forward pass: buffers, hooks, readouts."""

    def __init__(self, there: Opened, request: Request, number: int, part: Progress) -> None:
        self._there, self._request, self._part = there, request, part
        self._loops, self._ids, self._network = there.loops, there.prompts[number], there.loaded.network
        loops, ids = self._loops, self._ids
        self._lenses = request.lenses if self._network.readable else ()
        weight = next(self._network.parameters())
        self._device, self._dtype = weight.device, weight.dtype
        self._starts = InitialStates(there.loaded, request, tokens=len(ids))
        record = request.record
        start, stop = record.positions or (0, len(ids))
        if start >= len(ids):
            raise RequestError(f"The token range starts at {start}, the prompt has {len(ids)} tokens; ranges count from 0.")
        self._buffers = [
            BlockBuffer(
                name=block.name,
                layers=block.layers,
                loops=n,
                tokens=len(ids),
                width=self._network.state_width,
                device=self._device,
                keep=record.kept_loops(n),
                keep_working=bool(self._lenses),
                kept=slice(start, min(stop, len(ids))),
            )
            for block, n in zip(self._network.blocks, loops, strict=True)
        ]
        wanted = loops if ADAPTED_INPUT in request.quantities else ()
        self._steps = [AdaptedSteps(loops=n, tokens=len(ids), device=self._device) for n in wanted]

    def _forward(self) -> None:
        ids = torch.tensor([self._ids], device=self._device)
        total = sum(self._loops)
        done = 0

        shape = (1, len(self._ids), self._network.state_width)

        def on_call(block: int, call: int, output: Tensor) -> None:
            nonlocal done
            done += 1
            if output.shape != shape:
                raise CaptureError(
                    f"Block {self._network.blocks[block].name} returned shape {tuple(output.shape)}; a looped block "
                    f"gives a state of the shape that it takes, {shape} (rows, tokens, width). Name another block."
                )
            before = self._buffers[block - 1] if block else None
            self._buffers[block].add(call, output[0], before=before)
            if self._steps:
                self._steps[block].end(call, output[0])
            self._part("capturing", 0.6 * min(1.0, done / total))

        def observe(block: int, entry: Tensor, state: Tensor) -> None:
            self._buffers[block].start(entry[0], state[0])

        with hooked(self._network.bodies, on_call) as counts, inputs_watched(self._network.openings, self._steps):
            self._network(ids, loops=self._loops, initial_state=self._starts, observe=observe)
        if tuple(counts) != self._loops:
            raise CaptureError(
                f"{counts} iterates were captured and {list(self._loops)} loops asked for; "
                "the model did not run as it was told, so nothing is shown."
            )

    def _decode(self) -> list[dict[ReadoutKey, np.ndarray]]:
        following = [*self._ids[1:], -1] if self._predicts_next else [-1] * len(self._ids)
        targets = torch.tensor(following, device=self._device)
        asked = chosen_readouts(self._request.quantities, also=(ADAPTED_INPUT,))
        kinds = [kind for kind in asked if self._predicts_next or not getattr(kind, "of_next_token", False)]
        made: list[dict[ReadoutKey, np.ndarray]] = []
        for block, buffer in enumerate(self._buffers):
            found = self._gate(buffer) | (self._steps[block].readouts() if self._steps else {})
            for lens in self._lenses:
                if lens == "coda" and block < len(self._buffers) - 1:
                    continue  # what follows an inner block depends on more than its iterate
                fraction = 0.6 + 0.4 * block / len(self._buffers)
                arrays = decode(
                    self._features(buffer, lens),
                    self._network.head,
                    targets,
                    quantities=kinds,
                    between=lambda fraction=fraction: self._part("decoding", fraction),
                )
                found |= {(lens, quantity): array for quantity, array in arrays.items()}
            made.append(found)
        return made

    def _features(self, buffer: BlockBuffer, lens: Lens) -> Tensor:
        ids = torch.tensor(self._ids, device=self._device)
        parts: tuple[Tensor, ...] = torch.split(buffer.working[1:].to(self._dtype), 64)
        return torch.cat([self._network.features(part, ids=ids, lens=lens) for part in parts]).to(torch.float32)

    def _gate(self, buffer: BlockBuffer) -> dict[ReadoutKey, np.ndarray]:
        """What a learned exit gate says of every iterate; nothing in families without one."""
        if not self._lenses:
            return {}  # the iterates are not held
        logits = self._network.gate(buffer.working[1:].to(self._dtype))
        return {} if logits is None else gate_readouts(logits.float().cpu().numpy())

    def _left_out(self) -> tuple[str, ...]:
        """What was asked for and could not be had, in words."""
        if not self._request.lenses:
            return ()
        if not self._network.readable:
            return (_UNREADABLE,)
        return () if self._predicts_next else (_MASKED,)

    @property
    def _predicts_next(self) -> bool:
        return self._there.loaded.architecture.objective == "next token"

    def trajectory(self, prompt: Prompt) -> Trajectory:
        """Run, decode, assemble."""
        self._forward()
        decoded, there = self._decode(), self._there
        seen = {int(i) for found in decoded for key, a in found.items() if key[1] == "top10_id" for i in np.unique(a) if i >= 0}
        return Trajectory(
            prompt=prompt.text,
            token_ids=np.array(self._ids, dtype=np.int64),
            labels=there.labels(self._ids),
            vocabulary=dict(zip(sorted(seen), there.labels(sorted(seen)), strict=True)),
            blocks=tuple(buffer.trace(found) for buffer, found in zip(self._buffers, decoded, strict=True)),
            provenance=origin(there.loaded, self._request, there.digest, started=self._starts.started),
            left_out=self._left_out(),
        )
