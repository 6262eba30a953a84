"""Capture against the bare forward pass, interleaved in one process, medians; memory against the bytes captured.

Run with `make bench`. The figures are printed; the asserted bounds are loose, because machines are shared.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from model.architectures.latent_ttc import LatentTTC
from model.capture.buffer import BlockBuffer
from model.capture.hooks import hooked
from model.capture.readout import decode, readouts

ROUNDS = 15


def network(width: int, layers_per_block: int, context: int) -> Any:
    torch.manual_seed(0)
    config = {
        "n_layer": layers_per_block + 2,
        "n_head": 8,
        "n_embd": width,
        "block_size": context,
        "vocab_size": 512,
        "loop_groups": [list(range(1, layers_per_block + 1))],
        "concatenate_initial_representation": True,
        "loop_noise_scale": 1.0,
    }
    return LatentTTC().build({"model_args": config}).eval().requires_grad_(False)


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def say(text: str) -> None:
    sys.stdout.write(f"\n{text}")


@pytest.mark.parametrize(("width", "layers", "tokens"), [(128, 1, 128), (512, 4, 128), (512, 4, 256)])
def test_capture_overhead(width: int, layers: int, tokens: int) -> None:
    """Medians of the ratio within each interleaved round: copies alone, and copies with the four statistics."""
    loops = 16
    net = network(width, layers, tokens)
    ids = torch.randint(512, (1, tokens))
    noise = torch.randn(1, tokens, width)

    def bare() -> None:
        net(ids, loops=(loops,), initial_state=lambda block, entry: noise)

    def copies() -> None:
        kept = torch.empty(loops + 1, tokens, width)
        views = list(kept)
        with hooked(net.bodies, lambda block, call, output: views[call].copy_(output[0])):
            bare()

    def captured() -> None:
        buffer = BlockBuffer(
            name="", layers=(), loops=loops, tokens=tokens, width=width,
            device=torch.device("cpu"), keep=range(loops + 1), keep_working=True,
        )  # fmt: skip
        with hooked(net.bodies, lambda block, call, output: buffer.add(call, output[0], before=None)):
            net(
                ids, loops=(loops,), initial_state=lambda block, entry: noise,
                observe=lambda block, entry, state: buffer.start(entry[0], state[0]),
            )  # fmt: skip

    with torch.inference_mode():
        for work in (bare, copies, captured):
            work()
        rounds = [(timed(bare), timed(copies), timed(captured)) for _ in range(ROUNDS)]
    base = statistics.median(b for b, _, _ in rounds)
    copy_ratio = statistics.median(c / b for b, c, _ in rounds)
    full_ratio = statistics.median(f / b for b, _, f in rounds)
    say(
        f"width {width}, {layers} layers, {tokens} tokens, {loops} loops: bare {1e3 * base:.1f} ms, "
        f"copies x{copy_ratio:.3f}, copies and statistics x{full_ratio:.3f}"
    )
    assert copy_ratio < 1.2
    assert full_ratio < 1.6


def test_peak_memory_over_captured_bytes() -> None:
    """Bytes that torch allocates for the capture itself at its peak, over the bytes of the states captured."""
    loops, tokens, width = 32, 256, 512
    state = torch.randn(tokens, width)
    captured = (loops + 1) * tokens * width * 4
    held = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with torch.inference_mode(), held as profile:
        buffer = BlockBuffer(
            name="", layers=(), loops=loops, tokens=tokens, width=width,
            device=torch.device("cpu"), keep=range(loops + 1), keep_working=True,
        )  # fmt: skip
        buffer.start(state, state)
        for loop in range(1, loops + 1):
            buffer.add(loop, state, before=None)
        tracemalloc.start()
        trace = buffer.trace({})
        python_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    running, peak = 0, 0
    for event in profile.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
        if event.name() == "[memory]":
            running += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue] - typed in part only
            peak = max(peak, running)
    ratio = (peak + python_peak) / captured
    say(f"{loops} loops, {tokens} tokens, width {width}: peak over captured bytes x{ratio:.3f}")
    assert trace.states.nbytes == captured
    assert ratio < 1.5


@pytest.mark.parametrize("vocabulary", [2_048, 32_768])
def test_kl_in_chunks_against_loop_by_loop(vocabulary: int) -> None:
    """All loops at once in vocabulary chunks against a softmax per loop, which is what a rule checked live does."""
    loops, tokens, width = 16, 32, 128
    torch.manual_seed(0)
    features = torch.randn(loops, tokens, width)
    head = torch.randn(vocabulary, width)
    targets = torch.zeros(tokens, dtype=torch.long)
    kinds = [readouts()["kl_previous"]]

    def plain() -> None:
        before: torch.Tensor | None = None
        for row in features:
            log_p = (row @ head.T).log_softmax(-1)
            if before is not None:
                (before.exp() * (before - log_p)).sum(-1)
            before = log_p

    with torch.inference_mode():
        decode(features, head, targets, quantities=kinds)
        plain()
        ratios = [timed(lambda: decode(features, head, targets, quantities=kinds)) / timed(plain) for _ in range(ROUNDS)]
    say(
        f"KL of {loops} loops, {tokens} tokens, vocabulary {vocabulary}: "
        f"accurate form costs x{statistics.median(ratios):.2f} of plain float32"
    )
    assert statistics.median(ratios) < 40
