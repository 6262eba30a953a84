"""Read a file of torch.save without running anything in it, and without believing the sizes it claims."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from model.archive import DAMAGED, RESAVE, check_archive, check_old_format, is_zipped
from model.files import CheckpointError, shown
from model.nested import Nested, find_weights
from model.stand_ins import ALLOWED, LeftOut, OddValue

MAX_SETTINGS = 100_000
"""Values in one entry beside the weights; a larger one (a vocabulary, a log) is left out of the settings."""

_LOCK = threading.Lock()  # torch keeps one list of allowed names for all threads


def read_pickled(path: Path, *, data: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file and, beside them, its plain settings.

    Args:
        path: a file of torch.save, in today's zip format or the older one.
        data: False gives tensors without content (device meta) and reads no weights where the format allows it.

    Returns: name -> tensor as stored, memory-mapped where possible; and the entries that hold no tensor, of all dicts on
    the way to the weights; the nearest wins.
    Raises CheckpointError, naming the file, for anything that is not a dict of tensors or would have to run code.
    """
    zipped = is_zipped(path)
    found = _found(path, _load(path, data=False, zipped=zipped))
    _check_claims(path, found.state)
    if data and zipped:
        found = _found(path, _load(path, data=True, zipped=zipped))
    settings: dict[str, Any] = {}
    for depth, level in enumerate(found.way):
        followed = found.path[depth] if found.path else None
        settings |= {
            name: value for name, value in level.items() if isinstance(name, str) and name != followed and _plain(value)
        }
    return found.state, settings


def _found(path: Path, content: object) -> Nested:
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name} holds a {type(content).__name__}; expected a dict with the weights under 'model'.")
    return find_weights(cast("dict[Any, Any]", content), path.name)


def _load(path: Path, *, data: bool, zipped: bool) -> object:
    if zipped:
        check_archive(path)
    else:
        check_old_format(path)
    # The old format cannot be mapped, and cannot be opened without its content.
    where = "cpu" if data or not zipped else "meta"
    with _LOCK, safe_globals(cast("list[Any]", ALLOWED)):
        try:
            return torch.load(path, map_location=where, weights_only=True, mmap=data and zipped)
        except Exception as error:  # what a file says can make the reader fail in any way
            raise CheckpointError(f"{path.name} cannot be loaded safely: {_why(path, error)}") from error


def _why(path: Path, error: Exception) -> str:
    if isinstance(error, OddValue):
        return f"{error}. {RESAVE}"
    try:
        blocked = get_unsafe_globals_in_checkpoint(path)
    except Exception:  # the older format, or a file so damaged that its list of imports cannot be read either
        blocked = re.findall(r"GLOBAL (\S+) (?:was not|whose module)", str(error))
    blocked = sorted(set(blocked) - {name for _, name in ALLOWED})
    if blocked:
        return f"it wants to import {shown(', '.join(blocked[:3]))}. {RESAVE}"
    if "operand" in str(error) or "pickle protocol" in str(error):
        return f"it is no pickle of the kind that torch.save writes by itself (protocol 2). {RESAVE}"
    return f"it {DAMAGED}"


def _plain(value: object) -> bool:
    """Whether a value holds no tensor, no array, and no more than settings do; a pickle can hold itself many times over."""
    waiting, seen = [value], 0
    while waiting:
        inner, seen = waiting.pop(), seen + 1
        if isinstance(inner, Tensor | LeftOut) or seen > MAX_SETTINGS:
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
