"""What a network family is: the contract that every file in architectures/ fulfils."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from jaxtyping import Float, Int
from torch import Tensor, nn

Space = Literal["raw", "normed"]
Lens = Literal["logit", "coda"]

# (block, entry) -> the state handed to the first loop of that block, shaped like the entry.
InitialState = Callable[[int, Tensor], Tensor]


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
        for layer in self.layers:
            x = layer(x)
        return x


class LoopedNetwork(nn.Module):
    """A recurrent-depth network: layers below, looped blocks, a coda, a head.

    Attributes:
        blocks: the looped blocks in the order in which they run.
        bodies: the modules to hook, one per block; one call of a body is one loop.
        width, vocabulary, context: sizes; context is the longest prompt in tokens.
    """

    blocks: tuple[BlockSpec, ...]
    width: int
    vocabulary: int
    context: int

    @property
    def bodies(self) -> tuple[LoopBody, ...]:
        raise TypeError(f"{type(self).__name__} names no loop bodies")

    def forward(
        self, ids: Int[Tensor, "B T"], *, loops: Sequence[int], initial_state: InitialState
    ) -> Float[Tensor, "B T V"]:
        """Next-token logits after ``loops[g]`` loops of block g."""
        raise TypeError(f"{type(self).__name__} has no forward pass")

    def features(self, state: Float[Tensor, "B T C"], *, lens: Lens) -> Float[Tensor, "B T C"]:
        """What the head reads: logits = features @ head_weight.T.

        ``logit``: the final norm on the iterate of any block. ``coda``: the rest of the network above
        the last looped block, then the final norm.
        """
        raise TypeError(f"{type(self).__name__} has no lens {lens!r}")

    @property
    def head_weight(self) -> Float[Tensor, "V C"]:
        raise TypeError(f"{type(self).__name__} has no head")


class Architecture(Protocol):
    """One network family. Implementations are frozen dataclasses without fields."""

    name: ClassVar[str]
    title: ClassVar[str]
    space: ClassVar[Space]
    initial_state_rule: ClassVar[str]
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

    def default_initial_state(self, network: LoopedNetwork, config: Mapping[str, Any]) -> float | None:
        """Std of the Gaussian the family starts from; None where it starts from the entry."""
        ...
