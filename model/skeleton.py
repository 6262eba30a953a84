"""Prelude, core, coda: the network that families with one looped block share; each fills in what is its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import BlockSpec, Context, InitialState, Lens, LoopBody, LoopedNetwork, Observe, ignore
from model.capture.head import Head
from model.layers import Rotary


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

    Families override ``embed``, ``enter``, ``inject``, ``leave`` and ``rotary``, and ``features`` where the
    final norm plays another part.
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

    def rotary(self, tokens: int) -> Rotary | None:
        """Rotation of the first ``tokens`` positions; None for families without."""
        return None

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """What the first layer reads."""
        return self.tokens(ids)

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
        x = self.embed(ids)
        for layer in self.prelude:
            x = layer(x, context)
        entry = self.enter(x)
        state = initial_state(0, entry)
        observe(0, entry, state)
        first_with_gradient = 1 if self.gradient_loops is None else loops[0] - self.gradient_loops + 1
        for loop in range(1, loops[0] + 1):
            with torch.set_grad_enabled(torch.is_grad_enabled() and loop >= first_with_gradient):
                state = self.core(self.inject(entry, state, loop), context)
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


def layer_keys(theirs: str, ours: str, count: int, names: dict[str, str]) -> dict[str, str]:
    """Key map of ``count`` equal layers: ``theirs.N.a`` -> ``ours.N.b`` for every pair a -> b in ``names``."""
    return {f"{theirs}.{i}.{a}": f"{ours}.{i}.{b}" for i in range(count) for a, b in names.items()}
