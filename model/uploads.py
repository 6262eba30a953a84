"""Keep uploaded checkpoints in a private temporary folder until they are removed or the process ends; no torch."""

import atexit
import hashlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from model.files import CheckpointError

PREFIX = "upload:"
MAX_FILES = 1000

_CHUNK = 1 << 20
_LABEL = 40
_NAME = 200


@runtime_checkable
class Content(Protocol):
    """What is needed of an uploaded file: any binary stream that can be rewound."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, b"" at the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Go to a byte."""
        ...


@dataclass(frozen=True)
class Upload:
    """An uploaded checkpoint: ``name`` is ``upload:LABEL@DIGEST12``, ``size`` its bytes."""

    name: str
    folder: Path
    size: int


@dataclass
class _Kept:
    upload: Upload
    digest: str
    holders: int = 1


_lock = threading.Lock()
_kept: dict[str, _Kept] = {}
_base: list[tuple[int, Path]] = []  # the process that made the folder, and the folder


def keep(files: Sequence[tuple[str, Content]], *, limit_bytes: int) -> Upload:
    """Write uploaded files, chunk by chunk, to a folder that only this user can read.

    Args:
        files: name as the browser gives it ("config.json", or "folder/config.json" from a folder) and content.
        limit_bytes: cap on all files together.

    The same content under the same label is kept once; it is gone when ``remove`` was called as often as ``keep``.
    Raises CheckpointError, and leaves nothing behind, for a name that could lead elsewhere, for two files of one name,
    and past the cap.
    """
    names, label = _safe_names([name for name, _ in files])
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    try:
        digests, size = _write(folder, list(zip(names, (content for _, content in files), strict=True)), limit_bytes)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    digest = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    return _hold(Upload(f"{PREFIX}{label}@{digest[:12]}", folder, size), digest)


def remove(name: str) -> None:
    """Let go of one ``keep``; the files are deleted with the last one. An upload that is not here is no error."""
    with _lock:
        kept = _kept.get(name)
        if kept is None:
            return
        kept.holders -= 1
        if kept.holders == 0:
            del _kept[name]
            shutil.rmtree(kept.upload.folder, ignore_errors=True)


def upload_folder(name: str) -> Path:
    """The folder of ``upload:LABEL@DIGEST12``. Raises CheckpointError when it is not here (any more)."""
    with _lock:
        kept = _kept.get(name)
    if kept is None:
        label, _, digest = name.removeprefix(PREFIX).rpartition("@")
        raise CheckpointError(f"The upload {label!r} (digest {digest}) is not here any more; upload it again.")
    return kept.upload.folder


def _hold(upload: Upload, digest: str) -> Upload:
    with _lock:
        kept = _kept.setdefault(upload.name, _Kept(upload, digest, holders=0))
        if kept.upload is not upload:
            shutil.rmtree(upload.folder, ignore_errors=True)
        if kept.digest != digest:
            raise CheckpointError(f"Another upload bears the name {upload.name}; rename a file and upload it again.")
        kept.holders += 1
        return kept.upload


def _write(folder: Path, files: Sequence[tuple[str, Content]], limit: int) -> tuple[list[str], int]:
    """One line per file (name and sha256), and the bytes written."""
    digests, size = list[str](), 0
    for name, content in files:
        whole = hashlib.sha256()
        content.seek(0)
        try:
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                while chunk := content.read(_CHUNK):
                    size += len(chunk)
                    if size > limit:
                        raise CheckpointError(
                            f"The upload is larger than this server's cap of {limit / 2**20:.0f} MiB; "
                            "put the files on the server and give their path."
                        )
                    whole.update(chunk)
                    file.write(chunk)
        except OSError as error:
            raise CheckpointError(f"{name} could not be kept on the server ({error.strerror}); try again later.") from error
        digests.append(f"{name} {whole.hexdigest()}")
    return digests, size


def _safe_names(given: Sequence[str]) -> tuple[list[str], str]:
    """Base names to write under, and a label: the common top folder, or the first file's name."""
    if not given:
        raise CheckpointError("The upload holds no file; choose a checkpoint's files or its folder.")
    if len(given) > MAX_FILES:
        raise CheckpointError(f"The upload holds {len(given)} files; expected one checkpoint, at most {MAX_FILES} files.")
    paths = [_safe_path(name) for name in given]
    names = [path.name for path in paths]
    twice = next((name for name in names if [n.casefold() for n in names].count(name.casefold()) > 1), None)
    if twice is not None:
        raise CheckpointError(f"The upload holds two files named {twice!r}; upload one checkpoint at a time.")
    tops = {path.parts[0] if len(path.parts) > 1 else "" for path in paths}
    label = tops.pop() if len(tops) == 1 else ""
    return names, _label(label or paths[0].stem)


def _safe_path(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    harmless = name.isprintable() and "\\" not in name and not path.is_absolute() and ".." not in name.split("/")
    if not harmless or not path.name or len(path.name.encode(errors="replace")) > _NAME:
        raise CheckpointError(f"The upload holds a file named {name[:_NAME]!r}; expected a plain file name. Rename it.")
    return path


def _label(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:_LABEL].strip(".-") or "checkpoint"


def _folder() -> Path:
    """The folder of this process, made at the first upload and deleted at exit."""
    with _lock:
        if not _base or _base[0][0] != os.getpid():
            _base[:] = [(os.getpid(), Path(tempfile.mkdtemp(prefix="loopscope-")))]
            atexit.register(_sweep, *_base[0])
        return _base[0][1]


def _sweep(process: int, folder: Path) -> None:
    if os.getpid() == process:  # a forked child leaves its parent's files alone
        shutil.rmtree(folder, ignore_errors=True)
