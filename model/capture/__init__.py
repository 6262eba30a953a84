"""Loopscope for one's own models: `from loopscope import record`. What needs torch is imported when it is first named."""

from typing import TYPE_CHECKING, Any

from .errors import CaptureError
from .folder import load, save
from .trajectory import BlockTrace, Provenance, Run, RunFormatError, Trajectory

if TYPE_CHECKING:
    from .head import Head
    from .recorder import record

__all__ = [
    "BlockTrace",
    "CaptureError",
    "Head",
    "Provenance",
    "Run",
    "RunFormatError",
    "Trajectory",
    "load",
    "record",
    "save",
]

_LAZY = {"Head": "head", "record": "recorder"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
