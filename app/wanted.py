"""What the sidebar's widgets say: the prompts, the checkpoint with its card, and the Request that they describe."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from analysis import study
from analysis.needs import quantities_of
from analysis.prompts import parse_ids, read_prompts
from app import cache, chosen, link, reading, state
from app import job as jobs

Source = Literal["type", "ids", "upload", "folder"]
SOURCES: Final[Mapping[Source, str]] = {"type": "Type", "ids": "Ids", "upload": "Upload", "folder": "Run folder"}
Typed = Literal["prompt", "ids"]
"""Fields for a prompt: text, or token ids. Key of the widget and name in the link are the same."""

_Named = tuple[str, study.NamedBlock | None]
"""A checkpoint, and the block that the reader named in it."""

_QUERY_FILE = "file"
_QUERY_DEVICE = "device"
_DEVICE = re.compile(r"[a-z]{1,12}(:\d{1,3})?")
_LINK_CHARACTERS = 2_000
"""Longest prompt that a link carries in full; browsers and mail programs cut longer addresses."""

_PATIENCE = 30.0
_GLANCE = 0.5
"""Seconds that a page waits for a card before it shows how far that is: bundled ones are an index, others may be large."""


@dataclass(frozen=True)
class Reading:
    """The card of the checkpoint that was named, or why there is none: a problem, or a job that still reads it."""

    card: study.Card | None = None
    problem: str = ""
    job: jobs.Job[study.Card] | None = None


def request() -> study.Request:
    """The Request that the sidebar describes. Raises one of study.KNOWN_ERRORS with a sentence for the reader."""
    get = state.get
    std = get("std")
    kind = cast("study.InitialKind", get("start", "trained"))
    return study.resolve(
        study.Request(
            checkpoint=chosen.name(),
            prompts=_prompts(),
            loops=reading.loops(str(get("loops", ""))),
            initial_state=study.InitialState(
                kind, std=float(std or 0.0) if kind == "normal" else None, path=_start_file() if kind == "file" else None
            ),
            seed=int(get("seed") or 0),
            dtype=get("dtype", "float32"),
            device=get(_QUERY_DEVICE) or "cpu",
            lenses=tuple(lens for lens in ("logit", "coda") if lens in get("lenses", ())),
            record=study.Record(
                every=int(get("every") or 1),
                positions=reading.token_range(str(get("store") or "")),
                states=not get("no_states", False),
            ),
            named=named_block(),
            quantities=quantities_of(state.rules()),
        )
    )


def _start_file() -> str:
    file = str(state.get("start_file") or "").strip()
    if not file:
        raise study.RequestError("No file was named for the initial state; give the path of a .npz file.")
    study.check_allowed(Path(file))
    try:
        return str(Path(file).expanduser())
    except RuntimeError as error:
        raise study.RequestError(
            f"The path {file!r} begins with a home folder that is not here; give the whole path."
        ) from error


# Prompts -----------------------------------------------------------------------------------------------------------


def source() -> Source:
    """Where the prompts come from."""
    return cast("Source", state.get("input") or "type")


def folder() -> str:
    """The path of the run folder that the reader named."""
    return str(state.get("folder") or "").strip()


def _prompts() -> tuple[study.Prompt, ...]:
    if source() == "upload":
        held = prompt_file()
        if held is not None:
            return held[1]
        file = link.read(_QUERY_FILE)
        if file:
            raise study.RequestError(f"This link goes with the prompt file {file}, which a link cannot carry; upload it.")
        raise study.RequestError("No prompt file was given; upload a .txt, .jsonl or .csv file.")
    if source() == "ids":
        return (study.Prompt(ids=parse_ids("Token ids", str(state.get("ids") or ""))),)
    return (study.Prompt(text=str(state.get("prompt", ""))),)


def seed_typed(field: Typed, default: str) -> None:
    """Before a prompt's field appears for the first time: fill it from the link, else with the default."""
    if state.get(field) is not None:
        return
    state.put(field, link.read(field, default))
    if not link.has(field):
        state.put(f"_{field}_missing", link.read(_digest_name(field)))


