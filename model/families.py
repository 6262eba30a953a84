"""The network families by name, from the files in architectures/."""

import importlib
import pkgutil
from functools import cache

import model.architectures as package
from model.architecture import Architecture


@cache
def architectures() -> dict[str, Architecture]:
    """One instance of every family. Raises TypeError when a file does not define exactly one public class."""
    found: dict[str, Architecture] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        classes = [
            v for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__ and k[0] != "_"
        ]
        if len(classes) != 1:
            raise TypeError(f"{module.__name__} must define exactly one public class; it defines {len(classes)}.")
        family: Architecture = classes[0]()
        found[family.name] = family
    return dict(sorted(found.items()))
