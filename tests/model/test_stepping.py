"""A network that runs token by token gives what one pass over all tokens gives, and early exits leave what the policy says."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from model.architecture import InitialState, LoopedNetwork, Stops, never
from model.checkpoint import load
from model.keyvalues import KeyValues
from model.layers import attend
from model.locate import locate
from model.native_network import NativeNetwork
from tests.model.variants import FAMILIES, VARIANTS
from tests.model.zoo import NATIVE, Reference, named

LOOPS = (5, 3, 4)
each = pytest.mark.parametrize("reference", NATIVE, ids=named)


@cache
def opened(folder: str) -> tuple[NativeNetwork, tuple[int, ...]]:
    network = load(locate(folder), dtype="float32", device="cpu").network
    assert isinstance(network, NativeNetwork)
    return network, LOOPS[: len(network.blocks)]


def noise_from(network: LoopedNetwork, first: Callable[[], int]) -> InitialState:
    """Noise of a block and position, whatever pass asks for it; ``first`` is the position of the pass's first token."""
    made = torch.randn(4, 64, network.state_width, generator=torch.Generator().manual_seed(3))
    return lambda block, entry: made[block, first() : first() + entry.shape[1]][None]


def stepped(
    network: LoopedNetwork,
    ids: Tensor,
    loops: Sequence[int],
    parts: Sequence[int],
    *,
    memory: KeyValues | None = None,
    exits: Callable[[int, int], int] | None = None,
) -> Tensor:
    """Logits of all tokens, run in parts; ``exits(block, position)`` is the loop after which a token leaves a block."""
    memory = memory or network.remember(len(ids), loops=loops)
    start = noise_from(network, lambda: memory.length)
    stops: Stops = never
    if exits is not None:
        stops = lambda block, loop, state: loop == exits(block, memory.length)  # noqa: E731 - a closure over the memory
    found: list[Tensor] = []
    with torch.inference_mode():
        split: tuple[Tensor, ...] = torch.split(ids, list(parts))
        for part in split:
            found.append(network.extend(part[None], loops=loops, initial_state=start, memory=memory, stops=stops)[0])
            memory.advance(len(part))
    return torch.cat(found)


def at_once(network: LoopedNetwork, ids: Tensor, loops: Sequence[int]) -> Tensor:
    with torch.inference_mode():
        return network(ids[None], loops=loops, initial_state=noise_from(network, lambda: 0))[0]


@each
def test_tokens_one_by_one_or_in_parts_give_the_logits_of_one_pass(reference: Reference) -> None:
    network, loops = opened(reference.path)
    ids = torch.from_numpy(reference.golden["input_ids"])
    whole = at_once(network, ids, loops)
    for parts in ([1] * len(ids), [len(ids)], [3, 1, len(ids) - 6, 2]):
        torch.testing.assert_close(stepped(network, ids, loops, parts), whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting_runs_token_by_token(variant: str) -> None:
    family, config = VARIANTS[variant]
    torch.manual_seed(0)
    network = FAMILIES[family].build(config).eval()
    for value in network.state_dict().values():
        value.copy_(torch.randn_like(value) * value.shape[-1] ** -0.5)
    loops = LOOPS[: len(network.blocks)]
    ids = torch.tensor([3, 1, 4, 1, 5, 259, 2])
    for asked in (loops, (1,) * len(loops)):
        torch.testing.assert_close(stepped(network, ids, asked, [1] * 7), at_once(network, ids, asked), atol=1e-4, rtol=0)


@pytest.mark.parametrize("new", [1, 2, 5])
@pytest.mark.parametrize("shared", [1, 3])
def test_attention_of_the_last_positions_is_a_part_of_the_whole(new: int, shared: int) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 5, heads, 4) for heads in (2 * shared, 2, 2))
    torch.testing.assert_close(attend(q[:, -new:], k, v), attend(q, k, v)[:, -new:])


