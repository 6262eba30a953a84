"""What a token costs in each part of a network, counted on its shapes: no weight is loaded and nothing is computed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from model.architecture import LoopedNetwork
from model.card import Flops

_TOKENS = 2  # with a single one attention may pass for a product with a weight
_BASE = 2  # one loop alone is a plain pass in some families
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
_VALUE = torch.ops.aten._local_scalar_dense.default  # what tensor.item() and `if tensor:` come to


class _Counter(TorchDispatchMode):
    """Sums 2 m n k over products of two matrices; attention scores are products of batches and are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a product, then let it run; a library that asks for a value is told 1, as shapes have none."""
        if func is _VALUE:
            return 1
        if func in _PRODUCTS:
            left, right = args[-2:]
            self.total += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return func(*args, **(kwargs or {}))


def flops(network: LoopedNetwork) -> Flops | None:
    """Floating-point operations per token, 2 for every weight of every matrix that the token passes.

    Measured by a pass over shapes, of a network on the meta device. Attention scores, norms and other vector operations
    are left out. None for a network that cannot run on shapes alone.
    """
    try:
        return _counted(network)
    except Exception:  # a library's network may do anything with values that are not there; the card has the rest to tell
        return None


def _counted(network: LoopedNetwork) -> Flops:
    blocks = len(network.blocks)
    base = _per_token(lambda: _pass(network, [_BASE] * blocks))
    per_loop = tuple(
        _per_token(lambda g=g: _pass(network, [_BASE + (other == g) for other in range(blocks)])) - base for g in range(blocks)
    )
    last = network.bodies[-1]  # a library's network comes to its coda by a whole pass, which a live exit would not repeat
    return Flops(
        outside=base - _BASE * sum(per_loop),
        per_loop=per_loop,
        logit_lens=_per_token(lambda: _read(network, "logit")) if network.readable else 0,
        coda_lens=_per_token(lambda: _read(network, "coda"), after=last) if network.readable else 0,
        gate=_per_token(lambda: network.gate(_state(network))),
    )


def _per_token(work: Callable[[], Any], *, after: nn.Module | None = None) -> int:
    """What the work costs; where it calls the module ``after``, what comes after that."""
    with torch.no_grad(), _Counter() as counter:

        def forget(*ignored: Any) -> None:
            counter.total = 0

        handle = None if after is None else after.register_forward_hook(forget)
        try:
            work()
        finally:
            if handle is not None:
                handle.remove()
    return counter.total // _TOKENS


def _pass(network: LoopedNetwork, loops: list[int]) -> Tensor:
    def start(block: int, entry: Tensor) -> Tensor:
        return entry.new_zeros(1, _TOKENS, network.state_width)

    return network(torch.zeros(1, _TOKENS, dtype=torch.int64, device="meta"), loops=loops, initial_state=start)


def _read(network: LoopedNetwork, lens: Any) -> Tensor:
    ids = torch.zeros(_TOKENS, dtype=torch.int64, device="meta")
    return network.head.logits(network.features(_state(network), ids=ids, lens=lens))


def _state(network: LoopedNetwork) -> Tensor:
    return torch.zeros(1, _TOKENS, network.state_width, device="meta")
