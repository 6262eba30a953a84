"""A text run in windows, one run folder each, so that an interrupted pass goes on where it was."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis import study
from app.options import OptionError
from app.progress import ProgressBar

_INDEX = "request.json"
_WORDS = {"prompts": "the text, --tokens or --window", "quantities": "what the rules need recorded"}


def windows(ids: tuple[int, ...], *, tokens: int, length: int, text: object) -> tuple[study.Prompt, ...]:
    """The first ``tokens`` ids of a text in prompts of ``length``; a rest of one token has no next one and is dropped.

    Raises OptionError, naming ``text``, when it is shorter than two tokens.
    """
    used = ids[:tokens]
    parts = [used[at : at + length] for at in range(0, len(used), length)]
    kept = tuple(study.Prompt(ids=part) for part in parts if len(part) > 1)
    if not kept:
        raise OptionError(f"{text} has {len(ids)} tokens; give a text of at least 2.")
    return kept


def recorded(request: study.Request, folder: Path, *, overwrite: bool) -> Iterator[study.Trajectory]:
    """Run every prompt of a resolved request, or read it from ``folder`` where an earlier call has left it.

    Each is saved before the next one runs. Raises OptionError when the folder holds the windows of another request,
    unless it may be overwritten.
    """
    _claim(request, folder, overwrite=overwrite)
    show = ProgressBar(len(request.prompts))
    try:
        for number in range(len(request.prompts)):
            tell = show.prompt(number)
            found = window(request, number, folder, run=lambda one, tell=tell: study.run(one, progress=tell))
            yield from found.trajectories
    finally:
        show.close()


def window(request: study.Request, number: int, folder: Path, *, run: Callable[[study.Request], study.Run]) -> study.Run:
    """One prompt of a resolved request, as an earlier call has left it in ``folder``, or run and saved there."""
    part, one = folder / f"{number:04d}", request.for_prompt(number)
    found = _there(part, one)
    if found is None:
        found = run(one)
        part.parent.mkdir(parents=True, exist_ok=True)
        _save(found, part)
    return found


def done(folder: Path) -> int:
    """Number of windows that are in the folder."""
    return len(list(folder.glob("[0-9][0-9][0-9][0-9]*/run.json")))


def _claim(request: study.Request, folder: Path, *, overwrite: bool) -> None:
    index = folder / _INDEX
    if index.is_file():
        try:
            values = json.loads(index.read_text(encoding="utf-8"))
            held, before = str(values["key"]), dict(values["request"])
        except (ValueError, KeyError, TypeError):
            held, before = "", {}
        if held == request.key():
            return
        if not overwrite and done(folder):
            raise OptionError(
                f"{folder} holds windows of another request ({_differences(before, request)}); name another "
                "--out, give the options of that request to go on with it, or add --overwrite to replace it."
            )
        shutil.rmtree(folder)
    elif folder.exists() and any(folder.iterdir()):
        raise OptionError(f"{folder} holds files that are no windows of a sweep; name another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    values = {"key": request.key(), "request": request.to_json()}
    index.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _differences(before: Mapping[str, Any], request: study.Request) -> str:
    """What two requests differ in, with both values where they are short."""
    now = request.to_json()
    said: list[str] = []
    for name in sorted({*before, *now}):
        there, here = before.get(name), now.get(name)
        if there == here or name == "digest":
            continue
        short = len(f"{there}{here}") < 60
        said.append(f"{_WORDS.get(name, name)}{f': there {there}, here {here}' if short else ''}")
    return "; ".join(said) or "files of the checkpoint"


def _there(part: Path, request: study.Request) -> study.Run | None:
    """The window as it was saved; None where it is missing, damaged or of another request."""
    try:
        found = study.load(part)
    except study.RunFormatError:
        return None
    return found if found.request == request.to_json() else None


def _save(run: study.Run, part: Path) -> None:
    # Beside its place first: an interrupted save leaves no folder that looks like a window.
    beside = part.with_name(f"new-{part.name}")
    shutil.rmtree(beside, ignore_errors=True)
    study.save(run, beside)
    shutil.rmtree(part, ignore_errors=True)
    beside.rename(part)
