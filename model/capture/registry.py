"""collect(package): the one public class of every module in a folder, by name. There is no list to edit."""

import importlib
import inspect
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any


@cache
def collect(package: str) -> dict[str, type[Any]]:
    """Public extension classes of a package such as ``analysis.exits``, keyed by their ``name``, sorted by it.

    Raises TypeError when a module holds no or several public classes, or two classes share a name.
    """
    parent = importlib.import_module(package)
    found: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(parent.__path__):
        extension = _public_class(importlib.import_module(f"{package}.{info.name}"))
        name = extension.name
        if name in found:
            raise TypeError(f"{package} holds two extensions named {name!r}: {found[name]} and {extension}.")
        found[name] = extension
    return dict(sorted(found.items()))


def _public_class(module: ModuleType) -> type[Any]:
    classes = [
        value
        for label, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not label.startswith("_")
    ]
    if len(classes) != 1:
        raise TypeError(f"{module.__name__} must define exactly one public class; it defines {len(classes)}.")
    return classes[0]