def keep_typed(field: Typed, default: str) -> str:
    """Put a prompt into the link, a long one by its digest; a sentence while a link's long prompt is missing."""
    text, missing = str(state.get(field, "")), state.get(f"_{field}_missing")
    if missing and text == default:
        return f"This link goes with a prompt of {missing}, too long for a link; paste it into the field."
    state.put(f"_{field}_missing", "")
    wanted: dict[str, str] = {}
    if len(text) > _LINK_CHARACTERS:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        wanted[_digest_name(field)] = f"{len(text)} characters, sha256 {digest}"
    elif text != default:
        wanted[field] = text
    for name in (field, _digest_name(field)):
        if name in wanted:
            link.keep(name, wanted[name])
        else:
            link.drop(name)
    return ""


def _digest_name(field: Typed) -> str:
    return f"{field}_digest"


def keep_prompt_file(name: str, data: bytes) -> None:
    """Remember an uploaded prompt file. Raises PromptError with a sentence; what was there before stays."""
    digest = hashlib.sha256(data).hexdigest()[:12]
    held = prompt_file()
    if held is None or held[2] != digest or held[0] != name:
        state.put("_prompt_file", (name, read_prompts(name, data), digest))
    link.keep(_QUERY_FILE, f"{name} ({digest})")


def prompt_file() -> tuple[str, tuple[study.Prompt, ...], str] | None:
    """Name, prompts and digest of the prompt file, None when there is none."""
    return state.get("_prompt_file")


# Checkpoint --------------------------------------------------------------------------------------------------------


def named_block() -> study.NamedBlock | None:
    """The looped block of a transformers model as the reader named it, None where nothing was named."""
    block, count, norm, head = (str(state.get(f"named_{part}") or "").strip() for part in ("block", "count", "norm", "head"))
    return study.NamedBlock(block, count=count, norm=norm, head=head) if block else None


def read_card() -> Reading:
    """The card of the chosen checkpoint. A large one is read in a thread, as its files are hashed for its digest."""
    what = chosen.name(), named_block()
    if not what[0]:
        return Reading(problem="No checkpoint was named; type the path of a folder or of a weights file.")
    held: tuple[_Named, study.Card] | None = state.get("_card")
    if held is not None and held[0] == what:
        return Reading(card=held[1])
    job = _reading(what)
    if not job.over:
        return Reading(job=job)
    state.put("_reading", None)
    if job.result is None:
        return Reading(problem=chosen.spoken(job.problem))
    state.put("_card", (what, job.result))
    return Reading(card=job.result)


def _reading(what: _Named) -> jobs.Job[study.Card]:
    """The job that reads the card of this checkpoint; one for another checkpoint is given up."""
    pending: tuple[_Named, jobs.Job[study.Card]] | None = state.get("_reading")
    if pending is not None and pending[0] == what:
        return pending[1]
    if pending is not None:
        pending[1].cancel()
    job = jobs.start("reading of the checkpoint", lambda progress, cancel: _card(what, progress, cancel), stage="reading")
    state.put("_reading", (what, job))
    job.wait(_PATIENCE if what[0] in study.checkpoints() else _GLANCE)
    return job


def _card(what: _Named, progress: jobs.Progress, cancel: jobs.Cancel) -> study.Card:
    def tell(stage: str, fraction: float) -> None:
        if cancel():
            raise study.Cancelled("The checkpoint is not read any more; another one was chosen.")
        progress(stage, fraction)

    name, named = what
    return study.card(name, named=named, progress=tell)


def forget_card(digest: str) -> None:
    """Read the card again on the next pass if it is of other files than those with this digest."""
    held: tuple[_Named, study.Card] | None = state.get("_card")
    if held is not None and held[1].digest != digest:
        state.put("_card", None)


# Device ------------------------------------------------------------------------------------------------------------


def devices(*, look: bool) -> tuple[tuple[str, ...], bool]:
    """Devices to choose from, and whether more may turn up; they are only looked for when ``look`` says so.

    Looking imports torch, which takes seconds. What a link asks for is among them: if it is not usable, the run says so.
    """
    found: tuple[str, ...] = state.get("_devices") or ()
    searching = False
    if look and not found:
        job = cache.devices()
        searching = not job.over
        if job.over:
            found = job.result or ("cpu",)
            state.put("_devices", found)
    asked = link.read(_QUERY_DEVICE)
    named = (asked,) if _DEVICE.fullmatch(asked) else ()
    return tuple(dict.fromkeys(("cpu", *found, *named))), searching
