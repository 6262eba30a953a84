"""Read the meta.pkl of a character-level model (nanoGPT) without unpickling it; no torch."""

import pickletools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from model.files import CheckpointError, check_size, check_whole, shown

MAX_META = 1 << 20
"""Bytes of a meta.pkl; 65 characters take 700."""
_MAX_CONTAINERS = 1000


def read_characters(path: Path) -> Mapping[str, int]:
    """Character -> id, from a meta.pkl. Raises CheckpointError when it holds anything but plain values, or no ``stoi``."""
    check_whole(path)
    check_size(path, MAX_META)
    try:
        content = _Reader(path.name).read(path.read_bytes())
    except CheckpointError:
        raise
    except Exception as error:  # damaged bytes make the walk fail in any way
        raise CheckpointError(f"{path.name} is damaged or no meta.pkl at all; copy it again.") from error
    stoi: Any = cast("dict[Any, Any]", content).get("stoi") if isinstance(content, dict) else None
    if not isinstance(stoi, dict) or not stoi or not all(map(_entry, cast("dict[Any, Any]", stoi).items())):
        raise CheckpointError(f"{path.name} has no table 'stoi' from characters to ids; give token ids instead of text.")
    return cast("dict[str, int]", stoi)


def _entry(item: tuple[object, object]) -> bool:
    text, token = item
    return isinstance(text, str) and len(text) == 1 and type(token) is int and token >= 0


class _Reader:
    """A stack machine for the few instructions that build dicts, lists, tuples, texts and whole numbers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._containers = 0
        self._simple: dict[str, Callable[[], object]] = {
            "EMPTY_DICT": lambda: {},
            "EMPTY_LIST": lambda: [],
            "EMPTY_TUPLE": lambda: (),
            "NONE": lambda: None,
            "NEWTRUE": lambda: True,
            "NEWFALSE": lambda: False,
        }

    def read(self, raw: bytes) -> object:
        """The value that the bytes describe. Raises CheckpointError naming the first instruction of another kind."""
        for instruction, argument, _ in pickletools.genops(raw):
            self._step(instruction.name, argument)
        (value,) = self._stack
        return value

    def _step(self, name: str, argument: Any) -> None:
        if name in ("PROTO", "FRAME", "STOP"):
            return
        if name in self._simple:
            self._containers += name.startswith("EMPTY")
            self._stack.append(self._simple[name]())
        elif name in ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"):
            self._stack.append(argument)
        elif name == "MARK":
            self._marks.append(len(self._stack))
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            self._containers += 1
            self._stack.append(tuple(self._from_mark() if name == "TUPLE" else self._pop(int(name[-1]))))
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[argument])
        elif name in ("SETITEM", "SETITEMS", "APPEND", "APPENDS"):
            self._fill(self._from_mark() if name.endswith("S") else self._pop(2 if name == "SETITEM" else 1))
        else:
            words = f"{name} {argument}" if argument is not None else name
            raise CheckpointError(
                f"{self._name} holds the instruction '{shown(words)}', which a table of characters does not need; it is not "
                "run. Save stoi and itos as plain dicts, or give token ids instead of text."
            )
        if self._containers > _MAX_CONTAINERS:
            raise CheckpointError(f"{self._name} holds more than {_MAX_CONTAINERS} tables; expected stoi and itos.")

    def _pop(self, count: int) -> list[Any]:
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def _from_mark(self) -> list[Any]:
        return self._pop(n) if (n := len(self._stack) - self._marks.pop()) else []

    def _fill(self, values: list[Any]) -> None:
        target: Any = self._stack[-1]
        if isinstance(target, dict):
            cast("dict[Any, Any]", target).update(zip(values[::2], values[1::2], strict=True))
        elif isinstance(target, list):
            cast("list[Any]", target).extend(values)
        else:
            raise ValueError("only dicts and lists are filled")
