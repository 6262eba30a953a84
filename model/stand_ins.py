"""What stands for numpy's names while a pickled checkpoint is read: nothing of numpy is called with what a file says."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np


class OddValue(ValueError):
    """A numpy value that is not read; the message is the second half of a sentence, without its full stop."""


class LeftOut:
    """Stands for a numpy array (a random state, a table): its bytes are not looked at, and no setting is made of it."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


class _Kind:
    """Stands for numpy.dtype."""

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or re.fullmatch(r"[biuf][1248]|c8|c16", code) is None:
            raise OddValue(f"it holds a numpy value of kind {str(code)[:20]!r}, which is no plain number")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.order = ">" if state[1] == ">" else "="


def _scalar(kind: object, raw: object = b"") -> bool | int | float | complex:
    """Stands for numpy's scalar constructor: a number from its bytes."""
    if not isinstance(kind, _Kind) or not isinstance(raw, bytes):
        raise OddValue("it holds a numpy value that is no plain number")
    (value,) = np.frombuffer(raw, dtype=np.dtype(kind.order + kind.code))
    return value.item()


def _reconstruct(*_: object) -> LeftOut:
    """Stands for the function that numpy begins every array with."""
    return LeftOut()


def _no_bytes(*_: object) -> bytes:
    """Stands for ``bytes``, which a file names for the content of an empty array."""
    return b""


ALLOWED: list[tuple[Callable[..., Any], str]] = [
    (_Kind, "numpy.dtype"),
    (LeftOut, "numpy.ndarray"),
    (_no_bytes, "builtins.bytes"),
    *(
        (stand_in, f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for stand_in, name in ((_scalar, "scalar"), (_reconstruct, "_reconstruct"))
    ),
]
"""Stand-in and the name that it is found under, as torch's reader of plain values takes them."""
