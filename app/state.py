"""Session state and query parameters: nothing else reads or writes them. Builds the Request and the View."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import streamlit as st

from analysis import study
from analysis.chart import Camera, View
from analysis.draw.plotly import camera_from_eye, eye
from analysis.exit_rule import ExitRule, exit_rules
from analysis.prompts import read_prompts
from app import cache, reading
from app import job as jobs
from app.components.viewer import Click, Look

Source = Literal["type", "upload", "folder"]
SOURCES: Final[Mapping[Source, str]] = {"type": "Type", "upload": "Upload", "folder": "Run folder"}
WINDOW: Final = "says.window"
"""Key of the range of tokens in the map of what the model says."""

_QUERY_FILE = "file"
_QUERY_CAMERA = "camera"
_QUERY_PROMPT = "prompt"
_QUERY_DIGEST = "prompt_digest"
_LINK_CHARACTERS = 2_000
"""Longest prompt that a link carries in full; browsers and mail programs cut longer addresses."""


@dataclass(frozen=True)
class Shown:
    """The run on screen. ``identity`` is equal for equal runs; ``request`` is None for a run folder."""

    identity: str
    run: study.Run
    request: study.Request | None


def _get(key: str, default: Any = None) -> Any:
    return st.session_state.get(key, default)


def _put(key: str, value: Any) -> None:
    st.session_state[key] = value


# What the sidebar's widgets say ------------------------------------------------------------------------------------


def request() -> study.Request:
    """The Request that the sidebar describes. Raises one of study.KNOWN_ERRORS with a sentence for the reader."""
    kind = cast("study.InitialKind", _get("start", "trained"))
    std, file = _get("std"), str(_get("start_file") or "").strip()
    if kind == "file" and not file:
        raise study.RequestError("No file was named for the initial state; give the path of a .npz file.")
    return study.resolve(
        study.Request(
            checkpoint=str(_get("checkpoint") or ""),
            prompts=_prompts(),
            loops=reading.loops(str(_get("loops", ""))),
            initial_state=study.InitialState(
                kind, std=float(std or 0.0) if kind == "normal" else None, path=file if kind == "file" else None
            ),
            seed=int(_get("seed") or 0),
            dtype=_get("dtype", "float32"),
            lenses=tuple(lens for lens in ("logit", "coda") if lens in _get("lenses", ())),
            record=study.Record(
                every=int(_get("every") or 1),
                positions=reading.token_range(str(_get("store") or "")),
                states=not _get("no_states", False),
            ),
        )
    )


def _prompts() -> tuple[study.Prompt, ...]:
    if source() == "upload":
        held = uploaded()
        if held is not None:
            return held[1]
        file = st.query_params.get(_QUERY_FILE, "")
        if file:
            raise study.RequestError(f"This link goes with the prompt file {file}, which a link cannot carry; upload it.")
        raise study.RequestError("No prompt file was given; upload a .txt, .jsonl or .csv file.")
    return (study.Prompt(text=str(_get("prompt", ""))),)


def seed_prompt(default: str) -> None:
    """Before the prompt's field appears for the first time: fill it from the link, else with the default."""
    if "prompt" in st.session_state:
        return
    _put("prompt", st.query_params.get(_QUERY_PROMPT, default))
    if _QUERY_PROMPT not in st.query_params:
        _put("_prompt_missing", st.query_params.get(_QUERY_DIGEST, ""))


def keep_prompt(default: str) -> str:
    """Put the prompt into the link, a long one by its digest; a sentence while a link's long prompt is missing."""
    text = str(_get("prompt", ""))
    if _get("_prompt_missing") and text == default:
        return f"This link goes with a prompt of {_get('_prompt_missing')}, too long for a link; paste it into the field."
    _put("_prompt_missing", "")
    wanted: dict[str, str] = {}
    if len(text) > _LINK_CHARACTERS:
        wanted[_QUERY_DIGEST] = f"{len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    elif text != default:
        wanted[_QUERY_PROMPT] = text
    for name in (_QUERY_PROMPT, _QUERY_DIGEST):
        if name in wanted:
            st.query_params[name] = wanted[name]
        elif name in st.query_params:
            del st.query_params[name]
    return ""


