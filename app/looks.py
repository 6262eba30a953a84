"""How the reader looks at figures: dark or light, zoom and camera; kept for the session, the camera also in the link."""

import math
from typing import cast

import streamlit as st

from analysis.chart import Camera
from analysis.draw.plotly import camera_from_eye, eye
from app import link, state
from app.components.viewer import Look

_QUERY_CAMERA = "camera"


def dark() -> bool:
    """Whether the page is dark: as a figure saw it last, else as the browser said when it connected."""
    seen = state.get("_dark")
    return bool(seen) if seen is not None else st.context.theme.type == "dark"


def keep_dark(seen: bool | None) -> bool:
    """Remember what a figure saw; True when that is news."""
    if seen is None or seen == dark():
        return False
    state.put("_dark", seen)
    return True


def look(name: str, revision: str) -> Look | None:
    """Zoom and camera of a figure as they were left, as long as it still shows the same (``revision``)."""
    held = cast("dict[str, tuple[str, Look]]", state.get("_looks", {})).get(name)
    if held is not None and held[0] == revision:
        return held[1]
    seen = camera(name)
    return None if seen is None else Look(eyes={"scene": eye(seen)})


def keep_look(name: str, revision: str, seen: Look) -> None:
    """Remember zoom and camera; a camera also goes into the URL."""
    held = cast("dict[str, tuple[str, Look]]", state.get("_looks", {}))
    state.put("_looks", held | {name: (revision, seen)})
    for first in seen.eyes.values():
        found = camera_from_eye(first)
        link.keep(f"{name}.{_QUERY_CAMERA}", f"{found.azimuth:g},{found.elevation:g}")
        break


def camera(name: str) -> Camera | None:
    """The camera of a figure as it stands in the URL; None when it was never turned."""
    azimuth, sign, elevation = link.read(f"{name}.{_QUERY_CAMERA}").partition(",")
    try:
        found = Camera(float(azimuth), float(elevation)) if sign else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found.azimuth) else None
