"""Read a file of torch.save without running anything in it, and without believing the sizes it claims."""

import io
import pickletools
import re
import struct
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from model.files import CheckpointError, shown

MAX_PICKLE = 16 << 20
"""Bytes of the pickle proper (names and settings, no weights); objects take many times their bytes in a pickle."""
MAX_OLD_PICKLE = 1 << 20
"""The same in the older format, whose pickle is walked through before it is read."""
MAX_DIRECTORY = 16 << 20
"""Bytes of a zip archive's directory: about 150,000 tensors."""

MAX_SETTINGS = 100_000
"""Values in one top-level entry beside the weights; a larger one (a vocabulary, a log) is left out of the settings."""

_NESTS = ("model", "state_dict", "module", "model_state_dict")
_DEPTH = 4
_RESAVE = "Save a plain dict of tensors again, or use safetensors."
_DAMAGED = "is damaged or no checkpoint at all. Copy it again, or save its weights as safetensors."
_LOCK = threading.Lock()  # torch keeps one list of allowed names for all threads


class _OddScalar(ValueError):
    """A numpy scalar that is not read; the message is the second half of a sentence."""


class _Kind:
    """Stands for numpy.dtype while a file is read, so that nothing of numpy is called with what the file says."""

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or re.fullmatch(r"[biuf][1248]|c8|c16", code) is None:
            raise _OddScalar(f"it holds a numpy scalar of kind {str(code)[:20]!r}, which is no plain number. {_RESAVE}")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.order = ">" if state[1] == ">" else "="


def _scalar(kind: object, raw: object = b"") -> bool | int | float | complex:
    """Stands for numpy's scalar constructor: a number from its bytes."""
    if not isinstance(kind, _Kind) or not isinstance(raw, bytes):
        raise _OddScalar(f"it holds a numpy scalar that is no plain number. {_RESAVE}")
    (value,) = np.frombuffer(raw, dtype=np.dtype(kind.order + kind.code))
    return value.item()


_ALLOWED: list[tuple[Callable[..., Any], str]] = [
    (_Kind, "numpy.dtype"),
    (_scalar, "numpy.core.multiarray.scalar"),
    (_scalar, "numpy._core.multiarray.scalar"),
]


