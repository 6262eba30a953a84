"""What the networks written here share: loops that hooks can count, and one path for whole sequences and token by token."""

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.architecture import Context, InitialState, Lens, LoopedNetwork, Observe, Stops, ignore, never
from model.keyvalues import KeyValues, bytes_per_token
from model.layers import CausalAttention, Rotary


class LoopBody(nn.Module):
    """The layers of one looped block; one call is one loop, so hooks on it see every iterate.

    Its input is the state after injection, its output the next iterate: ``norm``, where a family has one
    inside the loop, is the last thing it does.
    """

    def __init__(self, layers: Sequence[nn.Module], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x: Float[Tensor, "B T C"], context: Context) -> Float[Tensor, "B T C"]:
        """One loop: the state after injection in, the next iterate out."""
        for layer in self.layers:
            x = layer(x, context)
        return x if self.norm is None else self.norm(x)


class NativeNetwork(LoopedNetwork):
    """A network whose attention layers can remember. Networks say how a pass runs, in ``run``, ``glance`` and ``above``."""

    steppable = True

    def run(
        self,
        context: Context,
        *,
        loops: Sequence[int],
        initial_state: InitialState,
        observe: Observe,
        stops: Stops,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the context's tokens; block g is left where ``stops`` says so, after ``loops[g]`` loops at the latest."""
        raise TypeError(f"{type(self).__name__} has no pass")

    def glance(self, state: Float[Tensor, "B T S"]) -> Float[Tensor, "B T C"]:
        """The logit lens: what the head would read if nothing came after this iterate."""
        raise TypeError(f"{type(self).__name__} has no logit lens")

    def above(self, state: Float[Tensor, "B T S"], context: Context) -> Float[Tensor, "B T C"]:
        """The coda lens: what the head reads of an iterate of the last block, through the layers that follow."""
        raise TypeError(f"{type(self).__name__} has no coda lens")

    def forward(
        self, ids: Int[Tensor, "B T"], *, loops: Sequence[int], initial_state: InitialState, observe: Observe = ignore
    ) -> Float[Tensor, "B T V"]:
        """Logits after ``loops[g]`` loops of block g."""
        context = Context(ids, self.rotary(ids.shape[1]))
        return self.run(context, loops=loops, initial_state=initial_state, observe=observe, stops=never)

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
        return self.run(context, loops=loops, initial_state=initial_state, observe=observe, stops=stops)

    def features(self, state: Float[Tensor, "B T S"], *, ids: Int[Tensor, " T"], lens: Lens) -> Float[Tensor, "B T C"]:
        """What the head reads of an iterate, at once or through the layers above the loop."""
        if lens == "logit":
            return self.glance(state)
        return self.above(state, Context(ids[None], self.rotary(ids.shape[0])))

    def features_after(
        self, state: Float[Tensor, "B T S"], *, ids: Int[Tensor, " T"], lens: Lens, memory: KeyValues
    ) -> Float[Tensor, "B T C"]:
        """Like ``features``, for tokens that follow those in the memory."""
        if lens == "logit":
            return self.glance(state)
        return self.above(state, Context(ids[None], memory.rotation(ids.shape[0]), memory))

    def iterate(
        self,
        block: int,
        state: Float[Tensor, "B T S"],
        *,
        loops: int,
        turn: Callable[[Tensor, int, Context], Tensor],
        context: Context,
        stops: Stops,
    ) -> Float[Tensor, "B T S"]:
        """The last iterate of a block; ``turn`` makes iterate k of iterate k - 1. Gradients reach the last loops alone."""
        first_with_gradient = 1 if self.gradient_loops is None else loops - self.gradient_loops + 1
        loop = 0
        for loop in range(1, loops + 1):
            with torch.set_grad_enabled(torch.is_grad_enabled() and loop >= first_with_gradient):
                state = turn(state, loop, context.at(loop))
            if stops(block, loop, state):
                break
        if context.memory is not None:
            context.memory.leave(block, loop, tokens=state.shape[1])
        return state

    def rotary(self, tokens: int) -> Rotary | None:
        """Rotation of the first ``tokens`` positions; None for families without."""
        return None

    def remember(self, tokens: int, *, loops: Sequence[int]) -> KeyValues:
        """An empty memory for ``tokens`` tokens, with room for ``loops[g]`` loops of block g."""
        plain, looped = self._attentions()
        return KeyValues(plain, looped, loops=loops, tokens=tokens, rotary=self.rotary(tokens))

    def memory_bytes(self, tokens: int, *, loops: Sequence[int]) -> int:
        """Bytes that such a memory takes."""
        plain, looped = self._attentions()
        inside = sum(count * bytes_per_token(layer) for layers, count in zip(looped, loops, strict=True) for layer in layers)
        return tokens * (inside + sum(bytes_per_token(layer) for layer in plain))

    def _attentions(self) -> tuple[list[CausalAttention], list[list[CausalAttention]]]:
        """Attention layers outside of all blocks, and those of each block."""
        looped = [_attentions_in(body) for body in self.bodies]
        inside = {layer for layers in looped for layer in layers}
        return [layer for layer in _attentions_in(self) if layer not in inside], looped


def _attentions_in(module: nn.Module) -> list[CausalAttention]:
    found: Iterable[nn.Module] = module.modules()  # pyright: ignore[reportUnknownVariableType]
    return [layer for layer in found if isinstance(layer, CausalAttention)]
