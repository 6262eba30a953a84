"""Find the looped blocks in somebody's module: by dotted path, as the module itself, or as a list of layers."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from torch import nn

from .errors import CaptureError

BlockPath = str | nn.Module


@dataclass(frozen=True, eq=False)
class Span:
    """A looped block: loop begins with a call of ``first`` and ends with a call of ``last``, often the same module.

    Attributes:
        name: its path. layers: indices of its layers where the path or the list has them.
    """

    name: str
    layers: tuple[int, ...]
    first: nn.Module
    last: nn.Module


def find_blocks(module: nn.Module, block: BlockPath | Sequence[BlockPath]) -> list[Span]:
    """The spans of all blocks, in the order given. Raises CaptureError for a path that is not there."""
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance] - people's code is not checked
        raise CaptureError(f"record was given a {type(module).__name__}; the first argument is the module that is run.")
    given = [block] if isinstance(block, str | nn.Module) else list(block)
    if not given:
        raise CaptureError("No looped block was given; name at least one by its path in the module.")
    spans = [_span(_path_of(module, one), one if isinstance(one, nn.Module) else _at(module, one)) for one in given]
    for names in _places(spans).values():
        if len(names) > 1:
            raise CaptureError(
                f"Blocks {' and '.join(map(repr, names))} end with one and the same module, so that their calls cannot be told "
                "apart; give it once: every call is a loop."
            )
    return spans


def _places(spans: Sequence[Span]) -> dict[nn.Module, list[str]]:
    places: dict[nn.Module, list[str]] = {}
    for span in spans:
        places.setdefault(span.last, []).append(span.name)
    return places


def _named(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every submodule by path; one that stands in two places is there twice."""
    return [*cast("Iterable[tuple[str, nn.Module]]", module.named_modules(remove_duplicate=False))]


def _path_of(module: nn.Module, block: BlockPath) -> str:
    if isinstance(block, str):
        return block
    path = next((name for name, found in _named(module) if found is block), None)
    if path is None:
        raise CaptureError(
            f"The block that was given ({type(block).__name__}) is no part of the {type(module).__name__}; give one of its own "
            "modules, or its path."
        )
    return path or type(block).__name__


def _at(module: nn.Module, path: str) -> nn.Module:
    try:
        return module.get_submodule(path)
    except AttributeError:
        known = [name for name, _ in _named(module) if name]
    near = difflib.get_close_matches(path, known, n=5, cutoff=0.4)
    tail = path.rpartition(".")[2]
    near += [name for name in known if name not in near and name.rpartition(".")[2] == tail][: 5 - len(near)]
    said = f"near names are {', '.join(near)}" if near else f"it has {', '.join(known[:12]) or 'no submodule'}"
    raise CaptureError(f"{type(module).__name__} has no submodule {path!r}; {said}. Give one of the names of named_modules().")


def _span(name: str, found: nn.Module) -> Span:
    if not isinstance(found, nn.ModuleList):
        last = name.rpartition(".")[2]
        return Span(name, (int(last),) if last.isdecimal() else (), found, found)
    layers = _one_round(name, list(found))
    return Span(name, tuple(range(len(layers))), layers[0], layers[-1])


def _one_round(name: str, layers: list[nn.Module]) -> list[nn.Module]:
    """The layers that make one loop: of [a, b, a, b] the first two, as the same modules are run again."""
    if not layers:
        raise CaptureError(f"{name!r} is an empty ModuleList; a looped block has at least one layer.")
    count = len(layers)
    periods = (n for n in range(1, count + 1) if count % n == 0)
    period = next(n for n in periods if all(layer is layers[i % n] for i, layer in enumerate(layers)))
    round_ = layers[:period]
    if len({id(layer) for layer in round_}) < len(round_):
        raise CaptureError(
            f"In the ModuleList {name!r} a module stands several times without repeating the whole list, so that no call "
            "tells where a loop ends. Wrap the layers of one loop in a module of their own and give that."
        )
    return round_
