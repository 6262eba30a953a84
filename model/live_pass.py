"""One text run live: token by token, each leaving a looped block where the exit says so, seen by later ones as it was left."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from model.capture.adapted import BLOCK_LENS, AdaptedSteps, inputs_watched
from model.capture.quantities import ADAPTED_INPUT, chosen_readouts
from model.capture.trajectory import BlockTrace, ReadoutKey
from model.checkpoint import Loaded
from model.decoding import Exit
from model.live_readout import LiveReader
from model.live_record import BlockRecord
from model.request import Request
from model.running import Leaves, Moment, Running
from model.starting import InitialStates


class Halted(Exception):
    """Somebody asked to stop while a token was inside a block; what was done before it stands."""


@dataclass(frozen=True)
class Ran:
    """What has been run so far: a trace per block, and the seconds that each token took (without its readouts)."""

    blocks: tuple[BlockTrace, ...]
    seconds: Float64[np.ndarray, " tokens"]
    seen_ids: tuple[int, ...]


class LivePass:
    """Runs the tokens of one text, at most ``capacity`` of them, and keeps the record."""

    def __init__(
        self,
        loaded: Loaded,
        request: Request,
        loops: tuple[int, ...],
        *,
        capacity: int,
        exit_: Exit | None,
        cancel: Callable[[], bool],
    ) -> None:
        self._network, self._loops, self._leaves = loaded.network, loops, None if exit_ is None else exit_.leaves
        self._kinds, self._cancel = chosen_readouts(request.quantities, also=(ADAPTED_INPUT,)), cancel
        self._adapted, self._steps = ADAPTED_INPUT in request.quantities, list[AdaptedSteps]()
        self._memory = self._network.remember(capacity, loops=loops)
        self.starts = InitialStates(loaded, request, tokens=capacity)
        self._reader = LiveReader(self._network, self._memory, request.lenses)
        self._single = self._running(1, decides=exit_ is not None)
        self._records = [BlockRecord(block, capacity=capacity, record=request.record) for block in self._single]
        self._seconds = np.full(capacity, np.nan)

    @property
    def tokens(self) -> int:
        """Tokens that were run."""
        return self._memory.length

    def _running(self, tokens: int, *, decides: bool) -> list[Running]:
        made: list[Running] = []
        for index, (spec, loops) in enumerate(zip(self._network.blocks, self._loops, strict=True)):
            offered = self._offered(index, loops) if decides else {}

            def read(key: ReadoutKey, index: int = index, arrays: dict[ReadoutKey, np.ndarray] = offered) -> None:
                if key[0] == BLOCK_LENS:
                    arrays[key][:] = self._steps[index].readouts()[key]
                else:
                    self._reader.fill(index, key, arrays[key])

            width = self._network.state_width
            made.append(
                Running(index, spec.name, spec.layers, loops=loops, tokens=tokens, width=width, readouts=offered, read=read)
            )
        return made

    def _offered(self, index: int, loops: int) -> dict[ReadoutKey, np.ndarray]:
        """Arrays of one token for everything that a rule can ask for."""
        measured = self._watched(loops, 1).readouts() if self._adapted else {}
        return self._reader.offered(index, loops) | measured

    def _watched(self, loops: int, tokens: int) -> AdaptedSteps:
        return AdaptedSteps(loops=loops, tokens=tokens, device=next(self._network.parameters()).device)

    def step(self, token: int) -> Float64[np.ndarray, " vocabulary"]:
        """Run one token; logits of the next. ``close`` must follow. Raises Halted when the run is stopped on the way."""
        return self._run([token], self._single, self._leaves)

    def read_all(self, ids: Sequence[int]) -> Float64[np.ndarray, " vocabulary"]:
        """Run tokens in one pass with all loops; logits of what follows the last. ``close`` must follow. Raises Halted."""
        return self._run(ids, self._running(len(ids), decides=False), None)

    def _run(self, ids: Sequence[int], running: list[Running], leaves: Leaves | None) -> Float64[np.ndarray, " vocabulary"]:
        began, first = time.perf_counter(), self._memory.length
        self._present, earlier = running, [tuple(running[:g]) for g in range(len(running))]
        self._reader.begin(ids)
        self._steps = [self._watched(loops, len(ids)) for loops in self._loops] if self._adapted else []

        def start(block: int, entry: Tensor) -> Tensor:
            return self.starts(block, entry, first=first)

        def observe(block: int, entry: Tensor, state: Tensor) -> None:
            running[block].start(_numpy(entry[0]), _numpy(state[0]))

        def stops(block: int, loop: int, state: Tensor) -> bool:
            if self._cancel():
                raise Halted
            self._reader.iterates[block].append(state)
            if self._steps:
                self._steps[block].end(loop, state[0])
            running[block].add(_numpy(state[0]), handed=running[block - 1].last if block and loop == 1 else None)
            if leaves is None or loop == self._loops[block]:
                return False
            return leaves(Moment(first, loop, running[block], earlier[block]))

        with inputs_watched(self._network.bodies, self._steps):
            logits = self._network.extend(
                self._reader.ids[None],
                loops=self._loops,
                initial_state=start,
                memory=self._memory,
                stops=stops,
                observe=observe,
            )
        last = logits[0, -1].double().cpu().numpy()
        self._seconds[first : first + len(ids)] = (time.perf_counter() - began) / len(ids)
        return last

    def close(self, following: Sequence[int]) -> None:
        """Record the tokens that were run last; ``following`` are the ids after each of them, -1 where there is none."""
        first = self._memory.length
        for index, (record, block) in enumerate(zip(self._records, self._present, strict=True)):
            readouts = self._reader.recorded(index, self._loops[index], following, self._kinds)
            if self._steps:
                readouts |= {key: array[: block.loop] for key, array in self._steps[index].readouts().items()}
            record.take(block, first, readouts)
        self._memory.advance(len(following))

    def result(self) -> Ran:
        """The record so far."""
        tokens = self.tokens
        seen = {int(i) for record in self._records for i in record.seen_ids(tokens)}
        return Ran(
            blocks=tuple(record.trace(tokens) for record in self._records),
            seconds=self._seconds[:tokens].copy(),
            seen_ids=tuple(sorted(seen)),
        )


def _numpy(state: Float[Tensor, "T C"]) -> Float[np.ndarray, "T C"]:
    return state.to(torch.float32).cpu().numpy()
