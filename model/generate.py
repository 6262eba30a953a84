"""Decoding where the loop really stops: read a prompt, write on, and record it as a Run like any other, in mode live.

Greedy or sampled, one text at a time (batch 1). Every token leaves every looped block where the exit says so; later
tokens see what it left (the policy is stated in ``model.keyvalues``). A given text read with exits and no new tokens
is how a live cross-entropy is measured.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np
import torch

from model.architecture import LoopedNetwork
from model.capture.trajectory import Run, Trajectory
from model.decoding import ASKED_FROM, Decoding, Exit
from model.live_pass import Halted, LivePass, Ran
from model.memory import MemoryLimit, memory_limit
from model.opened import Opened, Shape, opened
from model.origin import origin
from model.request import Cancelled, Prompt, Request, RequestError

_SMALL = 64 << 20
"""Bytes of weights below which one thread decodes faster than several, and much faster on a busy machine."""

Progress = Callable[[str, float], None]
Cancel = Callable[[], bool]


def generate(
    request: Request,
    decoding: Decoding,
    exit_: Exit | None = None,
    *,
    progress: Progress = lambda stage, fraction: None,
    cancel: Cancel = lambda: False,
) -> Run:
    """Read every prompt of the request and write on; without ``exit_`` all loops run.

    ``progress`` is told a stage and a fraction. A cancelled run keeps the tokens that were complete, and says in
    ``left_out`` what is missing; prompts of which no token was done are left away.

    Raises CheckpointError, RequestError or MemoryLimit before anything is computed, Cancelled when nothing is done yet.
    """
    with (
        opened(request, check=lambda shape: _check(shape, decoding), progress=progress) as there,
        _threads(there.loaded.network),
    ):
        total = sum(len(ids) + decoding.new_tokens for ids in there.prompts)
        done, found = 0, list[Trajectory]()
        for number, ids in enumerate(there.prompts):
            writer = _Writer(there, request, decoding, exit_, ids, cancel)

            def tell(tokens: int, before: int = done) -> None:
                progress("decoding", there.begun + (1 - there.begun) * (before + tokens) / total)

            complete = writer.write(tell)
            if writer.tokens:
                found.append(writer.trajectory(request.prompts[number]))
            if not complete:
                break
            done += writer.tokens
        if not found:
            raise Cancelled("The run was cancelled before its first token was done; nothing of it was kept.")
        return Run(request=request.to_json(), trajectories=tuple(found))


@contextmanager
def _threads(network: LoopedNetwork) -> Generator[None]:
    """One thread while a small network decodes: its products with one token are over before a second thread has woken up."""
    before = torch.get_num_threads()
    small = sum(p.numel() * p.element_size() for p in network.parameters()) < _SMALL
    try:
        if small:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


def _check(shape: Shape, decoding: Decoding) -> None:
    network, loops = shape.network, shape.loops
    if not network.steppable or shape.architecture.objective != "next token":
        raise RequestError(
            f"{shape.architecture.title} cannot run token by token: live exits need a causal family whose network Loopscope "
            "builds itself. Choose such a checkpoint, or read exits post hoc."
        )
    longest = max(len(ids) for ids in shape.prompts) + decoding.new_tokens
    if longest > network.context:
        raise RequestError(
            f"Prompt and new tokens make {longest} tokens and the model's context is {network.context}; ask for fewer new "
            "tokens or shorten the prompt."
        )
    need = network.memory_bytes(longest, loops=loops) + sum((n + 1) * longest * network.state_width * 4 for n in loops)
    if need > memory_limit():
        raise MemoryLimit(
            f"Keys, values and states of {longest} tokens and {', '.join(map(str, loops))} loops need {need / 2**30:.1f} GiB; "
            f"the limit is {memory_limit() / 2**30:.1f} GiB. Ask for fewer loops or tokens."
        )


class _Writer:
    """Reads one prompt and writes on."""

    def __init__(
        self, there: Opened, request: Request, decoding: Decoding, exit_: Exit | None, ids: tuple[int, ...], cancel: Cancel
    ) -> None:
        self._there, self._request, self._decoding, self._exit = there, request, decoding, exit_
        self._given, self._ids, self._goal = len(ids), list(ids), len(ids) + decoding.new_tokens
        self._pass = LivePass(
            there.loaded,
            request,
            there.loops,
            capacity=self._goal,
            exit_=exit_,
            cancel=cancel,
        )

    @property
    def tokens(self) -> int:
        """Tokens that are done."""
        return self._pass.tokens

    def write(self, tell: Callable[[int], None]) -> bool:
        """Run to the end; False where it was cancelled on the way."""
        try:
            tell(0)
            if self._decoding.prompt == "full depth":
                self._after(self._pass.read_all(self._ids), self._given)
                tell(self.tokens)
            while self.tokens < self._goal:
                self._after(self._pass.step(self._ids[self.tokens]), 1)
                tell(self.tokens)
        except Halted:
            return False
        return True

    def _after(self, logits: np.ndarray, ran: int) -> None:
        """Choose the next token where the text has none yet, and close what ran."""
        first, after = self.tokens, self.tokens + ran
        if after == len(self._ids) < self._goal:
            self._ids.append(self._decoding.sampling.choose(logits, after))
        self._pass.close([*self._ids[first + 1 : after + 1], *([] if after < len(self._ids) else [-1])])

    def trajectory(self, prompt: Prompt) -> Trajectory:
        """What was done so far."""
        ran, ids = self._pass.result(), self._ids[: self.tokens]
        missing = () if self.tokens == self._goal else (_stopped(self.tokens, self._goal),)
        return Trajectory(
            prompt=prompt.text,
            token_ids=np.array(ids, dtype=np.int64),
            labels=self._there.labels(ids),
            vocabulary=dict(zip(ran.seen_ids, self._there.labels(ran.seen_ids), strict=True)),
            blocks=ran.blocks,
            provenance=origin(
                self._there.loaded,
                self._request,
                self._there.digest,
                started=self._pass.starts.started,
                mode="live",
                decoding=self._words(ran),
            ),
            left_out=missing,
            seconds=ran.seconds,
        )

    def _words(self, ran: Ran) -> dict[str, str]:
        """How it was decoded, for the provenance."""
        decoding, steps = self._decoding, ran.seconds
        if decoding.prompt == "full depth":
            steps = steps[self._given :]
        speed = {"tokens per second": f"{len(steps) / steps.sum():.4g}"} if len(steps) else {}
        return {
            "exit": "none, all loops run" if self._exit is None else self._exit.words,
            "prompt": f"{min(self._given, self.tokens)} tokens, read {_READ[decoding.prompt]}",
            "written": f"{max(0, self.tokens - self._given)} tokens, {decoding.sampling.words()}",
            ASKED_FROM: str(self._given if decoding.prompt == "full depth" else 0),
            "deeper entries": "a token that left earlier is seen as it left",
            **speed,
        }


_READ = {"exits": "token by token, with exits", "full depth": "in one pass, all loops"}


def _stopped(done: int, goal: int) -> str:
    return f"tokens {done} to {goal - 1}: the run was stopped after {done} of {goal} tokens"
