"""Which file of a folder is taken for its weights, and what a person is told where none can be."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from model.capture.place import is_recorded
from model.files import CheckpointError

INDEX_END = ".index.json"
# In this order; a pattern counts where exactly one file has it, in small or capital letters.
_WEIGHTS = (
    "model.safetensors.index.json",
    "model.safetensors",
    "*.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "ckpt.pt",
    "model.pt",
    "*.pt *.pth *.ckpt *.bin",
)
# What trainers write beside the weights.
_NO_WEIGHTS = ("training_args*", "optimizer*", "scheduler*", "scaler*", "rng_state*", "random_states*", "trainer_state*")

_DEPTH = 3  # of a whole Hugging Face cache: models--a--b/snapshots/REVISION
_MAX_LOOKED_AT = 500
_NAMED = 4


def choose(folder: Path, called: str) -> tuple[Path, tuple[Path, ...]]:
    """The weights file or index of a folder, and the files beside it that look like weights too.

    ``called`` is the folder as a person knows it, as the beginning of a sentence: "The folder 'x'".

    Raises CheckpointError when no file looks like weights, or several do and none has a name that stands out.
    """
    files = _weights(folder)
    for pattern in _WEIGHTS:
        found = [path for path in files if _matches(path, pattern)]
        if len(found) == 1:
            return found[0], tuple(path for path in files if path != found[0])
    if files:
        raise CheckpointError(
            f"{called} holds {len(files)} files that may be the weights "
            f"({', '.join(path.name for path in files[:5])}{' and more' if len(files) > 5 else ''}); give the path of one file."
        )
    raise CheckpointError(_nothing(folder, called))


def unread_note(taken: Path, others: tuple[Path, ...]) -> tuple[str, ...]:
    """What to say of files beside the weights that look like weights and are not read; () where there are none."""
    names = [path.name for path in others if not path.name.endswith(INDEX_END)]
    if not names:
        return ()
    listed = f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
    return (f"The weights are those of {taken.name}; beside it, not read: {listed}.",)


def _weights(folder: Path) -> list[Path]:
    """Files that look like weights or their index, by name; a run recorded in the same folder is none."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    looking = [path for path in files if any(_matches(path, pattern) for pattern in _WEIGHTS)]
    return [path for path in looking if not any(_matches(path, other) for other in _NO_WEIGHTS) and not is_recorded(path)]


def _matches(path: Path, patterns: str) -> bool:
    return any(fnmatchcase(path.name.lower(), pattern) for pattern in patterns.split())


def _nothing(folder: Path, called: str) -> str:
    below = list(_below(folder))
    if below:
        names = [path.relative_to(folder).as_posix() for path in below[:_NAMED]]
        more = " and more" if len(below) > _NAMED else ""
        return f"{called} holds no weights itself; give the path of a folder in it that does: {', '.join(names)}{more}."
    if (folder / "run.json").is_file():
        return f"{called} holds a run and no weights; open it as a run folder, or give the folder of a checkpoint."
    wanted = "model.safetensors, pytorch_model.bin, ckpt.pt or the like"
    return f"{called} holds no weights ({wanted}); give the folder of a checkpoint."


def _below(folder: Path) -> Iterator[Path]:
    """Folders with weights in them, at most ``_NAMED`` + 1; links are not followed, and the search is short."""
    waiting, looked, found = [(folder, 0)], 0, 0
    while waiting and looked < _MAX_LOOKED_AT and found <= _NAMED:
        parent, depth = waiting.pop(0)
        looked += 1
        try:
            if depth and _weights(parent):
                found += 1
                yield parent
            elif depth < _DEPTH:
                inner = (path for path in parent.iterdir() if path.is_dir() and not path.is_symlink())
                waiting += [(path, depth + 1) for path in sorted(inner) if not path.name.startswith(".")]
        except OSError:  # a folder that may not be read is not proposed
            continue
