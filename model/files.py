"""Files on the machine that runs the model: which may be opened, how much of them is read, what they digest to."""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

MAX_CONFIG = 4 << 20
MAX_INDEX = 64 << 20
MAX_TOKENIZER = 64 << 20
"""Bytes of a config.json, of an index of shards and of a tokenizer file beyond which they are not read."""

ROOTS = "LOOPSCOPE_CHECKPOINT_ROOTS"
"""Environment variable: where it is set, only paths inside the folders it lists are opened; empty opens none."""

_LFS_START = b"version https://git-lfs"
_CHUNK = 1 << 22
_KEPT_DIGESTS = 1024
_digests_lock = threading.Lock()
_digests: dict[tuple[Path, int, int, int], str] = {}


class CheckpointError(ValueError):
    """A checkpoint that is not there or cannot be used; the message names the file and says what to do."""


def shown(text: object, *, length: int = 120) -> str:
    """What a file says, fit for a sentence: on one line, of a bounded length."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: 2 * length])
    return line if len(line) <= length else f"{line[:length]}…"


def check_allowed(path: Path) -> None:
    """Raise CheckpointError when the server's setting keeps this path closed, whether or not there is such a file."""
    listed = os.environ.get(ROOTS)
    if listed is None:
        return
    roots = [Path(root).expanduser().resolve() for root in listed.split(os.pathsep) if root.strip()]
    try:
        resolved = path.expanduser().resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links, a null byte, a home that nobody has
        resolved = None
    if resolved is None or not any(resolved.is_relative_to(root) for root in roots):
        raise CheckpointError(
            f"The path {str(path)!r} is outside the folders that this server opens ({ROOTS}); "
            "give demo, an upload, or a path inside them."
        )


def server_path(name: str) -> Path:
    """A path that a person typed (a run folder, an .npz), home expanded. Raises CheckpointError when it is closed."""
    path = Path(name.strip())
    check_allowed(path)
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise CheckpointError(f"The path {name!r} begins with a home folder that is not here; give the whole path.") from error


def check_inside(path: Path, folder: Path) -> None:
    """Raise CheckpointError for a link that leads out of the folder; the Hugging Face cache's own links are kept.

    In that cache ``snapshots/REVISION/FILE`` leads to ``blobs/HASH`` beside ``snapshots``.
    """
    home, target = folder.resolve(), path.resolve()
    cached = home.parent.name == "snapshots" and target.parent == home.parent.parent / "blobs"
    if not target.is_relative_to(home) and not cached:
        raise CheckpointError(
            f"{path.name} is a link that leads out of its folder and is not followed; give the path of the file itself."
        )


def check_whole(path: Path) -> None:
    """Raise CheckpointError for an empty file and for a Git LFS pointer in a file's place."""
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path.name} is empty (0 bytes); copy it again.")
    with path.open("rb") as file:
        if file.read(len(_LFS_START)) == _LFS_START:
            raise CheckpointError(f"{path.name} is a Git LFS pointer, not the file itself; run `git lfs pull` there.")


def check_size(path: Path, limit: int) -> None:
    """Raise CheckpointError when the file is larger than ``limit`` bytes."""
    size = path.stat().st_size
    if size > limit:
        raise CheckpointError(
            f"{path.name} has {size >> 20} MB; expected at most {limit >> 20} MB. Check that it is the right file."
        )


def read_json(path: Path, limit: int) -> dict[str, Any]:
    """A JSON object of at most ``limit`` bytes. Raises CheckpointError when it is none."""
    try:
        check_whole(path)
        check_size(path, limit)
        values = json.loads(path.read_bytes())
    except CheckpointError:
        raise
    except RecursionError as error:
        raise CheckpointError(f"{path.name} is nested too deep to be read; write it again.") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} is no JSON that can be read ({shown(error)}).") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path.name} holds a {type(values).__name__}; expected one JSON object.")
    return cast("dict[str, Any]", values)


def file_digest(path: Path) -> str:
    """sha256 of one file; a file unchanged since the last call is not read again."""
    return file_digests([path])[0]


def file_digests(paths: Sequence[Path], *, progress: Callable[[float], None] = lambda fraction: None) -> list[str]:
    """sha256 of every file; ``progress`` is told the fraction of their bytes that is done."""
    total = max(1, sum(path.stat().st_size for path in paths))
    done, found = 0, list[str]()
    for path in paths:
        stat = path.stat()
        key = (path.absolute(), stat.st_mtime_ns, stat.st_size, stat.st_ino)
        digest = _digests.get(key)
        if digest is None:
            digest = _sha256(path, lambda read, before=done: progress(min(1.0, (before + read) / total)))
            _keep(key, digest)
        found.append(digest)
        done += stat.st_size
        progress(min(1.0, done / total))
    return found


def _keep(key: tuple[Path, int, int, int], found: str) -> None:
    with _digests_lock:
        while len(_digests) >= _KEPT_DIGESTS:
            del _digests[next(iter(_digests))]
        _digests[key] = found


def _sha256(path: Path, report: Callable[[int], None]) -> str:
    whole, read = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            whole.update(chunk)
            read += len(chunk)
            report(read)
    return whole.hexdigest()
