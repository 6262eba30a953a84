"""The hooks: one entry per call, copies, other people's calls left alone, always removed."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (hooks and lambdas for torch, which has no types for them)

import threading
from itertools import pairwise
from typing import Any

import pytest
import torch

from model.capture.errors import CaptureError
from model.capture.hooks import first_tensor, hooked, recorded
from tests.model.toy_networks import Looped


def test_a_block_called_five_times_gives_five_different_entries_equal_to_an_unroll() -> None:
    network, x = Looped(), torch.randn(2, 4)
    with recorded(network.block) as outputs:
        network(x, 5)
    assert len(outputs) == 5
    state = x
    for output in outputs:
        state = network.block(state)
        assert (output - state).abs().max() == 0
    assert all(not torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[:i])


@pytest.mark.parametrize("style", ["tensor", "tuple", "list", "mapping", "keyword"])
def test_the_wrapping_of_outputs_and_inputs_does_not_matter(style: str) -> None:
    torch.manual_seed(0)
    plain = Looped()
    other = Looped(style=style)
    other.load_state_dict(plain.state_dict())
    x = torch.randn(3, 4)
    with recorded(plain.block) as wanted:
        plain(x, 3)
    with recorded(other.block) as found:
        other(x, 3)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


def test_a_later_in_place_operation_does_not_change_what_was_captured() -> None:
    network, x = Looped(style="inplace"), torch.randn(2, 4)
    with torch.no_grad(), recorded(network.block) as outputs:
        network(x.clone(), 4)
    assert len(outputs) == 4
    assert all(not torch.equal(a, b) for a, b in pairwise(outputs))


def test_hooks_go_even_when_the_model_fails() -> None:
    network = Looped()
    with pytest.raises(RuntimeError), recorded(network.block):
        network(torch.randn(2, 99), 1)
    assert not network.block._forward_hooks


def test_a_tensor_free_output_is_refused() -> None:
    for output in ((), (None, 1), {}, "x"):
        with pytest.raises(CaptureError, match="no tensor"):
            first_tensor(output)


def test_two_threads_on_one_module_keep_their_own_calls() -> None:
    network = Looped()
    barrier = threading.Barrier(2)
    found: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        barrier.wait()
        for _ in range(10):
            calls: list[tuple[int, int]] = []
            with hooked([network.block], lambda module, call, output, calls=calls: calls.append((module, call))) as counts:
                network(torch.randn(2, 4), 7)
            found.setdefault(number, []).append((counts[0], calls))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(count == 7 and calls == [(0, i) for i in range(1, 8)] for runs in found.values() for count, calls in runs)
    assert sum(len(runs) for runs in found.values()) == 20
