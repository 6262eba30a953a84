"""Request: everything that decides a run, as one frozen value that is cache key, permalink and sidecar."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from model.named_block import NamedBlock

Lens = Literal["logit", "coda"]
InitialKind = Literal["trained", "zeros", "normal", "file"]
Dtype = Literal["float32", "bfloat16", "float16"]

MAX_LOOPS = 1024
"""Upper bound on the loops of one block; past it a typing error is likelier than a wish."""


class RequestError(ValueError):
    """A request that cannot be run; the message says what was given, what was expected and what to do."""


class Cancelled(RuntimeError):
    """The run was cancelled before it was complete."""


@dataclass(frozen=True)
class Prompt:
    """One prompt: text to tokenize, or token ids typed directly. Exactly one of the two is set."""

    text: str | None = None
    ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.ids is None):
            raise RequestError("A prompt is either text or token ids; give exactly one of them.")
        if self.text == "" or self.ids == ():
            raise RequestError("The prompt is empty; type at least one character or give at least one token id.")
        if self.ids is not None and min(self.ids) < 0:
            raise RequestError(f"Token id {min(self.ids)} is negative; ids count from 0.")


@dataclass(frozen=True)
class InitialState:
    """The state handed to loop 1 of every block.

    ``trained``: the family's own rule. ``zeros``. ``normal``: Gaussian noise with ``std``. ``file``: arrays
    ``initial_state_0`` and so on (tokens x width) in the .npz file at ``path``, whose sha256 is ``digest``.
    """

    kind: InitialKind = "trained"
    std: float | None = None
    path: str | None = None
    digest: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(InitialKind):
            raise RequestError(f"Initial state {self.kind!r} is unknown; choose one of {', '.join(get_args(InitialKind))}.")
        if (self.kind == "normal") != (self.std is not None):
            raise RequestError("Initial state 'normal' needs a std, and only that one takes it.")
        if self.std is not None and not 0 <= self.std < float("inf"):
            raise RequestError(f"The std of the initial state is {self.std}; it must be a finite number of at least 0.")
        if (self.kind == "file") != (self.path is not None):
            raise RequestError("Initial state 'file' needs a path, and only that one takes it.")


@dataclass(frozen=True)
class Record:
    """Which states are stored. Norms, cosines, accelerations and drift are recorded for every loop whatever this says.

    Attributes:
        every: store every n-th loop; the initial state, loop 1 and the last loop are always among them.
        positions: half-open range of token positions to store, None is all.
        states: False stores no state at all ("statistics only").
    """

    every: int = 1
    positions: tuple[int, int] | None = None
    states: bool = True

    def __post_init__(self) -> None:
        if self.every < 1:
            raise RequestError(f"Storing every {self.every}-th state makes no sense; give 1 or more.")
        if self.positions is not None and not 0 <= self.positions[0] < self.positions[1]:
            raise RequestError(f"Token range {self.positions[0]}:{self.positions[1]} is empty or negative; give start < stop.")

    def kept_loops(self, loops: int) -> list[int]:
        """Loop numbers of the states of a block that runs ``loops`` loops; none for statistics only."""
        return sorted({0, 1, loops, *range(0, loops + 1, self.every)}) if self.states else []


@dataclass(frozen=True)
class Request:
    """One run of one checkpoint. Equal requests give bit-equal runs on the same machine and versions.

    Attributes:
        checkpoint: ``demo``, ``demo@STEP``, or a path on the machine that runs the model.
        digest: sha256 over the checkpoint's files; "" until the request is resolved.
        prompts: run one by one, unpadded.
        loops: one number for all looped blocks, or one per block.
        seed: keys the noise together with block and position.
        dtype, device: what the network computes in and on; states are stored in float32.
        lenses: how iterates are decoded; empty records no readout.
        named: the looped blocks of a transformers model, where the person names them; None leaves it to the families.
        quantities: what to record beyond what every run has, by name: ``min_p_kl`` and the like.
    """

    checkpoint: str
    prompts: tuple[Prompt, ...]
    loops: tuple[int, ...]
    initial_state: InitialState = InitialState()
    seed: int = 0
    dtype: Dtype = "float32"
    device: str = "cpu"
    lenses: tuple[Lens, ...] = ("logit", "coda")
    record: Record = Record()
    digest: str = ""
    named: NamedBlock | None = None
    quantities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompts:
            raise RequestError("There is no prompt; give at least one.")
        if not self.loops:
            raise RequestError("No number of loops was given; give one number, or one per looped block.")
        for n in self.loops:
            if not 1 <= n <= MAX_LOOPS:
                raise RequestError(f"{n} loops were asked for; give a number from 1 to {MAX_LOOPS}.")
        if not 0 <= self.seed < 2**63:
            raise RequestError(f"Seed {self.seed} is out of range; give a whole number from 0 to 2^63 - 1.")
        if self.dtype not in get_args(Dtype):
            raise RequestError(f"Dtype {self.dtype!r} is unknown; choose one of {', '.join(get_args(Dtype))}.")
        if not set(self.lenses) <= set(get_args(Lens)):
            raise RequestError(f"Lenses {self.lenses} contain an unknown one; choose from {', '.join(get_args(Lens))}.")

    def to_json(self) -> dict[str, Any]:
        """The request as plain JSON values; ``from_json`` reads it back equal.

        ``named`` and ``quantities`` are left out where they are empty, so that requests keep the keys they had before
        these came.
        """
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if values["named"] is None:
            del values["named"]
        if not values["quantities"]:
            del values["quantities"]
        return values

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "Request":
        """Read what ``to_json`` wrote. Raises RequestError on an unknown or missing field."""
        try:
            given = dict(values)
            prompts = tuple(Prompt(p["text"], None if p["ids"] is None else tuple(p["ids"])) for p in given.pop("prompts"))
            record = dict(given.pop("record"))
            if record["positions"] is not None:
                record["positions"] = tuple(record["positions"])
            named = given.pop("named", None)
            return Request(
                prompts=prompts,
                named=None if named is None else NamedBlock.from_json(named),
                loops=tuple(given.pop("loops")),
                lenses=tuple(given.pop("lenses")),
                quantities=tuple(given.pop("quantities", ())),
                initial_state=InitialState(**given.pop("initial_state")),
                record=Record(**record),
                **given,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise RequestError(f"The request cannot be read ({error}); it was written by another version or edited.") from error

    def key(self) -> str:
        """sha256 of the canonical JSON: equal keys, equal requests, in every process."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def for_prompt(self, index: int) -> "Request":
        """The same request with only prompt ``index``: the unit that is run and cached."""
        return replace(self, prompts=(self.prompts[index],))


def loops_per_block(asked: tuple[int, ...], blocks: int) -> tuple[int, ...]:
    """One number of loops per block. Raises RequestError when the numbers given are neither one nor one per block."""
    if len(asked) not in (1, blocks):
        has = "one looped block: give one number" if blocks == 1 else f"{blocks} looped blocks: give 1 or {blocks}"
        raise RequestError(f"{len(asked)} numbers of loops were given; the model has {has}.")
    return asked * blocks if len(asked) == 1 else asked
