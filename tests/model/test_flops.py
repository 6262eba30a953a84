"""Floating-point operations: counted by hand from the weights, and the same sum whatever the family."""

from typing import Any

import pytest
import torch

from model.card import Flops
from model.checkpoint import card, identify, untrained
from model.flops import flops
from model.locate import locate
from tests.model.zoo import NATIVE, Reference, named

LIBRARY = (Reference("albert-tiny", "albert"), Reference("dory-tiny", "dory"))


def weights(modules: Any) -> int:
    linear = [part for module in modules for part in module.modules() if isinstance(part, torch.nn.Linear)]
    return sum(2 * part.weight.numel() for part in linear)


def test_the_demo_by_hand() -> None:
    found = flops(untrained(identify(locate("demo")), "demo"))
    width, vocabulary = 128, 2048
    layer, adapter, head = 2 * 12 * width**2, 2 * 2 * width**2, 2 * vocabulary * width
    loops = tuple(layers * layer + adapter for layers in (1, 2, 1))
    assert found == Flops(outside=2 * layer + head, per_loop=loops, logit_lens=head, coda_lens=layer + head, gate=0)


@pytest.mark.parametrize("reference", [*NATIVE, *LIBRARY], ids=named)
def test_every_family_is_counted(reference: Reference) -> None:
    network: Any = untrained(identify(locate(reference.path)), reference.folder)
    found = flops(network)
    assert found is not None
    assert len(found.per_loop) == len(network.blocks)
    assert found.logit_lens <= found.coda_lens <= found.outside  # the output is the coda and the head
    if reference.family not in ("albert", "dory"):
        for body, cost in zip(network.bodies, found.per_loop, strict=True):
            assert weights([body]) <= cost  # an adapter is outside the body and belongs to the loop
    assert (found.gate > 0) == (reference.family == "ouro")


def test_the_card_tells_it() -> None:
    found = card("demo").flops
    assert found is not None
    assert len(found.per_loop) == 3


def test_a_network_that_cannot_run_on_shapes_is_left_blank() -> None:
    network: Any = untrained(identify(locate("demo")), "demo")

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no values here")

    network.forward = broken
    assert flops(network) is None
