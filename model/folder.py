"""Which files of a folder make up its checkpoint: weights or their index, shards, config, tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from model.capture.place import is_recorded
from model.choice import INDEX_END, choose, unread_note
from model.files import MAX_INDEX, CheckpointError, check_inside, check_whole, read_json, shown

_TOKENIZERS = ("tokenizer.json", "meta.pkl")
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json")


@dataclass(frozen=True)
class FolderFiles:
    """The files that decide what a checkpoint computes; None or () for those that are not there.

    ``weights`` is the file, or the index, that leads to the tensors; ``parts`` are the files that hold them. ``notes``
    say what was left unread where there was a choice.
    """

    weights: Path
    parts: tuple[Path, ...]
    config: Path | None
    tokenizer: Path | None
    beside: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def in_folder(folder: Path, called: str, *, weights: Path | None = None) -> FolderFiles:
    """The checkpoint of a folder, which a person knows as ``called``; ``weights`` is the file to take where one was named.

    Raises CheckpointError when no file can be chosen, a shard is missing, or a file is empty, a pointer or leads away.
    """
    chosen, others = (weights, ()) if weights is not None else choose(folder, called)
    indexed = chosen.name.endswith(INDEX_END)
    if chosen.suffix == ".json" and not indexed:
        raise CheckpointError(f"{chosen.name} holds no weights; give the path of its folder, or of the weights file.")
    if is_recorded(chosen):
        raise CheckpointError(f"{chosen.name} is a prompt of a recorded run, no weights; open its folder as a run folder.")
    _check(chosen, folder)
    parts = _shards(chosen) if indexed else (chosen,)
    for part in parts:
        _check(part, folder)
    config = _there(folder / "config.json")
    tokenizer = next((path for name in _TOKENIZERS if (path := _there(folder / name))), None)
    beside = tuple(path for name in _BESIDE if (path := _there(folder / name)))
    notes = unread_note(chosen, tuple(path for path in others if path not in parts))
    return FolderFiles(chosen, parts, config, tokenizer, beside, notes)


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


def _there(path: Path) -> Path | None:
    if not path.is_file():
        return None
    check_inside(path, path.parent)
    return path


def _check(path: Path, folder: Path) -> None:
    check_inside(path, folder)
    check_whole(path)