def source() -> Source:
    """Where the prompts come from."""
    return cast("Source", _get("input") or "type")


def folder() -> str:
    """The path of the run folder that the reader named."""
    return str(_get("folder") or "").strip()


def keep_upload(name: str, data: bytes) -> None:
    """Remember an uploaded prompt file. Raises PromptError with a sentence; what was there before stays."""
    digest = hashlib.sha256(data).hexdigest()[:12]
    held = uploaded()
    if held is None or held[2] != digest or held[0] != name:
        _put("_uploaded", (name, read_prompts(name, data), digest))
    st.query_params[_QUERY_FILE] = f"{name} ({digest})"


def uploaded() -> tuple[str, tuple[study.Prompt, ...], str] | None:
    """Name, prompts and digest of the prompt file, None when there is none."""
    return _get("_uploaded")


# The run on screen -------------------------------------------------------------------------------------------------


def shown() -> Shown | None:
    """The run on screen; None while the first one of a link is on its way."""
    return _get("_shown")


def problem() -> str:
    """Why the last run did not come about; "" when it did."""
    return str(_get("_problem", ""))


def runs() -> int:
    """How many runs this session has made."""
    return int(_get("_runs", 0))


def job() -> jobs.Job | None:
    """The run on its way, None when there is none."""
    return _get("_job")


def open_first(wanted: study.Request | None) -> None:
    """On a session's first pass: show the bundled run, or what a link asks for instead."""
    if _get("_opened"):
        return
    _put("_opened", True)
    if source() == "folder" and folder():
        open_folder()
    elif wanted is not None and wanted != study.bundled_request():
        launch(wanted)
    if shown() is None and job() is None:
        _show_bundled()


def _show_bundled() -> None:
    bundled = study.bundled_request()
    _put("_shown", Shown(bundled.key(), study.run(bundled), bundled))


def launch(wanted: study.Request) -> None:
    """Start a run, unless one is on its way."""
    if job() is not None:
        return
    kept = cache.shelf()
    _put("_problem", "")
    _put("_job", jobs.start(wanted, lambda progress, cancel: cache.obtain(wanted, kept, progress=progress, cancel=cancel)))


def settle() -> None:
    """Take over what a job has brought, before any widget of this pass exists."""
    current = job()
    if current is None or not current.over:
        return
    _put("_job", None)
    if current.result is None:
        _put("_problem", current.problem)
        if shown() is None:
            _show_bundled()
        return
    _put("_runs", runs() + 1)
    _show(Shown(current.request.key(), current.result, current.request))


def open_folder() -> None:
    """Show the run folder that the reader named; on failure the run on screen stays."""
    path = Path(folder()).expanduser()
    try:
        mark = path / "run.json"
        changed = mark.stat().st_mtime if mark.is_file() else math.nan
        _show(Shown(f"folder {path} {changed}", cache.folder(str(path), changed), None))
        _put("_problem", "")
    except study.KNOWN_ERRORS as error:
        _put("_problem", str(error))


def _show(new: Shown) -> None:
    """Put a run on screen; a selection that belonged to another run would point at other tokens."""
    old = shown()
    _put("_shown", new)
    if old is not None and [t.labels for t in old.run.trajectories] != [t.labels for t in new.run.trajectories]:
        _put("of", 0)
        _put("token", new.run.trajectories[0].tokens - 1)
        _put("loop", None)
        st.session_state.pop(WINDOW, None)


# What is looked at -------------------------------------------------------------------------------------------------


