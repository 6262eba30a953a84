"""The hooks: one entry per call, copies, other people's calls left alone, always removed."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (hooks and lambdas for torch, which has no types for them)

import threading
from itertools import pairwise
from typing import Any

import pytest
import torch

from model.capture.errors import CaptureError
from model.capture.hooks import first_tensor, hooked, recorded, spanned, tensors_in
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


def test_a_span_begins_with_one_module_and_ends_with_another() -> None:
    first, last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    whole = torch.nn.Sequential(first, torch.nn.Tanh(), last)
    events: list[tuple[str, torch.Tensor]] = []
    x = torch.randn(2, 4)
    with spanned(
        [(first, last)],
        lambda number, tensors: events.append(("in", tensors[0].clone())),
        lambda number, call, output: events.append((f"out {call}", output.clone())),
        whole=whole,
    ) as wholes:
        y = whole(x)
        z = whole(y)
    assert wholes == [2]
    assert [name for name, _ in events] == ["in", "out 1", "in", "out 2"]
    assert all(torch.equal(found, wanted) for (_, found), wanted in zip(events, (x, y, y, z), strict=True))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in whole.modules())


def test_threads_started_inside_a_span_are_not_its_own() -> None:
    block, calls = torch.nn.Linear(4, 4), []
    with spanned([(block, block)], lambda number, tensors: None, lambda *call: calls.append(call[:2]), whole=block):
        thread = threading.Thread(target=lambda: block(torch.randn(2, 4)))
        thread.start()
        thread.join()
        block(torch.randn(2, 4))
    assert calls == [(0, 1)]


def test_the_tensors_that_a_call_is_handed_come_in_order() -> None:
    a, b, c = torch.zeros(1), torch.ones(1), torch.ones(2)
    assert [id(t) for t in tensors_in((a, None, 3), {"mask": None, "x": b, "y": c})] == [id(a), id(b), id(c)]
