"""Prelude, core, coda: the network that families with one looped block share; each fills in what is its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import BlockSpec, Context, InitialState, Observe, Stops
from model.capture.head import Head
from model.native_network import LoopBody, NativeNetwork


@dataclass(frozen=True)
class Parts:
    """The modules of a network with one looped block.

    Attributes:
        prelude, core, coda: layers below, inside and above the loop; each is called with (state, context).
        norm: the final norm. loop_norm: the norm inside the loop, None for none.
        width, state_width: of the layers around the loop, and of the iterates.
        tied: whether the head is the token embedding.
    """

    prelude: Sequence[nn.Module]
    core: Sequence[nn.Module]
    coda: Sequence[nn.Module]
    norm: nn.Module
    width: int
    vocabulary: int
    context: int
    tied: bool
    name: str
    loop_norm: nn.Module | None = None
    state_width: int | None = None


class PreludeCoreCoda(NativeNetwork):
    """tokens -> prelude -> (inject, core) x K -> coda -> norm -> head.

    Families override ``embed``, ``place``, ``enter``, ``inject``, ``leave`` and ``rotary``, and ``glance`` or
    ``finish`` where the final norm plays another part.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.width, self.vocabulary, self.context = parts.width, parts.vocabulary, parts.context
        self._state_width = parts.state_width or parts.width
        first = len(parts.prelude)
        self.blocks = (BlockSpec(parts.name, tuple(range(first, first + len(parts.core)))),)
        self.tokens = nn.Embedding(parts.vocabulary, parts.width)
        self.prelude = nn.ModuleList(parts.prelude)
        self.core = LoopBody(parts.core, parts.loop_norm)
        self.coda = nn.ModuleList(parts.coda)
        self.norm = parts.norm
        self.lm_head = None if parts.tied else nn.Linear(parts.width, parts.vocabulary, bias=False)

    @property
    def state_width(self) -> int:
        """Width of the iterates."""
        return self._state_width

    @property
    def bodies(self) -> tuple[nn.Module, ...]:
        """The core."""
        return (self.core,)

    @property
    def head(self) -> Head:
        """The token embedding where it is tied, else a matrix of its own."""
        return Head(self.tokens.weight if self.lm_head is None else self.lm_head.weight)

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """What the first layer reads of the ids."""
        return self.tokens(ids)

    def place(self, x: Float[Tensor, "B T C"], first: int) -> Float[Tensor, "B T C"]:
        """Embeddings that know their positions, the first of which is ``first``."""
        return x

    def enter(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """From the last layer below the loop to the entry."""
        return x

    def inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T S"], loop: int) -> Float[Tensor, "B T S"]:
        """What the first layer of the loop reads in loop ``loop``, 1..K."""
        return state

    def leave(self, state: Float[Tensor, "B T S"]) -> Float[Tensor, "B T C"]:
        """From the last iterate to the first layer above the loop."""
        return state

    def run(
        self,
        context: Context,
        *,
        loops: Sequence[int],
        initial_state: InitialState,
        observe: Observe,
        stops: Stops,
    ) -> Float[Tensor, "B T V"]:
        """Logits after ``loops[0]`` loops, or fewer where ``stops`` says so."""
        x = self.place(self.embed(context.ids), context.first)
        for layer in self.prelude:
            x = layer(x, context)
        entry = self.enter(x)
        state = initial_state(0, entry)
        observe(0, entry, state)

        def turn(state: Tensor, loop: int, at: Context) -> Tensor:
            return self.core(self.inject(entry, state, loop), at)

        state = self.iterate(0, state, loops=loops[0], turn=turn, context=context, stops=stops)
        return self.head.logits(self.above(state, context))

    def above(self, state: Float[Tensor, "B T S"], context: Context) -> Float[Tensor, "B T C"]:
        """Through ``leave``, the coda and ``finish``."""
        x = self.leave(state)
        for layer in self.coda:
            x = layer(x, context)
        return self.finish(x)

    def finish(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """From the last layer to what the head reads."""
        return self.norm(x)

    def glance(self, state: Float[Tensor, "B T S"]) -> Float[Tensor, "B T C"]:
        """The logit lens: what the head would read if nothing came after this iterate."""
        return self.norm(state)


def layer_keys(theirs: str, ours: str, count: int, names: dict[str, str]) -> dict[str, str]:
    """Key map of ``count`` equal layers: ``theirs.N.a`` -> ``ours.N.b`` for every pair a -> b in ``names``."""
    return {f"{theirs}.{i}.{a}": f"{ours}.{i}.{b}" for i in range(count) for a, b in names.items()}