def read_pickled(path: Path, *, data: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file and, beside them, its plain settings.

    Args:
        path: a file of torch.save, in today's zip format or the older one.
        data: False gives tensors without content (device meta) and reads no weights where the format allows it.

    Returns: name -> tensor as stored, memory-mapped where possible; and the top-level entries that hold no tensor.
    Raises CheckpointError, naming the file, for anything that is not a dict of tensors or would have to run code.
    """
    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"  # as torch decides it
    content = _load(path, data=False, zipped=zipped)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name} holds a {type(content).__name__}; expected a dict with the weights under 'model'.")
    _check_claims(path, _state(cast("dict[Any, Any]", content), path)[0])
    if data and zipped:
        content = _load(path, data=True, zipped=zipped)
    state, key = _state(cast("dict[Any, Any]", content), path)
    settings = {
        name: value
        for name, value in cast("dict[Any, Any]", content).items()
        if isinstance(name, str) and name != key and not isinstance(value, Tensor) and _plain(value)
    }
    return state, settings


def _load(path: Path, *, data: bool, zipped: bool) -> object:
    if zipped:
        _check_archive(path)
    else:
        _check_old_format(path)
    # The old format cannot be mapped, and cannot be opened without its content.
    where = "cpu" if data or not zipped else "meta"
    with _LOCK, safe_globals(cast("list[Any]", _ALLOWED)):
        try:
            return torch.load(path, map_location=where, weights_only=True, mmap=data and zipped)
        except Exception as error:  # what a file says can make the reader fail in any way
            raise CheckpointError(f"{path.name} cannot be loaded safely: {_why(path, error)}") from error


def _why(path: Path, error: Exception) -> str:
    if isinstance(error, _OddScalar):
        return str(error)
    try:
        blocked = get_unsafe_globals_in_checkpoint(path)
    except Exception:  # the older format, or a file so damaged that its list of imports cannot be read either
        blocked = re.findall(r"GLOBAL (\S+) (?:was not|whose module)", str(error))
    if blocked:
        return f"it wants to import {shown(', '.join(sorted(blocked)[:3]))}. {_RESAVE}"
    if "operand" in str(error) or "pickle protocol" in str(error):
        return f"it is no pickle of the kind that torch.save writes by itself (protocol 2). {_RESAVE}"
    return f"it {_DAMAGED}"


def _state(content: Mapping[Any, Any], path: Path) -> tuple[dict[str, Tensor], str | None]:
    """The flat dict of tensors, and the top-level key that it was found under (None: the content itself)."""
    for key in _NESTS:
        found = _nested(content.get(key), _DEPTH)
        if found:
            return found, key
    flat = _direct(content)
    if not flat:
        raise CheckpointError(f"{path.name} holds no tensors under 'model'; save a dict of tensors, or use safetensors.")
    return flat, None


def _nested(value: object, depth: int) -> dict[str, Tensor]:
    if not isinstance(value, dict) or depth == 0:
        return {}
    items = cast("dict[Any, Any]", value)
    for key in _NESTS:
        found = _nested(items.get(key), depth - 1)
        if found:
            return found
    return _direct(items)


def _direct(items: Mapping[Any, Any]) -> dict[str, Tensor]:
    """The tensors alone: a file can also give a tensor attributes, under the names of its methods."""
    return {key: Tensor.detach(value) for key, value in items.items() if isinstance(key, str) and isinstance(value, Tensor)}


def _plain(value: object) -> bool:
    """Whether a value holds no tensor and is of a size that settings have; a pickle can hold itself many times over."""
    waiting, seen = [value], 0
    while waiting:
        inner, seen = waiting.pop(), seen + 1
        if isinstance(inner, Tensor) or seen > MAX_SETTINGS:
            return False
        if isinstance(inner, dict):
            items = cast("dict[Any, Any]", inner)
            waiting += items.values()
        elif isinstance(inner, list | tuple | set):
            waiting += cast("list[Any]", inner)
    return True


def _check_claims(path: Path, state: Mapping[str, Tensor]) -> None:
    size = path.stat().st_size
    for name, tensor in state.items():
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise CheckpointError(f"Tensor {shown(name)} in {path.name} is sparse or quantised; save it as a dense tensor.")
        if tensor.numel() * tensor.element_size() > size:
            raise CheckpointError(
                f"Tensor {shown(name)} in {path.name} claims shape {shown(tuple(tensor.shape))}, "
                f"more than the file's {size} bytes hold; save it again without expanded tensors, or copy the file again."
            )


def _check_archive(path: Path) -> None:
    """Refuse compressed or overlapping members, huge directories and TorchScript before torch opens the file."""
    try:
        with path.open("rb") as file:
            if _directory_bytes(file) > MAX_DIRECTORY:
                raise CheckpointError(f"{path.name} lists too many parts to be a checkpoint. {_RESAVE}")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, ValueError, zipfile.BadZipFile, struct.error, NotImplementedError) as error:
        raise CheckpointError(f"{path.name} is cut off or damaged; copy it again.") from error
    names = {member.filename.split("/", 1)[-1] for member in members}
    if "constants.pkl" in names or any(name.startswith("code/") for name in names):
        raise CheckpointError(f"{path.name} is a TorchScript program, which is not run here; save its state_dict() instead.")
    if sum(member.file_size for member in members) > path.stat().st_size or any(m.compress_type for m in members):
        raise CheckpointError(f"{path.name} unpacks to more than it holds, which torch.save never writes. {_RESAVE}")
    if any(member.file_size > MAX_PICKLE for member in members if member.filename.endswith(".pkl")):
        raise CheckpointError(f"{path.name} holds more than {MAX_PICKLE >> 20} MB beside its weights. {_RESAVE}")


def _directory_bytes(file: BinaryIO) -> int:
    """Size of the archive's directory, from its last record alone."""
    start = max(0, file.seek(0, io.SEEK_END) - 65_557)
    file.seek(start)
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0:
        raise ValueError("no directory")
    size: int = struct.unpack_from("<L", tail, end + 12)[0]
    if tail[max(0, end - 20) : end][:4] == b"PK\x06\x07":  # the directory of a file past 4 GB
        file.seek(struct.unpack_from("<Q", tail, end - 12)[0])
        size = struct.unpack_from("<Q", file.read(56), 40)[0]
    return size


def _check_old_format(path: Path) -> None:
    """Walk the four pickles that open a file of the older format; nothing is built."""
    with path.open("rb") as file:
        start = io.BytesIO(file.read(MAX_OLD_PICKLE))
    try:
        for _ in range(4):
            for _ in pickletools.genops(start):
                pass
    except Exception as error:  # whatever bytes are there
        raise CheckpointError(f"{path.name} cannot be loaded safely: it {_DAMAGED}") from error
