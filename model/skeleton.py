"""Prelude, core, coda: the network that families with one looped block share; each fills in what is its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import (
    BlockSpec,
    Context,
    InitialState,
    Lens,
    LoopBody,
    LoopedNetwork,
    Observe,
    Stops,
    ignore,
    never,
)
from model.capture.head import Head
from model.keyvalues import KeyValues


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


class PreludeCoreCoda(LoopedNetwork):
    """tokens -> prelude -> (inject, core) x K -> coda -> norm -> head.

    Families override ``embed``, ``place``, ``enter``, ``inject``, ``leave`` and ``rotary``, and ``glance`` or
    ``finish`` where the final norm plays another part.
    """

    steppable = True

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

    def forward(
        self, ids: Int[Tensor, "B T"], *, loops: Sequence[int], initial_state: InitialState, observe: Observe = ignore
    ) -> Float[Tensor, "B T V"]:
        """Logits after ``loops[0]`` loops."""
        context = Context(ids, self.rotary(ids.shape[1]))
        return self._run(context, loops=loops[0], initial_state=initial_state, observe=observe, stops=never)

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
        """Logits of tokens that follow those in the memory."""
        context = Context(ids, memory.rotation(ids.shape[1]), memory)
        return self._run(context, loops=loops[0], initial_state=initial_state, observe=observe, stops=stops)

    def _run(
        self, context: Context, *, loops: int, initial_state: InitialState, observe: Observe, stops: Stops
    ) -> Float[Tensor, "B T V"]:
        x = self.place(self.embed(context.ids), context.first)
        for layer in self.prelude:
            x = layer(x, context)
        entry = self.enter(x)
        state = initial_state(0, entry)
        observe(0, entry, state)

        def turn(state: Tensor, loop: int, at: Context) -> Tensor:
            return self.core(self.inject(entry, state, loop), at)

        state = self.iterate(0, state, loops=loops, turn=turn, context=context, stops=stops)
        return self.head.logits(self._above(state, context))

    def _above(self, state: Float[Tensor, "B T S"], context: Context) -> Float[Tensor, "B T C"]:
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

    def features(self, state: Float[Tensor, "B T S"], *, ids: Int[Tensor, " T"], lens: Lens) -> Float[Tensor, "B T C"]:
        """What the head reads of an iterate, through ``glance`` or through the layers above the loop."""
        if lens == "logit":
            return self.glance(state)
        return self._above(state, Context(ids[None], self.rotary(ids.shape[0])))

    def features_after(
        self, state: Float[Tensor, "B T S"], *, ids: Int[Tensor, " T"], lens: Lens, memory: KeyValues
    ) -> Float[Tensor, "B T C"]:
        """Like ``features``, for tokens that follow those in the memory."""
        if lens == "logit":
            return self.glance(state)
        return self._above(state, Context(ids[None], memory.rotation(ids.shape[0]), memory))


def layer_keys(theirs: str, ours: str, count: int, names: dict[str, str]) -> dict[str, str]:
    """Key map of ``count`` equal layers: ``theirs.N.a`` -> ``ours.N.b`` for every pair a -> b in ``names``."""
    return {f"{theirs}.{i}.{a}": f"{ours}.{i}.{b}" for i in range(count) for a, b in names.items()}
