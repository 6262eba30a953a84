"""Session state: the run on screen and what of it is selected. Other modules reach session state through this one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import streamlit as st

from analysis import study
from analysis.chart import View
from analysis.exit_rule import ExitRule, default_rules
from app import cache, link
from app import job as jobs
from app.components.viewer import Click

WINDOW: Final = "says.window"
"""Key of the range of tokens in the map of what the model says."""

POINT_RULE: Final = "point.rule"
POINT: Final = "point"
"""Keys of the chosen point of a sweep: the rule's name, and the number of its threshold."""


@dataclass(frozen=True)
class Shown:
    """The run on screen. ``identity`` is equal for equal runs; ``request`` is None for a run folder."""

    identity: str
    run: study.Run
    request: study.Request | None


def get(key: str, default: Any = None) -> Any:
    """A value of this session, of a widget or kept; ``default`` where there is none."""
    return st.session_state.get(key, default)


def put(key: str, value: Any) -> None:
    """Keep a value for this session, or set a widget that has not appeared yet on this pass."""
    st.session_state[key] = value


# The run on screen -------------------------------------------------------------------------------------------------


def shown() -> Shown | None:
    """The run on screen; None while the first one of a link is on its way."""
    return get("_shown")


def problem() -> str:
    """Why the last run did not come about; "" when it did."""
    return str(get("_problem", ""))


def notice() -> str:
    """What was kept of the last run when it was cancelled; "" when it was not."""
    return str(get("_notice", ""))


def runs() -> int:
    """How many runs this session has made."""
    return int(get("_runs", 0))


def job() -> jobs.Job[Shown] | None:
    """The run on its way, None when there is none."""
    return get("_job")


def open_first(wanted: study.Request | None, *, folder: str = "") -> None:
    """On a session's first pass: show the bundled run, or what a link asks for instead, a run or a run folder."""
    if get("_opened"):
        return
    put("_opened", True)
    if folder:
        open_folder(folder)
    elif wanted is not None and wanted != study.bundled_request():
        launch(wanted)
    if shown() is None and job() is None:
        _show_bundled()


def _show_bundled() -> None:
    bundled = study.bundled_request()
    put("_shown", Shown(bundled.key(), study.run(bundled), bundled))


def launch(wanted: study.Request) -> None:
    """Start a run, unless one is on its way."""
    if job() is not None:
        return
    kept = cache.shelf()

    def work(progress: jobs.Progress, cancel: jobs.Cancel) -> Shown:
        try:
            return Shown(wanted.key(), cache.obtain(wanted, kept, progress=progress, cancel=cancel), wanted)
        except study.Cancelled as cancelled:
            raise jobs.Stopped(_stopped_words(len(cache.found(wanted, kept)), len(wanted.prompts))) from cancelled

    put("_problem", "")
    put("_notice", "")
    put("_job", jobs.start("run", work))


def _stopped_words(done: int, of: int) -> str:
    if done:
        return f"The run was stopped after {done} of {of} prompts. They are kept: press Run to go on from there."
    return "The run was stopped before a prompt was complete; what is on screen stays. Press Run to start again."


def settle() -> None:
    """Take over what a job has brought, before any widget of this pass exists."""
    current = job()
    if current is None or not current.over:
        return
    put("_job", None)
    put("_notice", current.notice)
    if current.result is None:
        put("_problem", current.problem)
        if shown() is None:
            _show_bundled()
        return
    put("_runs", runs() + 1)
    _show(current.result)


def open_folder(folder: str) -> None:
    """Show a run folder; on failure the run on screen stays."""
    try:
        study.check_allowed(Path(folder))
        path = Path(folder).expanduser()
        mark = path / "run.json"
        changed = mark.stat().st_mtime if mark.is_file() else math.nan
        _show(Shown(f"folder {path} {changed}", cache.folder(str(path), changed), None))
        put("_problem", "")
    except study.KNOWN_ERRORS as error:
        put("_problem", str(error))
    except RuntimeError:  # of expanduser
        put("_problem", f"The path {folder!r} begins with a home folder that is not here; give the whole path.")


def _show(new: Shown) -> None:
    """Put a run on screen; a selection that belonged to another run would point at other tokens."""
    old = shown()
    put("_shown", new)
    if old is not None and [t.labels for t in old.run.trajectories] != [t.labels for t in new.run.trajectories]:
        put("of", 0)
        put("token", new.run.trajectories[0].tokens - 1)
        put("loop", None)
        st.session_state.pop(WINDOW, None)


# What is looked at -------------------------------------------------------------------------------------------------


def selection() -> tuple[int, int | None, int, int | None]:
    """Selected prompt, token, block and loop, each within what the run on screen has."""
    current = shown()
    if current is None:
        return 0, None, 0, None
    prompt = _within(get("of"), len(current.run.trajectories)) or 0
    trajectory = current.run.trajectories[prompt]
    names = [block.name for block in trajectory.blocks]
    block = names.index(get("block")) if get("block") in names else len(names) - 1
    loop = get("loop")
    return prompt, _within(get("token"), trajectory.tokens), block, loop if isinstance(loop, int) else None


def _within(value: Any, count: int) -> int | None:
    return value if isinstance(value, int) and 0 <= value < count else None


def keep_rules(rules: tuple[ExitRule, ...]) -> None:
    """Remember the exit rules as the sidebar's widgets describe them."""
    put("_rules", rules)


def rules_known() -> bool:
    """Whether the widgets have said which rules are marked: not before the end of a session's first pass."""
    return get("_rules") is not None


def rules() -> tuple[ExitRule, ...]:
    """The exit rules that are marked, with their thresholds."""
    held = get("_rules")
    return held if held is not None else tuple(kind() for kind in default_rules().values())


def threshold_of(rule: str) -> float | None:
    """A rule's threshold as its widget or else the link has it; None where neither does."""
    key = f"{rule}.threshold"
    try:
        return float(get(key) if get(key) is not None else link.read(key))
    except ValueError:
        return None


def keep_among(key: str, choices: Sequence[str]) -> None:
    """Before a list appears: replace a choice that is not there any more by the first one."""
    held = get(key)
    if held is not None and held not in choices:
        put(key, choices[0])


def keep_within(key: str, count: int) -> None:
    """Before a number field appears: bring a number that belonged to something longer back into range."""
    held = get(key)
    if isinstance(held, int) and held >= count:
        put(key, count - 1)


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
    if click.rule is not None and click.point is not None:
        put(POINT_RULE, click.rule)
        put(POINT, click.point)
        put("_clicked", True)
        return
    if current is None:
        return
    prompt = selection()[0] if click.prompt is None else click.prompt
    trajectory = current.run.trajectories[prompt]
    if click.position is not None:
        put("token", click.position)
    if click.block in [block.name for block in trajectory.blocks]:
        put("block", click.block)
    if click.loop is not None and click.loop >= 1:
        put("loop", click.loop)
    put("_clicked", True)


def take_click() -> bool:
    """Whether a click has changed the selection since this was last asked."""
    return bool(st.session_state.pop("_clicked", False))


def clicked_in(key: str) -> Any:
    """The click that a viewer has just reported; for its callback."""
    return getattr(get(key), "clicked", None)
