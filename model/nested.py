"""Find the weights in what a trainer saved: the one dict of tensors, however deep and under whatever names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from model.files import CheckpointError, shown

_NESTS = ("model", "state_dict", "module", "model_state_dict")
"""Names that win over others beside them."""
_NO_WEIGHTS = ("optim", "sched", "scaler", "rng_", "random_state")
_DEPTH = 6
_SHOWN = 4


@dataclass(frozen=True)
class Nested:
    """A flat dict of tensors, the keys that lead to it, and the dicts on the way, outermost first."""

    state: dict[str, Tensor]
    path: tuple[str, ...]
    way: tuple[Mapping[Any, Any], ...]


def find_weights(content: Mapping[Any, Any], name: str) -> Nested:
    """The weights in the content of the file ``name``.

    At every level the usual names (model, state_dict, ...) win. What an optimizer or a scheduler keeps is no weight.
    Raises CheckpointError, listing what is there, for no dict of tensors and for several of which none has such a name.
    """
    found = _candidates(content, (), (), set())
    named = [candidate for candidate in found if candidate.path and candidate.path[-1] in _NESTS]
    if len(found) > 1 and len(named) != 1:
        listed = [f"{shown('.'.join(one.path) or 'the top', length=40)} ({len(one.state)})" for one in found[:_SHOWN]]
        raise CheckpointError(
            f"{name} holds {len(found)} dicts of tensors ({', '.join(listed)}{' and more' if len(found) > _SHOWN else ''}) "
            "and none of them is called 'model'; save the one that is meant under that name."
        )
    if not found:
        keys = [f"{shown(key, length=30)} ({type(value).__name__})" for key, value in list(content.items())[:_SHOWN]]
        listed = f"; its keys are {', '.join(keys)}{' and more' if len(content) > _SHOWN else ''}" if keys else ""
        raise CheckpointError(f"{name} holds no tensors under 'model' or elsewhere{listed}. Save a dict of tensors.")
    return (named if len(found) > 1 else found)[0]


def _candidates(
    items: Mapping[Any, Any], path: tuple[str, ...], way: tuple[Mapping[Any, Any], ...], seen: set[int]
) -> list[Nested]:
    """Dicts of tensors in ``items``; each dict is walked through once, since a pickle can hold itself many times over."""
    if id(items) in seen or len(path) > _DEPTH:
        return []
    seen.add(id(items))
    inner = dict(_inner(items))
    for key in _NESTS:
        if key in inner and (found := _candidates(inner[key], (*path, key), (*way, items), seen)):
            return found
    own = _tensors(items)
    here = [Nested(own, path, way or (items,))] if own else []
    if any("." in key for key in own):  # names of modules: these are weights, and nothing deeper is
        return here
    deeper = [c for key, value in inner.items() for c in _candidates(value, (*path, key), (*way, items), seen)]
    return deeper or here


def _inner(items: Mapping[Any, Any]) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    for key, value in items.items():
        if isinstance(key, str) and isinstance(value, dict) and not any(part in key.lower() for part in _NO_WEIGHTS):
            yield key, cast("dict[Any, Any]", value)


def _tensors(items: Mapping[Any, Any]) -> dict[str, Tensor]:
    """The tensors alone: a file can also give a tensor attributes, under the names of its methods."""
    return {key: Tensor.detach(value) for key, value in items.items() if isinstance(key, str) and isinstance(value, Tensor)}
