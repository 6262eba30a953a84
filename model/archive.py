"""What a pickled checkpoint is by its frame, and whether its sizes can be believed, before torch opens it."""

import io
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, cast

from model.files import CheckpointError, shown

MAX_PICKLE = 16 << 20
"""Bytes of the pickle proper (names and settings, no weights); objects take many times their bytes in a pickle."""
MAX_OLD_PICKLE = 1 << 20
"""The same in the older format, whose pickle is walked through before it is read."""
MAX_DIRECTORY = 16 << 20
"""Bytes of a zip archive's directory: about 150,000 tensors."""

RESAVE = (
    "Where you trust the file, load it and save its plain parts again: "
    'torch.save({"model": ckpt["model"], "model_args": ckpt["model_args"]}, "clean.pt").'
)
DAMAGED = "is damaged or no checkpoint at all. Copy it again, or save its weights as safetensors."

_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
"""The number that opens every file of torch.save in the older format."""
_MAX_IMPORTS = 20
_OF_EVERY_PICKLE = ("copy_reg._reconstructor", "__builtin__.object", "_codecs.encode")  # said last


def is_zipped(path: Path) -> bool:
    """Whether a file is in the format of today's torch.save, as torch itself decides it."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def check_archive(path: Path) -> None:
    """Refuse compressed or overlapping members, huge directories, TorchScript and what torch.save has not written."""
    try:
        with path.open("rb") as file:
            if _directory_bytes(file) > MAX_DIRECTORY:
                raise CheckpointError(f"{path.name} lists too many parts to be a checkpoint. {RESAVE}")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, ValueError, zipfile.BadZipFile, struct.error, NotImplementedError) as error:
        raise CheckpointError(f"{path.name} is cut off or damaged; copy it again.") from error
    names = {member.filename.split("/", 1)[-1] for member in members}
    if members and all(member.filename.endswith(".npy") for member in members):
        raise CheckpointError(f"{path.name} is a numpy archive (.npz), not a checkpoint; give a checkpoint's file or folder.")
    if "constants.pkl" in names or any(name.startswith("code/") for name in names):
        raise CheckpointError(f"{path.name} is a TorchScript program, which is not run here; save its state_dict() instead.")
    if "data.pkl" not in names:
        raise CheckpointError(f"{path.name} is a zip archive that torch.save has not written; unpack it and give its folder.")
    if sum(member.file_size for member in members) > path.stat().st_size or any(m.compress_type for m in members):
        raise CheckpointError(f"{path.name} unpacks to more than it holds, which torch.save never writes. {RESAVE}")
    if any(member.file_size > MAX_PICKLE for member in members if member.filename.endswith(".pkl")):
        raise CheckpointError(f"{path.name} holds more than {MAX_PICKLE >> 20} MB beside its weights. {RESAVE}")


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


def check_old_format(path: Path) -> None:
    """Walk the four pickles that open a file of the older format; nothing is built. A plain pickle is told apart."""
    with path.open("rb") as file:
        start = file.read(MAX_OLD_PICKLE)
    if start[:6] == b"\x93NUMPY":
        raise CheckpointError(f"{path.name} is a numpy array (.npy), not a checkpoint; give a checkpoint's file or folder.")
    if _MAGIC not in start[:40]:
        raise CheckpointError(f"{path.name} cannot be loaded safely: it {_plain_pickle(start) or DAMAGED}")
    stream = io.BytesIO(start)
    try:
        for _ in range(4):
            for _ in pickletools.genops(stream):
                pass
    except Exception as error:  # whatever bytes are there
        raise CheckpointError(f"{path.name} cannot be loaded safely: it {DAMAGED}") from error


def _plain_pickle(start: bytes) -> str:
    """The second half of a sentence about a file of pickle.dump, by its beginning; "" where it is none."""
    names, whole = imports(start)
    if names:
        telling = sorted(names, key=lambda name: (name in _OF_EVERY_PICKLE, name))
        some = f"{', '.join(telling[:3])}{' and more' if len(names) > 3 else ''}"
        return f"is a plain pickle, no file of torch.save, and wants to import {shown(some)}. {RESAVE}"
    return f"is a plain pickle, no file of torch.save. {RESAVE}" if whole else ""


def imports(start: bytes) -> tuple[list[str], bool]:
    """Names that a pickle would import, and whether it ended; it is walked through as far as it is there, nothing is built.

    A name can stand in one instruction or be put together from the two texts before it.
    """
    found: dict[str, None] = {}
    texts: tuple[Any, Any] = ("", "")  # the last two that were put on the stack
    memo: dict[int, Any] = {}
    try:
        for instruction, given, _ in pickletools.genops(start):
            kind, argument = instruction.name, cast("Any", given)
            if kind in ("GLOBAL", "INST"):
                found[str(argument).replace(" ", ".", 1)] = None
            elif kind == "STACK_GLOBAL":
                found[f"{texts[0]}.{texts[1]}"] = None
            elif kind.endswith(("UNICODE", "UNICODE8", "STRING")):
                texts = (texts[1], argument)
            elif kind == "MEMOIZE":
                memo[len(memo)] = texts[1]
            elif kind.endswith("PUT"):
                memo[argument] = texts[1]
            elif kind.endswith("GET"):
                texts = (texts[1], memo.get(argument, "?"))
            if len(found) > _MAX_IMPORTS:
                break
    except Exception:  # whatever bytes are there
        return list(found), False
    return list(found), True
