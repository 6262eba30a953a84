"""The viewer: a figure that keeps its zoom and its camera while its numbers change, and tells what was clicked."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import plotly
from streamlit.components.v2 import component

HERE = Path(__file__).parent
STATIC = HERE.parent / "static"

_HTML = """
<div class="loopscope-scroll" tabindex="0"><div class="loopscope-figure"></div></div>
"""
_CSS = """
.loopscope-scroll { width: 100%; overflow-x: auto; }
.loopscope-figure { width: 100%; overflow: hidden; }
.loopscope-figure .modebar-container { z-index: 5; }
"""
# Registered at import because Streamlit asks for one registration per name and process.
_mount = component(
    "loopscope_viewer",
    html=_HTML,
    css=_CSS,
    js=(HERE / "viewer.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


@dataclass(frozen=True)
class Look:
    """What a reader changed by hand.

    Attributes:
        ranges: axis name -> shown range, for the axes that were zoomed.
        eyes: scene name -> position of the eye, for three-dimensional figures.
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    eyes: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])


@dataclass(frozen=True)
class Click:
    """The keys of a clicked mark; None where it has no such key. ``block`` is the block's name.

    ``rule`` and ``point`` are those of a point of a sweep: the rule's name and the number of the threshold.
    """

    prompt: int | None
    position: int | None
    block: str | None
    loop: int | None
    rule: str | None = None
    point: int | None = None


@dataclass(frozen=True)
class Seen:
    """What the browser told: the look, None until it changed, and whether the page is dark, None until it differs."""

    look: Look | None
    dark: bool | None


def library() -> str:
    """Put plotly.js of the installed plotly where the server serves files from, and give its address on the page."""
    name = f"plotly-{version('plotly')}.min.js"
    target = STATIC / name
    if not target.is_file():
        STATIC.mkdir(exist_ok=True)
        half = target.with_suffix(".part")
        shutil.copyfile(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", half)
        half.replace(target)
    return f"app/static/{name}"


def viewer(
    figure: str,
    *,
    key: str,
    alt: str,
    height: int,
    dark: bool,
    look: Look | None,
    on_click: Callable[[], None],
) -> Seen:
    """Show a figure given as JSON (``{"data": ..., "layout": ...}``).

    ``look`` is applied when the figure appears; after that the reader's hand counts, until ``layout.uirevision``
    changes. A click calls ``on_click`` before the next run; ``clicked`` then reads it.
    """
    result: Any = _mount(
        key=key,
        data={
            "figure": figure,
            "library": library(),
            "key": key,
            "alt": alt,
            "height": height,
            "dark": dark,
            "look": None if look is None else {"ranges": look.ranges, "eyes": look.eyes},
        },
        on_look_change=lambda: None,
        on_dark_change=lambda: None,
        on_clicked_change=on_click,
    )
    return Seen(look=read_look(result.look), dark=result.dark)


def clicked(value: Any) -> Click | None:
    """A click as the browser sent it; None when there is none."""
    if not isinstance(value, Mapping):
        return None
    keys = cast("Mapping[str, Any]", value)
    return Click(*(keys.get(name) for name in ("prompt", "position", "block", "loop", "rule", "point")))


def read_look(value: Any) -> Look | None:
    """A look as the browser sent it; None when there is none."""
    if not isinstance(value, Mapping):
        return None
    told = cast("Mapping[str, Mapping[str, Any]]", value)
    ranges = {str(name): (float(low), float(high)) for name, (low, high) in told.get("ranges", {}).items()}
    eyes = {str(name): {axis: float(eye[axis]) for axis in "xyz"} for name, eye in told.get("eyes", {}).items()}
    return Look(ranges=ranges, eyes=eyes)
