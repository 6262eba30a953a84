"""Which files of a folder make up its checkpoint: weights or their index, shards, config, tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from model.files import MAX_INDEX, CheckpointError, check_inside, check_whole, read_json, shown

INDEX_END = ".index.json"
_TOKENIZERS = ("tokenizer.json", "meta.pkl")
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json")
# In this order; a pattern counts where exactly one file has it.
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


@dataclass(frozen=True)
class FolderFiles:
    """The files that decide what a checkpoint computes; None or () for those that are not there.

    ``weights`` is the file, or the index, that leads to the tensors; ``parts`` are the files that hold them.
    """

    weights: Path
    parts: tuple[Path, ...]
    config: Path | None
    tokenizer: Path | None
    beside: tuple[Path, ...]


def in_folder(folder: Path, *, weights: Path | None = None) -> FolderFiles:
    """The checkpoint of a folder; ``weights`` is the file to take where a person named one.

    Raises CheckpointError when no file can be chosen, a shard is missing, or a file is empty, a pointer or leads away.
    """
    chosen = weights or _choose(folder)
    indexed = chosen.name.endswith(INDEX_END)
    if chosen.suffix == ".json" and not indexed:
        raise CheckpointError(f"{chosen.name} holds no weights; give the path of its folder, or of the weights file.")
    _check(chosen, folder)
    parts = _shards(chosen) if indexed else (chosen,)
    for part in parts:
        _check(part, folder)
    config = _there(folder / "config.json")
    tokenizer = next((path for name in _TOKENIZERS if (path := _there(folder / name))), None)
    beside = tuple(path for name in _BESIDE if (path := _there(folder / name)))
    return FolderFiles(chosen, parts, config, tokenizer, beside)


def read_index(index: Path) -> Mapping[str, str]:
    """Tensor name -> name of the shard that holds it. Raises CheckpointError when the index is none, or leads away."""
    found = read_json(index, MAX_INDEX).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise CheckpointError(f"{index.name} has no weight_map; expected the index of a sharded checkpoint.")
    weight_map = cast("dict[str, Any]", found)
    odd = [shard for shard in weight_map.values() if not isinstance(shard, str) or not _plain_name(shard)]
    if odd:
        raise CheckpointError(f"{index.name} names the shard '{shown(odd[0])}'; expected the name of a file in its own folder.")
    return weight_map


def _plain_name(shard: str) -> bool:
    path = PurePosixPath(shard)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\\" not in shard and shard.isprintable()


def _shards(index: Path) -> tuple[Path, ...]:
    shards = tuple(index.parent / name for name in dict.fromkeys(read_index(index).values()))
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise CheckpointError(
            f"{index.name} names {len(shards)} shards and {len(missing)} of them are not there "
            f"({', '.join(missing[:3])}); copy them into the same folder."
        )
    return shards


def _choose(folder: Path) -> Path:
    left: set[Path] = set()
    for patterns in _WEIGHTS:
        found = {path for pattern in patterns.split() for path in folder.glob(pattern) if path.is_file()}
        found = {path for path in found if not any(path.match(other) for other in _NO_WEIGHTS)}
        if len(found) == 1:
            return found.pop()
        left |= found
    if left:
        names = sorted(path.name for path in left)
        raise CheckpointError(
            f"The folder {folder.name!r} holds {len(names)} files that may be the weights "
            f"({', '.join(names[:5])}{' and more' if len(names) > 5 else ''}); give the path of one file."
        )
    raise CheckpointError(
        f"The folder {folder.name!r} holds no weights (model.safetensors, pytorch_model.bin, ckpt.pt or the like); "
        "give the folder of a checkpoint."
    )


def _there(path: Path) -> Path | None:
    if not path.is_file():
        return None
    check_inside(path, path.parent)
    return path


def _check(path: Path, folder: Path) -> None:
    check_inside(path, folder)
    check_whole(path)
