"""What is kept between two runs of the page: finished runs by their Request, bounded in bytes, and drawn charts."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import orjson
import streamlit as st

from analysis import study
from analysis.chart import Chart, ChartBuilder, View
from analysis.draw.plotly import figure_json
from analysis.exit_rule import ExitRule
from analysis.score_levels import Levels, score_levels
from analysis.sweep import Swept
from analysis.sweep_view import sweep_view
from analysis.thresholds import at_default
from app import job as jobs

SHELF_BYTES = 2 * 2**30
"""Bytes of runs that the process keeps for all its readers; the oldest ones go first."""


class Shelf:
    """Finished runs of single prompts by their resolved Request. Safe to use from several threads."""

    def __init__(self, limit: int = SHELF_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._runs: OrderedDict[study.Request, study.Run] = OrderedDict()

    def get(self, request: study.Request) -> study.Run | None:
        """The run of an equal request, None if it is not here (any more)."""
        with self._lock:
            found = self._runs.get(request)
            if found is not None:
                self._runs.move_to_end(request)
            return found

    def put(self, request: study.Request, run: study.Run) -> None:
        """Keep a run; older ones leave until all fit. One that is larger than the whole shelf is not kept."""
        with self._lock:
            self._runs[request] = run
            self._runs.move_to_end(request)
            while self._runs and self.nbytes > self._limit:
                self._runs.popitem(last=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays on the shelf."""
        return sum(run.nbytes for run in self._runs.values())


@st.cache_resource(max_entries=1, show_spinner=False)
def shelf() -> Shelf:
    """The one shelf of this process."""
    return Shelf()


def obtain(
    request: study.Request,
    kept: Shelf,
    *,
    progress: Callable[[str, float], None],
    cancel: Callable[[], bool],
    each: str = "prompt",
) -> study.Run:
    """The run of a resolved request: prompts that are on the shelf come from there, the others are run one by one.

    ``each`` is what a prompt is to the reader.
    """
    many = len(request.prompts)
    runs: list[study.Run] = []
    for number in range(many):
        single = request.for_prompt(number)
        found = kept.get(single)
        if found is None:
            found = study.run(single, progress=_of_many(progress, f"{each} {number + 1}", number, of=many), cancel=cancel)
            kept.put(single, found)
        runs.append(found)
    return study.Run(request=request.to_json(), trajectories=tuple(t for run in runs for t in run.trajectories))


def found(request: study.Request, kept: Shelf) -> tuple[tuple[study.Prompt, study.Run], ...]:
    """The prompts of a resolved request whose runs are on the shelf, with these, as a cancelled run leaves them."""
    each = ((prompt, kept.get(request.for_prompt(number))) for number, prompt in enumerate(request.prompts))
    return tuple((prompt, run) for prompt, run in each if run is not None)


def _of_many(progress: Callable[[str, float], None], which: str, number: int, *, of: int) -> Callable[[str, float], None]:
    def tell(stage: str, fraction: float) -> None:
        progress(stage if of == 1 else f"{which} of {of}: {stage}", (number + fraction) / of)

    return tell


@st.cache_resource(max_entries=8, show_spinner=False)
def folder(path: str, changed: float) -> study.Run:
    """A run folder; ``changed`` is the time at which its run.json was written, so that a new one is read again."""
    return study.load(Path(path))


@st.cache_resource(max_entries=32, ttl=15, show_spinner=False)
def estimate(key: str, _request: study.Request) -> study.Estimate:
    """What a run would take. It is asked again after a while, because free memory changes."""
    return study.estimate(_request)


@st.cache_resource(max_entries=64, show_spinner=False)
def warnings(key: str, _request: study.Request) -> tuple[str, ...]:
    """What is odd about the special tokens of a request's prompts; nothing where they cannot be read, as the run then says."""
    try:
        return study.warnings(_request)
    except study.KNOWN_ERRORS:
        return ()


@st.cache_resource(max_entries=1, show_spinner=False)
def devices() -> jobs.Job[tuple[str, ...]]:
    """The devices that a network can run on, as a job: finding them imports torch."""
    return jobs.start("search for devices", lambda progress, cancel: study.devices())


@st.cache_resource(
    scope="session", max_entries=1, show_spinner="Keeping the upload …", on_release=lambda kept: study.remove_upload(kept.name)
)
def upload(key: tuple[str, ...], _files: Sequence[tuple[str, BinaryIO]], *, limit: int) -> study.Upload:
    """An uploaded checkpoint in its private folder, removed when the browser leaves or another one is uploaded.

    ``key`` are the identities of the files: a browser that was away for a moment brings them again, and they are kept again.
    """
    return study.keep_upload(_files, limit_bytes=limit)


@st.cache_resource(max_entries=256, show_spinner=False)
def _levels(key: str, _run: study.Run, _rule: ExitRule, *, block: int) -> Levels | None:
    try:
        found = score_levels(_rule, _run.trajectories, block)
    except study.KNOWN_ERRORS:
        return None
    return found if len(found) else None


def levels(identity: str, run: study.Run, rule: ExitRule, *, block: int) -> Levels | None:
    """The quantiles of a rule's scores on a block of a run; None where it has none. The threshold changes nothing."""
    return _levels(f"{identity} {at_default(rule)!r}", run, rule, block=block)


@dataclass(frozen=True)
class Sweep:
    """Rules over their thresholds, and a sentence for each that the run cannot answer."""

    swept: tuple[Swept, ...]
    missing: tuple[str, ...]


@st.cache_resource(max_entries=16, show_spinner="Comparing the rules …")
def _sweep(key: str, _view: View, _flops: study.Flops | None) -> Sweep:
    return Sweep(*sweep_view(_view, flops=_flops))


def sweep(identity: str, view: View, *, flops: study.Flops | None) -> Sweep:
    """The view's rules over all thresholds; where their own thresholds stand changes nothing.

    Raises ChartError and ComparisonError with a sentence.
    """
    plain = replace(view, rules=tuple(at_default(rule) for rule in view.rules))
    return _sweep(f"{identity} {plain.block} {plain.rules!r} {flops!r}", plain, flops)


@dataclass(frozen=True)
class Drawn:
    """A chart and the JSON of its figure for the screen. ``height`` is the figure's, in pixels."""

    chart: Chart
    figure: str
    height: int


@st.cache_resource(max_entries=64, show_spinner="Computing the chart …")
def drawn(key: str, _builder: ChartBuilder, _view: View, *, dark: bool, revision: str, height: int | None) -> Drawn:
    """Chart and figure of a builder and a view. ``key`` says in words what they are made of, for arrays are no keys.

    ``revision``: as long as it stays, so do zoom and camera. ``height`` None is the figure's own.
    """
    chart = _builder.build(_view)
    figure = figure_json(chart, dark=dark)
    figure["layout"]["uirevision"] = revision
    if height is not None:
        figure["layout"]["height"] = height
    return Drawn(chart=chart, figure=orjson.dumps(figure).decode(), height=figure["layout"]["height"])
