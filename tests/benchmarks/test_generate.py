"""Live decoding: what an exit rule costs beside a core loop, and a preallocated cache beside one that grows.

Run with `make bench`. Medians of interleaved rounds in one process; the figures are printed, and the asserted bounds
leave room for a shared machine.
"""

import statistics
from typing import Any

import pytest
import torch

from analysis.exit_rule import exit_rules
from analysis.live import live_exit
from model.architecture import Context
from model.keyvalues import KeyValues
from model.layers import CausalAttention, Heads
from model.live_readout import LiveReader
from model.running import Moment, Running
from tests.benchmarks.test_capture import network, say, timed

WIDTH, LAYERS, LOOPS, ROUNDS = 512, 4, 16, 25


@pytest.mark.parametrize(("name", "most"), [("acceleration", 0.02), ("step_norm", 0.02), ("kl", None)])
def test_a_rule_beside_a_core_loop(name: str, most: float | None) -> None:
    """Everything that asking costs: the statistics of the token, the rule's scores, the decision; for KL its readout too."""
    net = network(WIDTH, LAYERS, 64)
    kind: Any = exit_rules()[name]
    rule = kind(threshold=1e-30)
    with torch.inference_mode():
        memory = net.remember(64, loops=(LOOPS,))
        reader = LiveReader(net, memory, ("logit",) if name == "kl" else ())
        reader.begin([1])
        arrays = reader.offered(0, LOOPS)
        block = Running(
            0, "core", (1, 2, 3, 4), loops=LOOPS, tokens=1, width=WIDTH, readouts=arrays,
            read=lambda key: reader.fill(0, key, arrays[key]),
        )  # fmt: skip
        states = [torch.randn(1, 1, WIDTH) for _ in range(LOOPS + 1)]
        leaves = live_exit(rule).leaves
        ids = torch.ones(1, 1, dtype=torch.int64)

        def loop_of_the_core() -> None:
            for loop in range(1, LOOPS + 1):
                net.bodies[0](states[loop], Context(ids, memory=memory, loop=loop))

        def ask() -> None:
            reader.begin([1])
            block.start(states[0][0].numpy(), states[0][0].numpy())
            for loop in range(1, LOOPS + 1):
                reader.iterates[0].append(states[loop])
                block.add(states[loop][0].numpy(), handed=None)
                assert not leaves(Moment(0, loop, block, ()))

        ask()
        loop_of_the_core()
        rounds = [(timed(loop_of_the_core), timed(ask)) for _ in range(ROUNDS)]
    core = statistics.median(a for a, _ in rounds) / LOOPS
    share = statistics.median(b / a for a, b in rounds)
    say(f"{name}: {1e6 * share * core:.0f} us a loop, {share:.2%} of a core loop of {1e3 * core:.2f} ms")
    if most is not None:
        assert share < 2 * most, f"asking {name} costs {share:.2%} of a core loop, {most:.0%} were wanted"


@pytest.mark.parametrize("tokens", [512, 2048])
def test_a_preallocated_cache_beside_concatenation(tokens: int) -> None:
    """One layer of attention writes all tokens one by one; per token, over the whole text."""
    heads = Heads.of(256, 8)
    layer = CausalAttention(heads, bias=False)
    new = torch.randn(tokens, 1, 1, 8, heads.head_width)

    def grown() -> None:
        keys = values = new[0][:, :0]
        for token in new:
            keys, values = torch.cat([keys, token], dim=1), torch.cat([values, token], dim=1)

    def preallocated() -> None:
        memory = KeyValues([layer], [], loops=(), tokens=tokens, rotary=None)
        for token in new:
            memory.extend(layer, token, token, loop=1)
            memory.advance(1)

    with torch.inference_mode():
        rounds = [(timed(grown), timed(preallocated)) for _ in range(5)]
    ratio = statistics.median(a / b for a, b in rounds)
    say(f"{tokens} tokens: concatenation costs x{ratio:.1f} of a preallocated cache")
    assert ratio > 1.5
