"""What comes with the project, read from its files without torch: the demo's runs, and the cards of its checkpoints."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from model.capture.trajectory import Run, load_run
from model.card import Card, Flops
from model.locate import DEMO_FOLDER, CheckpointError, canonical, demo_names
from model.request import Request


@lru_cache(maxsize=1)
def bundled_request() -> Request:
    """The request of the run that the app opens on. Raises CheckpointError when the demo's runs are missing."""
    path = DEMO_FOLDER / "runs" / "first" / "run.json"
    if not path.is_file():
        raise CheckpointError("The bundled demo run is missing; build it with `make demo-runs`.")
    return _request_in(path)


@lru_cache(maxsize=1)
def bundled_others() -> tuple[tuple[str, Run], ...]:
    """Statistics of every bundled checkpoint on the first screen's prompt: (``step N``, run), in order of training."""
    folders = {name: DEMO_FOLDER / "runs" / name.replace("demo@", "step-") for name in demo_names()}
    return tuple((name.replace("demo@", "step "), load_run(folder)) for name, folder in folders.items() if folder.is_dir())


def bundled_run(request: Request) -> Run | None:
    """The run of an equal request, None where none comes with the project. Raises RunFormatError when it is damaged."""
    folder = _run_folders().get(request.key())
    return None if folder is None else load_run(folder)


def bundled_card(checkpoint: str) -> Card | None:
    """The card of a bundled checkpoint under any of its names, as it was written; None for every other checkpoint."""
    return _cards().get(canonical(checkpoint))


@lru_cache(maxsize=1)
def _run_folders() -> dict[str, Path]:
    """Request key -> folder of its run."""
    return {_request_in(path).key(): path.parent for path in sorted((DEMO_FOLDER / "runs").glob("*/run.json"))}


def _request_in(path: Path) -> Request:
    """The request in a run.json, without the arrays beside it."""
    return Request.from_json(json.loads(path.read_text(encoding="utf-8"))["request"])


@lru_cache(maxsize=1)
def _cards() -> dict[str, Card]:
    path = DEMO_FOLDER / "cards.json"
    if not path.is_file():
        return {}
    cards: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    for values in cards.values():
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = tuple(cast("list[Any]", value))
        flops: dict[str, Any] = values["flops"]
        flops["per_loop"] = tuple(flops["per_loop"])
        values["flops"] = Flops(**flops)
    return {name: Card(**values) for name, values in cards.items()}
