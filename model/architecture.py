"""What a network family is: the contract that every file in architectures/ fulfils."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.capture.head import Head
from model.keyvalues import KeyValues
from model.layers import Rotary
from model.locate import Located
from model.start import InitialRule

Space = Literal["raw", "normed"]
Lens = Literal["logit", "coda"]
Objective = Literal["next token", "masked token"]

# (block, entry) -> the state handed to the first loop of that block, "B T state_width".
InitialState = Callable[[int, Tensor], Tensor]

# (block, entry, initial state): told once per block, just before its first loop.
Observe = Callable[[int, Tensor, Tensor], None]


# (block, loop, iterate): asked after every loop whether the block is left here.
Stops = Callable[[int, int, Tensor], bool]


def ignore(block: int, entry: Tensor, state: Tensor) -> None:
    """The observer of a pass that nobody watches."""


def never(block: int, loop: int, state: Tensor) -> bool:
    """Full depth: no block is left before its last loop."""
    return False


@dataclass(frozen=True)
class BlockSpec:
    """A looped block: its name on screen and the indices of its layers in the whole network."""

    name: str
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Context:
    """What the layers of one pass need to know besides the state.

    Attributes:
        ids: token ids, one row per sequence, or one row for all.
        rotary: cosines and sines of the positions, None in families without rotation.
        memory: keys and values of earlier tokens; None in a pass over whole sequences.
        loop: which loop of its block runs, 1 in layers outside of all; told apart by the memory alone.
    """

    ids: Int[Tensor, "B T"]
    rotary: Rotary | None = None
    memory: KeyValues | None = None
    loop: int = 1

    @property
    def first(self) -> int:
        """Position of the first id."""
        return 0 if self.memory is None else self.memory.length

    def at(self, loop: int) -> "Context":
        """The context of a loop."""
        return self if self.memory is None else replace(self, loop=loop)


class LoopedNetwork(nn.Module):
    """A recurrent-depth network: layers below, looped blocks, a coda, a head.

    Attributes:
        blocks: the looped blocks in the order in which they run.
        bodies: the modules to hook, one per block; one call of a body is one loop.
        width, vocabulary, context: sizes; context is the longest prompt in tokens.
        state_width: width of the iterates, where it differs from that of the layers around the loop.
        gradient_loops: gradients flow through this many last loops of a block; None is all of them.
        fixed_start: whether every block starts from its own input and nothing else can be handed in.
        readable: whether iterates can be decoded; False where nobody said how.
        steppable: whether it runs token by token, with ``remember``, ``extend`` and ``features_after``.
    """

    gradient_loops: int | None = None
    steppable: bool = False
    fixed_start: bool = False
    readable: bool = True

    blocks: tuple[BlockSpec, ...]
    width: int
    vocabulary: int
    context: int

    @property
    def state_width(self) -> int:
        """Width of the iterates."""
        return self.width

    @property
    def bodies(self) -> tuple[nn.Module, ...]:
        """The modules to hook, one per block."""
        raise TypeError(f"{type(self).__name__} names no loop bodies")

    @property
    def openings(self) -> tuple[nn.Module, ...]:
        """The modules that are handed the state after injection, one per block: the bodies, where one module is a loop."""
        return self.bodies

    def forward(
        self, ids: Int[Tensor, "B T"], *, loops: Sequence[int], initial_state: InitialState, observe: Observe = ignore
    ) -> Float[Tensor, "B T V"]:
        """Logits after ``loops[g]`` loops of block g; ``observe`` is told how each block starts."""
        raise TypeError(f"{type(self).__name__} has no forward pass")

    def features(self, state: Float[Tensor, "B T C"], *, ids: Int[Tensor, " T"], lens: Lens) -> Float[Tensor, "B T D"]:
        """What the head reads: logits = head.logits(features). ``ids`` is the one sequence that all rows of B belong to.

        ``logit``: the final norm on the iterate of any block, no second one where it is already normed by it.
        ``coda``: the rest of the network above the last looped block, then the final norm.
        """
        raise TypeError(f"{type(self).__name__} has no lens {lens!r}")

    def extend(
        self,
        ids: Int[Tensor, "1 T"],
        *,
        loops: Sequence[int],
        initial_state: InitialState,
        memory: KeyValues,
        stops: Stops = never,
        observe: Observe = ignore,
    ) -> Float[Tensor, "1 T V"]:
        """Logits of tokens that follow those in the memory, which takes their keys and values.

        Block g is left where ``stops`` says so, after ``loops[g]`` loops at the latest. The caller advances the memory,
        after the last question about these tokens.
        """
        raise TypeError(f"{type(self).__name__} cannot run token by token")

    def features_after(
        self, state: Float[Tensor, "B T C"], *, ids: Int[Tensor, " T"], lens: Lens, memory: KeyValues
    ) -> Float[Tensor, "B T D"]:
        """Like ``features``, for tokens that follow those in the memory: a coda sees what earlier tokens left there."""
        raise TypeError(f"{type(self).__name__} cannot run token by token")

    def remember(self, tokens: int, *, loops: Sequence[int]) -> KeyValues:
        """An empty memory for ``tokens`` tokens, with room for ``loops[g]`` loops of block g."""
        raise TypeError(f"{type(self).__name__} cannot run token by token")

    def memory_bytes(self, tokens: int, *, loops: Sequence[int]) -> int:
        """Bytes that such a memory takes."""
        raise TypeError(f"{type(self).__name__} cannot run token by token")

    @property
    def head(self) -> Head:
        """What turns features into logits."""
        raise TypeError(f"{type(self).__name__} has no head")

    def gate(self, state: Float[Tensor, "B T C"]) -> Float[Tensor, "B T"] | None:
        """Logits of the learned exit gate on iterates; None in families without one."""
        return None


@runtime_checkable
class Architecture(Protocol):
    """One network family. Implementations are frozen dataclasses without fields that inherit from this.

    Attributes:
        name, title: for the machine and for the reader.
        space: whether an iterate is the block's plain output or normed inside the loop.
        injection, logit_lens: in words.
        objective: what the logits at a position predict.
        recognised_by: what in config and tensor names tells the family, in words.
        verified: what was compared with the reference implementation, in words.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    space: ClassVar[Space]
    injection: ClassVar[str]
    logit_lens: ClassVar[str]
    objective: ClassVar[Objective] = "next token"
    recognised_by: ClassVar[str]
    verified: ClassVar[str]

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """Whether config and tensor names are this family's; both must agree."""
        ...

    def settled(self, config: Mapping[str, Any], keys: frozenset[str]) -> Mapping[str, Any]:
        """The config with what old files leave out read from the tensor names; the config itself by default."""
        return config

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The network with untrained weights. Raises ValueError naming the field that is wrong."""
        ...

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """Mean number of loops per block in training, None where the checkpoint does not tell."""
        ...

    def config_loops(self, config: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Loops per block that the project's own code runs by default, None where the file does not tell."""
        return None

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """The start that this checkpoint was trained with."""
        ...


@runtime_checkable
class NativeArchitecture(Architecture, Protocol):
    """A family whose network is written here: weights are matched name by name."""

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """Tensor name in the file -> name in our module; None for a known tensor that is not needed.

        Several file names may lead to one of ours: tied weights, of which a file may leave out all names but one.
        """
        ...


def stored_names(key_map: Mapping[str, str | None]) -> dict[str, str]:
    """Our name -> the one name under which it is saved: the first, where tied weights have several."""
    names: dict[str, str] = {}
    for theirs, ours in key_map.items():
        if ours is not None:
            names.setdefault(ours, theirs)
    return names


@runtime_checkable
class LibraryArchitecture(Architecture, Protocol):
    """A family that a library builds and loads; it is hooked in place."""

    def load(self, located: Located, config: Mapping[str, Any], *, dtype: torch.dtype, device: torch.device) -> LoopedNetwork:
        """The network with its weights, in eval mode. Raises CheckpointError when a weight is missing or unexpected."""
        ...
