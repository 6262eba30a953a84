"""Find a checkpoint on disk and digest its files; no torch, nothing is loaded."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

DEMO_FOLDER = Path(__file__).resolve().parent.parent / "assets" / "demo"
_WEIGHTS = ("model.safetensors", "ckpt.pt")
_LFS_START = b"version https://git-lfs"


class CheckpointError(ValueError):
    """A checkpoint that is not there or cannot be used; the message names the file and says what to do."""


@dataclass(frozen=True)
class Located:
    """A checkpoint's files. ``config`` and ``tokenizer`` are None where the weights file stands alone."""

    name: str
    weights: Path
    config: Path | None
    tokenizer: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that decide what the checkpoint computes."""
        return tuple(path for path in (self.config, self.weights, self.tokenizer) if path is not None)


def demo_steps() -> tuple[int, ...]:
    """Training steps of the bundled checkpoints, rising."""
    return tuple(sorted(int(path.name.removeprefix("step-")) for path in DEMO_FOLDER.glob("step-*") if path.is_dir()))


def demo_names() -> tuple[str, ...]:
    """``demo@STEP`` of every bundled checkpoint, in order of training."""
    return tuple(f"demo@{step}" for step in demo_steps())


def canonical(name: str) -> str:
    """The one name of a checkpoint: ``demo`` becomes ``demo@LAST``, paths stay as they are."""
    return demo_names()[-1] if name == "demo" and demo_names() else name


def locate(name: str) -> Located:
    """The files behind a name: ``demo``, ``demo@STEP``, a folder, or a weights file.

    Raises CheckpointError when there is no such thing, or a file is empty or only a pointer to its content.
    """
    name = canonical(name.strip())
    if not name:
        raise CheckpointError("No checkpoint was named; give demo, demo@STEP, or the path of a folder or file.")
    if name == "demo" or name.startswith("demo@"):
        folder = DEMO_FOLDER / f"step-{name.removeprefix('demo@')}"
        if name not in demo_names():
            steps = ", ".join(str(step) for step in demo_steps())
            raise CheckpointError(f"There is no bundled checkpoint {name!r}; the demo has steps {steps}. Use demo@STEP.")
        return _in_folder(name, folder)
    path = Path(name).expanduser()
    if path.is_dir():
        return _in_folder(name, path)
    if path.is_file():
        return _in_folder(name, path.parent, weights=path)
    raise CheckpointError(f"There is no file or folder {name!r} here; give demo, demo@STEP, or an existing path.")


def _in_folder(name: str, folder: Path, *, weights: Path | None = None) -> Located:
    found = weights or next((folder / file for file in _WEIGHTS if (folder / file).is_file()), None)
    if found is None:
        raise CheckpointError(
            f"The folder {folder.name!r} holds none of {', '.join(_WEIGHTS)}; give the folder of a checkpoint."
        )
    _check_whole(found)
    config, tokenizer = folder / "config.json", folder / "tokenizer.json"
    return Located(name, found, config if config.is_file() else None, tokenizer if tokenizer.is_file() else None)


def _check_whole(path: Path) -> None:
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path.name} is empty (0 bytes); copy it again.")
    with path.open("rb") as file:
        if file.read(len(_LFS_START)) == _LFS_START:
            raise CheckpointError(f"{path.name} is a Git LFS pointer, not the weights themselves; run `git lfs pull` there.")


def read_config(located: Located) -> Mapping[str, Any]:
    """config.json as a mapping, {} where there is none. Raises CheckpointError when it is no JSON object."""
    if located.config is None:
        return {}
    try:
        values = json.loads(located.config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{located.config.name} is no JSON that can be read ({error}).") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{located.config.name} holds a {type(values).__name__}; expected one JSON object.")
    return values  # pyright: ignore[reportUnknownVariableType]


def digest(located: Located) -> str:
    """sha256 over config, weights and tokenizer; files unchanged since the last call are not read again."""
    whole = hashlib.sha256()
    for part in _file_digests(located.files):
        whole.update(part.encode())
    return whole.hexdigest()


def checked_digest(located: Located, expected: str) -> str:
    """``digest``, compared with the one that a request carries ("" for none). Raises CheckpointError when it differs."""
    found = digest(located)
    if expected and expected != found:
        raise CheckpointError(
            f"The files of {located.name} are not those this request was made with "
            f"(digest {found[:12]}, expected {expected[:12]}); drop the digest to run the files that are here."
        )
    return found


def _file_digests(paths: Iterable[Path]) -> list[str]:
    return [_file_digest(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths]


def file_digest(path: Path) -> str:
    """sha256 of one file."""
    return _file_digest(path, path.stat().st_mtime_ns, path.stat().st_size)


@lru_cache(maxsize=256)
def _file_digest(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
