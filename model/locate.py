"""Find a checkpoint by its name and digest its files; no torch, nothing is loaded."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.files import MAX_CONFIG, CheckpointError, check_allowed, file_digest, file_digests, read_json, server_path
from model.folder import in_folder
from model.uploads import PREFIX, upload_folder

__all__ = ["CheckpointError", "check_allowed", "file_digest", "server_path"]  # what belongs to this door, from files

DEMO_FOLDER = Path(__file__).resolve().parent.parent / "assets" / "demo"


@dataclass(frozen=True)
class Located:
    """A checkpoint's files. ``config`` and ``tokenizer`` are None where the weights file stands alone.

    Attributes:
        name: as it was given.
        weights: the weights file, or the index of a sharded checkpoint.
        config: config.json.
        tokenizer: tokenizer.json, or meta.pkl of a character-level model.
        parts: the files that hold tensors: the weights file itself, or the shards.
        beside: settings of the tokenizer (tokenizer_config.json, special_tokens_map.json), those that are there.
        notes: what a person should know about the choice of these files, such as weights beside them that are not read.
    """

    name: str
    weights: Path
    config: Path | None
    tokenizer: Path | None
    parts: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that decide what the checkpoint computes."""
        listed = (self.config, self.weights, *self.parts, self.tokenizer, *self.beside)
        return tuple(dict.fromkeys(path for path in listed if path is not None))


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
    """The files behind a name: ``demo``, ``demo@STEP``, ``upload:LABEL@DIGEST12``, a folder, or a weights file.

    Raises CheckpointError when there is no such thing, this server keeps the path closed, the files of a folder leave
    open which of them is meant, or a file is empty, only a pointer to its content, or a link that leads away.
    """
    name = canonical(name.strip())
    if not name:
        raise CheckpointError("No checkpoint was named; give demo, demo@STEP, or the path of a folder or file.")
    if name == "demo" or name.startswith("demo@"):
        if name not in demo_names():
            steps = ", ".join(str(step) for step in demo_steps())
            raise CheckpointError(f"There is no bundled checkpoint {name!r}; the demo has steps {steps}. Use demo@STEP.")
        return _located(name, DEMO_FOLDER / f"step-{name.removeprefix('demo@')}")
    if name.startswith(PREFIX):
        return _located(name, upload_folder(name), called=f"The upload {name.removeprefix(PREFIX).rpartition('@')[0]!r}")
    path = server_path(name)
    try:
        if path.is_dir():
            return _located(name, path)
        if path.is_file():
            return _located(name, path.parent, weights=path)
    except OSError as error:
        raise CheckpointError(f"{name!r} cannot be opened ({error.strerror}); check the path and its permissions.") from error
    raise CheckpointError(f"There is no file or folder {name!r} here; give demo, demo@STEP, or an existing path.")


def _located(name: str, folder: Path, *, weights: Path | None = None, called: str | None = None) -> Located:
    found = in_folder(folder, called or f"The folder {folder.resolve().name!r}", weights=weights)
    return Located(name, found.weights, found.config, found.tokenizer, found.parts, found.beside, found.notes)


def read_config(located: Located) -> Mapping[str, Any]:
    """config.json as a mapping, {} where there is none. Raises CheckpointError when it is no JSON object."""
    return {} if located.config is None else read_json(located.config, MAX_CONFIG)


def digest(located: Located, *, progress: Callable[[float], None] = lambda fraction: None) -> str:
    """sha256 over the checkpoint's files; those unchanged since the last call are not read again.

    ``progress`` is told the fraction of the bytes that is done.
    """
    whole = hashlib.sha256()
    for part in file_digests(located.files, progress=progress):
        whole.update(part.encode())
    return whole.hexdigest()


def checked_digest(located: Located, expected: str, *, progress: Callable[[float], None] = lambda fraction: None) -> str:
    """``digest``, compared with the one that a request carries ("" for none). Raises CheckpointError when it differs."""
    found = digest(located, progress=progress)
    if expected and expected != found:
        raise CheckpointError(
            f"The files of {located.name} are not those this request was made with "
            f"(digest {found[:12]}, expected {expected[:12]}); drop the digest to run the files that are here."
        )
    return found