def selection() -> tuple[int, int | None, int, int | None]:
    """Selected prompt, token, block and loop, each within what the run on screen has."""
    current = shown()
    if current is None:
        return 0, None, 0, None
    prompt = _within(_get("of"), len(current.run.trajectories)) or 0
    trajectory = current.run.trajectories[prompt]
    names = [block.name for block in trajectory.blocks]
    block = names.index(_get("block")) if _get("block") in names else len(names) - 1
    loop = _get("loop")
    return prompt, _within(_get("token"), trajectory.tokens), block, loop if isinstance(loop, int) else None


def _within(value: Any, count: int) -> int | None:
    return value if isinstance(value, int) and 0 <= value < count else None


def keep_rules(rules: tuple[ExitRule, ...]) -> None:
    """Remember the exit rules as the sidebar's widgets describe them."""
    _put("_rules", rules)


def rules() -> tuple[ExitRule, ...]:
    """The exit rules that are marked, with their thresholds."""
    held = _get("_rules")
    return held if held is not None else tuple(kind() for kind in exit_rules().values())


def view(*, overlay: bool = False) -> View | None:
    """What the charts show; None while there is no run. ``overlay`` adds the demo's checkpoints along training."""
    current = shown()
    if current is None:
        return None
    prompt, token, block, loop = selection()
    return View(
        run=current.run,
        prompt=prompt,
        token=token,
        block=block,
        loop=loop,
        rules=rules(),
        others=study.bundled_others() if overlay else (),
    )


def select(click: Click) -> None:
    """Follow a click on a chart: whatever keys it has become the selection. Call it from a callback."""
    current = shown()
    if current is None:
        return
    prompt = selection()[0] if click.prompt is None else click.prompt
    trajectory = current.run.trajectories[prompt]
    if click.position is not None:
        _put("token", click.position)
    if click.block in [block.name for block in trajectory.blocks]:
        _put("block", click.block)
    if click.loop is not None and click.loop >= 1:
        _put("loop", click.loop)
    _put("_clicked", True)


def take_click() -> bool:
    """Whether a click has changed the selection since this was last asked."""
    return bool(st.session_state.pop("_clicked", False))


def clicked_in(key: str) -> Any:
    """The click that a viewer has just reported; for its callback."""
    return getattr(_get(key), "clicked", None)


# How it is looked at -----------------------------------------------------------------------------------------------


def dark() -> bool:
    """Whether the page is dark: as a figure saw it last, else as the browser said when it connected."""
    seen = _get("_dark")
    return bool(seen) if seen is not None else st.context.theme.type == "dark"


def keep_dark(seen: bool | None) -> bool:
    """Remember what a figure saw; True when that is news."""
    if seen is None or seen == dark():
        return False
    _put("_dark", seen)
    return True


def look(name: str, revision: str) -> Look | None:
    """Zoom and camera of a figure as they were left, as long as it still shows the same (``revision``)."""
    held = cast("dict[str, tuple[str, Look]]", _get("_looks", {})).get(name)
    if held is not None and held[0] == revision:
        return held[1]
    seen = camera(name)
    return None if seen is None else Look(eyes={"scene": eye(seen)})


def keep_look(name: str, revision: str, seen: Look) -> None:
    """Remember zoom and camera; a camera also goes into the URL."""
    held = cast("dict[str, tuple[str, Look]]", _get("_looks", {}))
    _put("_looks", held | {name: (revision, seen)})
    for first in seen.eyes.values():
        found = camera_from_eye(first)
        st.query_params[f"{name}.{_QUERY_CAMERA}"] = f"{found.azimuth:g},{found.elevation:g}"
        break


def camera(name: str) -> Camera | None:
    """The camera of a figure as it stands in the URL; None when it was never turned."""
    azimuth, sign, elevation = st.query_params.get(f"{name}.{_QUERY_CAMERA}", "").partition(",")
    try:
        found = Camera(float(azimuth), float(elevation)) if sign else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found.azimuth) else None
