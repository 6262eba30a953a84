"""collect(package): the extensions of a folder by name; one mechanism for analysis and model."""

from typing import Any

from model.capture.registry import collect

__all__ = ["collect", "first_sentence"]


def first_sentence(kind: type[Any]) -> str:
    """What an extension is: the first paragraph of its docstring, which may run over several lines, as one line."""
    return " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())
