"""Checkpoint + Request -> Run: one prompt at a time, under a lock, in eval and inference mode."""

import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor

from model.architecture import Architecture, Lens, LoopedNetwork
from model.capture.adapted import AdaptedSteps, inputs_watched
from model.capture.buffer import BlockBuffer
from model.capture.errors import CaptureError
from model.capture.hooks import hooked
from model.capture.quantities import ADAPTED_INPUT, UnknownQuantity, chosen_readouts
from model.capture.readout import decode
from model.capture.trajectory import Provenance, ReadoutKey, Run, Trajectory
from model.checkpoint import Loaded, identify, load, untrained
from model.gate import gate_readouts
from model.locate import CheckpointError, Located, canonical, checked_digest, locate
from model.memory import BYTES_PER_WEIGHT, MemoryLimit, Sizes, estimate
from model.named_block import NamedBlock
from model.noise import initial_state_digest, read_initial_states, ruled_noise, words
from model.request import Cancelled, Prompt, Request, RequestError, loops_per_block
from model.start import InitialRule
from model.tokenizer import Tokenizer, load_tokenizer, prompt_ids

Progress = Callable[[str, float], None]
Cancel = Callable[[], bool]

# One run at a time: a model's hooks and its memory are not shared between users of one server.
_LOCK = threading.Lock()
_loaded: dict[tuple[str, str, str, NamedBlock | None], Loaded] = {}

_MASKED = (
    "log-probability of the next token: this is a masked language model, whose logits guess the token at the same position"
)

_UNREADABLE = "everything decoded: no head was named, so iterates cannot be read"

# Shares of the bar: files are hashed up to the first, weights are there at the second, the rest is the run itself.
_HASHED, _READY = 0.05, 0.25

_FLOORS = {"float32": 1e-6, "bfloat16": 6e-2, "float16": 8e-3}


def run(request: Request, *, progress: Progress = lambda stage, fraction: None, cancel: Cancel = lambda: False) -> Run:
    """Run every prompt of the request and read it out.

    Raises CheckpointError, RequestError or MemoryLimit before anything is computed, Cancelled when ``cancel``
    says so, and CaptureError when other iterates arrive than were asked for.
    """
    _check_quantities(request)
    with _LOCK, torch.inference_mode():
        located = locate(request.checkpoint)
        found = checked_digest(located, request.digest, progress=lambda done: progress("hashing", _HASHED * done))
        key = (found, request.dtype, request.device, request.named)
        if key in _loaded:
            shape = _Shape(_loaded[key].architecture, _loaded[key].network)
        else:
            _loaded.clear()  # never two models in memory, not even while the next one is checked
            identified = identify(located, request.named)
            shape = _Shape(identified.architecture, untrained(identified, located.name))
        _check_start(shape, request)
        loops = loops_per_block(request.loops, len(shape.network.blocks))
        tokenizer = _tokenizer_for(located, shape, request)
        prompts = [prompt_ids(prompt, tokenizer, shape.network.vocabulary, shape.network.context) for prompt in request.prompts]
        _check_memory(shape, request, loops, [len(ids) for ids in prompts])
        begun = _HASHED
        if key not in _loaded:
            begun = _READY

            def loading(stage: str, done: float) -> None:
                progress(stage, _HASHED + (_READY - _HASHED) * done)

            _loaded[key] = load(located, dtype=request.dtype, device=request.device, named=request.named, progress=loading)
        loaded = _loaded[key]
        trajectories: list[Trajectory] = []
        for number, ids in enumerate(prompts):
            share = len(prompts)

            def part(stage: str, fraction: float, done: int = number, share: int = share, begun: float = begun) -> None:
                if cancel():
                    raise Cancelled("The run was cancelled; nothing of it was kept.")
                progress(stage, begun + (1 - begun) * (done + fraction) / share)

            pass_ = _Pass(loaded, request, loops, ids, part)
            trajectories.append(pass_.trajectory(request.prompts[number], tokenizer, found))
        return Run(request=request.to_json(), trajectories=tuple(trajectories))


@dataclass(frozen=True)
class _Shape:
    """What can be checked before weights are read: a family, and its network on whatever device."""

    architecture: Architecture
    network: LoopedNetwork


def _check_quantities(request: Request) -> None:
    try:
        chosen_readouts(request.quantities, also=(ADAPTED_INPUT,))
    except UnknownQuantity as error:
        raise RequestError(str(error)) from error


def _check_start(shape: _Shape, request: Request) -> None:
    if shape.network.fixed_start and request.initial_state.kind != "trained":
        raise RequestError(
            f"Initial state {request.initial_state.kind!r} was asked for; {shape.architecture.title} starts every block from "
            "its own input and takes no other. Choose trained."
        )


def _tokenizer_for(located: Located, shape: _Shape, request: Request) -> Tokenizer | None:
    try:
        return load_tokenizer(located, shape.network.vocabulary)
    except CheckpointError:
        if all(prompt.ids is not None for prompt in request.prompts):
            return None
        raise


def _check_memory(shape: _Shape, request: Request, loops: tuple[int, ...], tokens: list[int]) -> None:
    network = shape.network
    sizes = Sizes(
        max(network.width, network.state_width),
        sum(p.numel() for p in network.parameters()),
        BYTES_PER_WEIGHT[request.dtype],
    )
    lenses = len(request.lenses) if network.readable else 0
    found = estimate(sizes, tokens=tokens, loops=loops, lenses=lenses, record=request.record)
    if not found.fits:
        raise MemoryLimit(found.sentence())