class Listed(KeyValues):
    """The policy without any layout: lists of entries per layer and loop, searched for the deepest one that is there."""

    def __init__(self, network: NativeNetwork, tokens: int) -> None:
        self.capacity, self.length, self.rotary = tokens, 0, network.rotary(tokens)
        self.entries: dict[tuple[nn.Module, int, int], tuple[Tensor, Tensor]] = {}

    def extend(self, layer: nn.Module, keys: Tensor, values: Tensor, *, loop: int) -> tuple[Tensor, Tensor]:
        assert keys.shape[:2] == (1, 1)
        self.entries[layer, loop, self.length] = keys[0, 0].clone(), values[0, 0].clone()
        found = [
            next(self.entries[layer, k, position] for k in range(loop, 0, -1) if (layer, k, position) in self.entries)
            for position in range(self.length + 1)
        ]
        seen_keys, seen_values = zip(*found, strict=True)
        return torch.stack(seen_keys)[None], torch.stack(seen_values)[None]

    def leave(self, block: int, loop: int, *, tokens: int) -> None:
        pass


def early(block: int, position: int) -> int:
    """Exits of every depth, differing from block to block and from token to token."""
    return 1 + (7 * position + 3 * block + position * position) % 5


@each
def test_a_deeper_entry_that_a_token_did_not_leave_is_its_deepest_one(reference: Reference) -> None:
    network, loops = opened(reference.path)
    ids = torch.from_numpy(reference.golden["input_ids"])
    ones = [1] * len(ids)
    slow = stepped(network, ids, loops, ones, memory=Listed(network, len(ids)), exits=early)
    fast = stepped(network, ids, loops, ones, exits=early)
    torch.testing.assert_close(fast, slow, atol=1e-5, rtol=0)
    assert (fast - stepped(network, ids, loops, ones)).abs().max() > 1e-3, "the exits changed nothing"


@each
def test_a_coda_asked_in_between_or_about_several_iterates_leaves_no_trace(reference: Reference) -> None:
    network, loops = opened(reference.path)
    ids = torch.from_numpy(reference.golden["input_ids"])
    memory = network.remember(len(ids), loops=loops)
    start = noise_from(network, lambda: memory.length)
    last = len(loops) - 1
    asked: list[Tensor] = []
    iterates: list[Tensor] = []

    def asks(block: int, loop: int, state: Tensor) -> bool:
        if block == last:
            here = ids[memory.length : memory.length + 1]
            asked.append(network.head.logits(network.features_after(state, ids=here, lens="coda", memory=memory))[0, 0])
            iterates.append(state[0])
        return False

    found: list[Tensor] = []
    with torch.inference_mode():
        for position in range(len(ids)):
            asked.clear()
            iterates.clear()
            here = ids[position : position + 1]
            found.append(network.extend(here[None], loops=loops, initial_state=start, memory=memory, stops=asks)[0])
            several = network.features_after(torch.stack(iterates), ids=here, lens="coda", memory=memory)
            torch.testing.assert_close(network.head.logits(several)[:, 0], torch.stack(asked), atol=1e-4, rtol=0)
            torch.testing.assert_close(asked[-1], found[-1][0], atol=1e-4, rtol=0)
            memory.advance(1)
    torch.testing.assert_close(torch.cat(found), at_once(network, ids, loops), atol=1e-4, rtol=0)


def test_a_memory_that_is_full_says_so() -> None:
    network, loops = opened(NATIVE[0].path)
    with pytest.raises(ValueError, match="9 tokens do not fit into the 8"):
        stepped(network, torch.arange(9), loops, [8, 1], memory=network.remember(8, loops=loops))


def test_a_memory_holds_one_row_per_loop_inside_a_block_and_one_outside() -> None:
    network, _ = opened(NATIVE[0].path)
    internals: Any = network
    heads = internals.stages[0].attention.heads
    layers = sum(len(block.layers) for block in network.blocks)
    outside = sum(not hasattr(stage, "layers") for stage in cast("nn.ModuleList", internals.stages))
    one = 2 * 4 * 6 * heads.key * heads.head_width
    loops = [4] * len(network.blocks)
    assert network.remember(6, loops=loops).nbytes == one * (4 * layers + outside)
    assert network.memory_bytes(6, loops=loops) == one * (4 * layers + outside)
