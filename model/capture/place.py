"""Which folders can take a run: not one in which a checkpoint lies, whose files the run's would be mistaken for."""

import re
from pathlib import Path

_RECORDED = re.compile(r"prompt-[0-9]{4,}\.safetensors")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_SETTINGS = ("config.json", "model.safetensors.index.json", "pytorch_model.bin.index.json")


def is_recorded(path: Path) -> bool:
    """Whether a file is one prompt of a run, by its name and the run.json beside it."""
    return _RECORDED.fullmatch(path.name) is not None and (path.parent / "run.json").is_file()


def checkpoint_in(folder: Path) -> str | None:
    """Name of a file that makes a folder a checkpoint's (its config or weights); None where a run can be written.

    What a run itself has written is no such file. A folder that is not there holds none.
    """
    if not folder.is_dir():
        return None
    for name in sorted(path.name for path in folder.iterdir() if path.is_file()):
        weights = name.lower().endswith(_WEIGHTS) and _RECORDED.fullmatch(name) is None
        if weights or name.lower() in _SETTINGS:
            return name
    return None