class _Pass:
    """One prompt's forward pass: buffers, hooks, readouts."""

    def __init__(self, loaded: Loaded, request: Request, loops: tuple[int, ...], ids: tuple[int, ...], part: Progress) -> None:
        self._loaded, self._request, self._loops, self._ids, self._part = loaded, request, loops, ids, part
        self._network = loaded.network
        self._lenses = request.lenses if loaded.network.readable else ()
        weight = next(self._network.parameters())
        self._device, self._dtype = weight.device, weight.dtype
        self._noise = self._initial_states()
        self._started: set[int] = set()  # blocks whose family asked for an initial state
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

    def _initial_states(self) -> list[Tensor] | None:
        """Explicit states from a file, per block; None for rules that are made on the way."""
        asked = self._request.initial_state
        if asked.kind != "file" or asked.path is None:
            return None
        if asked.digest and asked.digest != initial_state_digest(asked.path):
            raise RequestError(f"The initial-state file {asked.path!r} has changed since this request was made; run it anew.")
        arrays = read_initial_states(asked.path, len(self._network.blocks))
        expected = (len(self._ids), self._network.state_width)
        for block, array in enumerate(arrays):
            if array.shape != expected:
                raise RequestError(
                    f"initial_state_{block} has shape {array.shape}; this prompt and model need {expected} (tokens, width)."
                )
        return [torch.from_numpy(array).to(self._device, self._dtype) for array in arrays]

    def _start(self, block: int, entry: Tensor) -> Tensor:
        self._started.add(block)
        asked, tokens, width = self._request.initial_state, len(self._ids), self._network.state_width
        if self._noise is not None:
            return self._noise[block][None]
        zeros = torch.zeros(1, tokens, width, dtype=self._dtype, device=self._device)
        if asked.kind == "zeros":
            return zeros
        rule = self._loaded.architecture.initial_rule(self._loaded.config)
        if asked.std is not None:
            rule = InitialRule(std=asked.std, from_entry=False)
        base = entry if rule.from_entry else zeros
        if rule.std == 0:
            return base
        noise = ruled_noise(rule, seed=self._request.seed, block=block, tokens=tokens, width=width)
        return base + torch.from_numpy(noise).to(self._device, self._dtype)[None]

    def _forward(self) -> None:
        ids = torch.tensor([self._ids], device=self._device)
        total = sum(self._loops)
        done = 0

        def on_call(block: int, call: int, output: Tensor) -> None:
            nonlocal done
            done += 1
            before = self._buffers[block - 1] if block else None
            self._buffers[block].add(call, output[0], before=before)
            if self._steps:
                self._steps[block].end(call, output[0])
            self._part("capturing", 0.6 * min(1.0, done / total))

        def observe(block: int, entry: Tensor, state: Tensor) -> None:
            self._buffers[block].start(entry[0], state[0])

        with hooked(self._network.bodies, on_call) as counts, inputs_watched(self._network.openings, self._steps):
            self._network(ids, loops=self._loops, initial_state=self._start, observe=observe)
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
        return self._loaded.architecture.objective == "next token"

    def trajectory(self, prompt: Prompt, tokenizer: Tokenizer | None, digest_: str) -> Trajectory:
        """Run, decode, assemble."""
        self._forward()
        decoded = self._decode()
        seen = {int(i) for found in decoded for key, a in found.items() if key[1] == "top10_id" for i in np.unique(a) if i >= 0}
        return Trajectory(
            prompt=prompt.text,
            token_ids=np.array(self._ids, dtype=np.int64),
            labels=tuple(_label(tokenizer, token) for token in self._ids),
            vocabulary={token: _label(tokenizer, token) for token in sorted(seen)},
            blocks=tuple(buffer.trace(found) for buffer, found in zip(self._buffers, decoded, strict=True)),
            provenance=self._provenance(digest_),
            left_out=self._left_out(),
        )

    def _provenance(self, digest_: str) -> Provenance:
        request, family = self._request, self._loaded.architecture
        skipped = [g for g in range(len(self._buffers)) if g not in self._started]
        start = words(request.initial_state, family.initial_rule(self._loaded.config).words())
        if self._network.fixed_start:
            start = "the block's own input"
        elif len(skipped) == len(self._buffers):
            start = "the block's entry: one loop is a plain pass in this family, without initial state or injection"
        elif skipped:
            names = ", ".join(self._buffers[g].name for g in skipped)
            start += f"; {names}: one loop, a plain pass from the block's entry"
        return Provenance(
            checkpoint=canonical(request.checkpoint),
            digest=digest_,
            architecture=family.name,
            space=family.space,
            dtype=request.dtype,
            device=request.device,
            seed=request.seed,
            initial_state=start,
            loops_trained=family.loops_trained(self._loaded.config),
            noise_floor=_FLOORS[request.dtype],
            versions={
                "loopscope": version("loopscope"),
                "torch": torch.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        )


def _label(tokenizer: Tokenizer | None, token: int) -> str:
    return f"⟨{token}⟩" if tokenizer is None else tokenizer.label(token)
