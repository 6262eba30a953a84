"""A checkpoint's tensors, read without running anything: headers first, weights memory-mapped."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.capture.place import is_recorded
from model.choice import INDEX_END
from model.files import shown
from model.folder import read_index
from model.locate import CheckpointError, Located, read_config
from model.pickled import read_pickled

MAX_HEADER = 16 << 20
"""Bytes of a safetensors header: about 150,000 tensors."""

_DTYPES = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint", "C": "complex"}
_ODD_DTYPES = {"BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}

Found = TypeVar("Found")


@dataclass(frozen=True)
class TensorHeader:
    """Shape and stored dtype ("float32", "bfloat16") of one tensor."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Contents:
    """What a checkpoint holds, by its headers alone.

    Attributes:
        tensors: name, without what compilers and parallel wrappers put before it -> header.
        config: config.json over the settings saved beside the tensors of a pickled file.
    """

    tensors: Mapping[str, TensorHeader]
    config: Mapping[str, Any]


def bare(name: str) -> str:
    """A tensor's name without ``_orig_mod`` (torch.compile) anywhere and ``module`` (parallel wrappers) in front.

    ``model.`` stays: one family owns such names. ``bare(bare(x)) == bare(x)``.
    """
    *before, last = name.split(".")
    before = [part for part in before if part != "_orig_mod"]
    while before and before[0] == "module":
        before = before[1:]
    return ".".join([*before, last])


def headers(located: Located) -> Contents:
    """Names, shapes, dtypes and config; weights are not read.

    Raises CheckpointError, naming the file, when it is damaged, is not what its name says, or wants to run code.
    """
    merged = _Merged[TensorHeader](located)
    config: dict[str, Any] = {}
    for part in merged.parts:
        if _is_safetensors(part):
            merged.add(part, _safetensors_headers(part))
            continue
        found, settings = read_pickled(part, data=False)
        merged.add(part, {name: TensorHeader(tuple(t.shape), _words(t.dtype)) for name, t in found.items()})
        config |= settings
    return Contents(merged.whole(), config | dict(read_config(located)))


def tensors(located: Located, *, progress: Callable[[float], None] = lambda fraction: None) -> dict[str, Tensor]:
    """The tensors by the names of ``headers``, on the CPU in their stored dtype, memory-mapped where possible.

    ``progress`` is told the fraction of the files that is open. Raises as ``headers`` does.
    """
    merged = _Merged[Tensor](located)
    for number, part in enumerate(merged.parts, start=1):
        merged.add(part, _safetensors_tensors(part) if _is_safetensors(part) else read_pickled(part, data=True)[0])
        progress(number / len(merged.parts))
    return merged.whole()


class _Merged(Generic[Found]):
    """The tensors of all parts under their bare names; each name once."""

    def __init__(self, located: Located) -> None:
        self.parts = located.parts or (located.weights,)
        self._index = located.weights
        indexed = self._index.name.endswith(INDEX_END)
        self._shard_of = read_index(self._index) if indexed else dict[str, str]()
        self._found: dict[str, Found] = {}

    def add(self, part: Path, here: Mapping[str, Found]) -> None:
        """Take over what the index, where there is one, does not place in another shard."""
        for name, value in here.items():
            if name in self._shard_of and self._index.parent / self._shard_of[name] != part:
                continue
            if bare(name) in self._found:
                raise CheckpointError(
                    f"{part.name} holds {shown(bare(name))} twice (once as {shown(name)}); "
                    "save it again with each tensor under one name."
                )
            self._found[bare(name)] = value

    def whole(self) -> dict[str, Found]:
        """All tensors. Raises CheckpointError naming a tensor that the index promises and its shard lacks."""
        lacking = [name for name in self._shard_of if bare(name) not in self._found]
        if lacking:
            name, shard = lacking[0], self._shard_of[lacking[0]]
            raise CheckpointError(
                f"{self._index.name} promises {len(lacking)} of its {len(self._shard_of)} tensors in vain, such as "
                f"{shown(name)} in {shard}; copy {shard} again.{self._strays()}"
            )
        return self._found

    def _strays(self) -> str:
        """Files that look like shards and that the index does not name: never read, worth a word when one lacks."""
        ending = self.parts[0].suffix
        found = (path for path in self._index.parent.glob(f"*{ending}") if path not in self.parts and not is_recorded(path))
        beside = sorted(path.name for path in found)
        return f" The folder also holds {', '.join(beside[:3])}, which the index does not name." if beside else ""


def _is_safetensors(path: Path) -> bool:
    """Decided by content; a pickle under the name of the safe format is refused instead of read."""
    with path.open("rb") as file:
        start = file.read(9)
    if start[8:] == b"{":
        return True
    if path.suffix.lower() == ".safetensors":
        pickled = start[:4] == b"PK\x03\x04" or start[:1] == b"\x80"
        raise CheckpointError(
            f"{path.name} is a pickled file, no safetensors; give it its true name (.pt), or save it as safetensors."
            if pickled
            else f"{path.name} is no safetensors file that can be read; copy it again."
        )
    return False


def _check_header(path: Path) -> None:
    """The length of the header is checked before anything allocates it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > min(size - 8, MAX_HEADER):
        raise CheckpointError(
            f"{path.name} is no safetensors file that can be read: its header claims {length} bytes and the file has {size} "
            f"(at most {MAX_HEADER >> 20} MB of header are read); copy it again."
        )


@contextmanager
def _opened(path: Path) -> Generator[Any]:
    _check_header(path)
    try:
        reader: Any = safe_open(path, framework="pt")  # the library has no types
        with reader as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path.name} is no safetensors file that can be read ({shown(error)}); copy it again."
        ) from error


def _safetensors_headers(path: Path) -> dict[str, TensorHeader]:
    with _opened(path) as file:
        slices: dict[str, Any] = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        return {name: TensorHeader(tuple(s.get_shape()), _stored(str(s.get_dtype()))) for name, s in slices.items()}


def _safetensors_tensors(path: Path) -> dict[str, Tensor]:
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)


def _stored(dtype: str) -> str:
    """A safetensors dtype in torch's words: "BF16" -> "bfloat16"."""
    letters = dtype.rstrip("0123456789")
    return _ODD_DTYPES.get(dtype) or f"{_DTYPES.get(letters, letters.lower())}{dtype[len(letters) :]}"


def _words(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
