"""What a network family is: the contract that every file in architectures/ fulfils."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

Space = Literal["raw", "normed"]
Lens = Literal["logit", "coda"]

# (block, entry) -> the state handed to the first loop of that block, shaped like the entry.
InitialState = Callable[[int, Tensor], Tensor]

# (block, entry, initial state): told once per block, just before its first loop.
Observe = Callable[[int, Tensor, Tensor], None]


def ignore(block: int, entry: Tensor, state: Tensor) -> None:
    """The observer of a pass that nobody watches."""


@dataclass(frozen=True)
class InitialRule:
    """How a family starts a block: Gaussian noise of ``std``, on top of the entry or alone; std 0 is no noise."""

    std: float
    from_entry: bool

    def words(self) -> str:
        """The rule in words, for a chart or a card."""
        noise = f"Gaussian noise of std {self.std:.4g}"
        if self.std == 0:
            return "the block's entry" if self.from_entry else "zeros"
        return f"the block's entry plus {noise}" if self.from_entry else noise


@dataclass(frozen=True)
class BlockSpec:
    """A looped block: its name on screen and the indices of its layers in the whole network."""

    name: str
    layers: tuple[int, ...]


class LoopBody(nn.Module):
    """The layers of one looped block; one call is one loop, so hooks on it see every iterate.

    Its input is the state after injection, its output the next iterate.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """One loop: the state after injection in, the next iterate out."""
        for layer in self.layers:
            x = layer(x)
        return x


class LoopedNetwork(nn.Module):
    """A recurrent-depth network: layers below, looped blocks, a coda, a head.

    Attributes:
        blocks: the looped blocks in the order in which they run.
        bodies: the modules to hook, one per block; one call of a body is one loop.
        width, vocabulary, context: sizes; context is the longest prompt in tokens.
        gradient_loops: gradients flow through this many last loops of a block; None is all of them.
    """

    gradient_loops: int | None = None

    blocks: tuple[BlockSpec, ...]
    width: int
    vocabulary: int
    context: int

    @property
    def bodies(self) -> tuple[LoopBody, ...]:
        """The modules to hook, one per block."""
        raise TypeError(f"{type(self).__name__} names no loop bodies")

    def forward(
        self, ids: Int[Tensor, "B T"], *, loops: Sequence[int], initial_state: InitialState, observe: Observe = ignore
    ) -> Float[Tensor, "B T V"]:
        """Next-token logits after ``loops[g]`` loops of block g; ``observe`` is told how each block starts."""
        raise TypeError(f"{type(self).__name__} has no forward pass")

    def features(self, state: Float[Tensor, "B T C"], *, lens: Lens) -> Float[Tensor, "B T C"]:
        """What the head reads: logits = features @ head_weight.T.

        ``logit``: the final norm on the iterate of any block. ``coda``: the rest of the network above
        the last looped block, then the final norm.
        """
        raise TypeError(f"{type(self).__name__} has no lens {lens!r}")

    @property
    def head_weight(self) -> Float[Tensor, "V C"]:
        """The matrix that turns features into logits."""
        raise TypeError(f"{type(self).__name__} has no head")


@runtime_checkable
class Architecture(Protocol):
    """One network family. Implementations are frozen dataclasses without fields."""

    name: ClassVar[str]
    title: ClassVar[str]
    space: ClassVar[Space]
    injection: ClassVar[str]

    def recognises(self, config: Mapping[str, Any], keys: frozenset[str]) -> bool:
        """Whether config and tensor names are this family's; both must agree."""
        ...

    def build(self, config: Mapping[str, Any]) -> LoopedNetwork:
        """The network with untrained weights. Raises ValueError naming the field that is wrong."""
        ...

    def key_map(self, config: Mapping[str, Any]) -> Mapping[str, str | None]:
        """Tensor name in the file -> name in our module; None for a known tensor that is not needed."""
        ...

    def loops_trained(self, config: Mapping[str, Any]) -> float | None:
        """Mean number of loops per block in training, None where the checkpoint does not tell."""
        ...

    def initial_rule(self, config: Mapping[str, Any]) -> InitialRule:
        """The start that this checkpoint was trained with."""
        ...
