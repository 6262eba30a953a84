"""All looks in one place, as plain data: colours, glyphs and dashes of every role, screen and paper, venue sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64

from analysis.chart import Role
from analysis.exit_rule import exit_rules

Marker = Literal["circle", "square", "diamond", "plus", "cross", "triangle", "down", "pentagon", "star", "hexagon"]
Dash = Literal["solid", "dash", "dot", "dashdot"]
Surface = Literal["light", "dark", "paper"]

OKABE_ITO: Mapping[str, str] = MappingProxyType(
    {
        "black": "#000000",
        "orange": "#E69F00",
        "sky": "#56B4E9",
        "green": "#009E73",
        "yellow": "#F0E442",
        "blue": "#0072B2",
        "vermillion": "#D55E00",
        "purple": "#CC79A7",
    }
)
"""Colours that stay apart for colour-blind readers (Okabe and Ito, 2008)."""


@dataclass(frozen=True)
class Look:
    """Colour, marker and dash of one thing; any two of the three already tell it from its neighbours."""

    colour: str
    marker: Marker = "circle"
    dash: Dash = "solid"


@dataclass(frozen=True)
class Paint:
    """Colours of a surface: the page in light or dark, or paper.

    ``paper`` is the background, ``ink`` text, ``soft`` secondary text, ``grid`` grid lines, ``edge`` axis lines,
    ``muted`` what steps back.
    """

    paper: str
    ink: str
    soft: str
    grid: str
    edge: str
    muted: str


PAINTS: Mapping[Surface, Paint] = MappingProxyType(
    {
        "light": Paint(paper="#FFFFFF", ink="#1F2430", soft="#565D6B", grid="#E8EAEE", edge="#B9BEC8", muted="#B4B9C3"),
        "dark": Paint(paper="#0E1117", ink="#ECEEF2", soft="#A9B0BD", grid="#262B36", edge="#4A5160", muted="#5B6373"),
        "paper": Paint(paper="#FFFFFF", ink="#000000", soft="#404040", grid="#E3E3E3", edge="#606060", muted="#B0B0B0"),
    }
)

RING_FROM = 10.0
"""Hollow marks of this size or larger are rings around another mark, and stay empty; smaller ones hide what they mark."""

SCREEN_FONTS = "'Source Sans', 'Source Sans 3', 'Source Sans Pro', system-ui, sans-serif"
PAPER_FONTS = ("Source Sans Pro", "DejaVu Sans", "STIXGeneral")

_RULES: Mapping[str, Look] = MappingProxyType(
    {
        "acceleration": Look(OKABE_ITO["vermillion"], "diamond", "solid"),
        "acceleration_over_state": Look(OKABE_ITO["vermillion"], "square", "dash"),
        "acceleration_over_steps": Look(OKABE_ITO["vermillion"], "triangle", "dot"),
        "acceleration_over_peak": Look(OKABE_ITO["vermillion"], "down", "dashdot"),
        "adapted_acceleration": Look(OKABE_ITO["vermillion"], "pentagon", "dash"),
        "kl": Look(OKABE_ITO["blue"], "plus", "dash"),
        "min_p_kl": Look(OKABE_ITO["blue"], "star", "solid"),
        "kl_difference": Look(OKABE_ITO["blue"], "hexagon", "dot"),
        "step_norm": Look(OKABE_ITO["orange"], "cross", "dot"),
        "relative_step_norm": Look(OKABE_ITO["orange"], "circle", "solid"),
        "state_cosine": Look(OKABE_ITO["orange"], "square", "dashdot"),
        "step_norm_difference": Look(OKABE_ITO["orange"], "triangle", "dash"),
        "entropy_change": Look(OKABE_ITO["sky"], "diamond", "dash"),
        "argmax_stable": Look(OKABE_ITO["sky"], "circle", "dot"),
        "top_probability": Look(OKABE_ITO["green"], "triangle", "solid"),
        "top_margin": Look(OKABE_ITO["green"], "down", "dash"),
        "entropy": Look(OKABE_ITO["green"], "pentagon", "dot"),
        "learned_gate": Look(OKABE_ITO["purple"], "star", "dashdot"),
        "fixed_k": Look("#7F7F7F", "square", "solid"),
        "oracle_argmax": Look("#7F7F7F", "circle", "dashdot"),
        "oracle_cross_entropy": Look("#7F7F7F", "hexagon", "solid"),
    }
)
"""A family of rules shares a colour; marker and dash are together a rule's own, so that rules stay apart in greyscale."""
_RULE_RESERVE = (
    Look(OKABE_ITO["purple"], "triangle", "dashdot"),
    Look(OKABE_ITO["green"], "plus", "solid"),
    Look(OKABE_ITO["sky"], "star", "dot"),
    Look(OKABE_ITO["yellow"], "pentagon", "solid"),
    Look("#7F7F7F", "hexagon", "dashdot"),
)
_BLOCKS = (
    Look(OKABE_ITO["green"], "circle"),
    Look(OKABE_ITO["purple"], "square"),
    Look(OKABE_ITO["sky"], "triangle"),
    Look(OKABE_ITO["orange"], "diamond"),
    Look(OKABE_ITO["blue"], "down"),
    Look(OKABE_ITO["vermillion"], "pentagon"),
)
_SERIES_MARKERS: tuple[Marker, ...] = ("circle", "square", "triangle", "diamond", "down", "pentagon", "star", "plus")

CIVIDIS = (
    "#00224E", "#003170", "#2A3F6D", "#434E6C", "#575D6D", "#6A6C71", "#7D7C78",
    "#918B78", "#A59C74", "#BCAE6C", "#D2C060", "#E9D34E", "#FEE838",
)  # fmt: skip
_DIVERGING = ("#1B4F8A", "#4F86BD", "#9CC0DF", "#F3F3F1", "#EDB58F", "#CC7440", "#8F3B0C")
_PROBABILITY: Mapping[Surface, tuple[str, ...]] = MappingProxyType(
    {
        "light": ("#F6F8FA", "#DCE8F3", "#BAD5EC", "#94BFE3", "#6CA9DB"),
        "dark": ("#141923", "#182A40", "#1B3E63", "#205487", "#286CAD"),
        "paper": ("#FFFFFF", "#E1EBF5", "#BFD7EC", "#98C1E4", "#6FABDC"),
    }
)
"""Pale on light surfaces and deep on dark ones, so that the text colour stays readable in every cell."""
_SERIES: Mapping[Surface, tuple[str, ...]] = MappingProxyType(
    {
        "light": ("#E8B75C", "#DE7A3A", "#B8405E", "#6E2A73", "#241B47"),
        "dark": ("#5D52A3", "#A24E9C", "#E0677A", "#F5A061", "#FBE6A8"),
        "paper": ("#E8B75C", "#DE7A3A", "#B8405E", "#6E2A73", "#241B47"),
    }
)
_LOOP_ENDS: Mapping[Surface, tuple[float, float]] = MappingProxyType(
    {"light": (0.0, 0.9), "dark": (0.22, 1.0), "paper": (0.0, 0.9)}
)


@dataclass(frozen=True)
class Venue:
    """A place in a paper: exact width in inches, and text sizes in points at which it stays readable."""

    title: str
    width_in: float
    body_pt: float = 8.0
    tick_pt: float = 7.0


VENUES: Mapping[str, Venue] = MappingProxyType(
    {
        "icml2024": Venue("ICML 2024, one column (3.25 in)", 3.25),
        "icml2024-wide": Venue("ICML 2024, both columns (6.75 in)", 6.75),
        "neurips2024": Venue("NeurIPS 2024, text width (5.5 in)", 5.5),
    }
)


@cache
def rule_looks() -> Mapping[str, Look]:
    """Look of every exit rule: fixed for the known ones, the reserve in sorted order of name for the others."""
    others = sorted(set(exit_rules()) - set(_RULES))
    spare = {name: _RULE_RESERVE[i % len(_RULE_RESERVE)] for i, name in enumerate(others)}
    return MappingProxyType(dict(_RULES) | spare)


def look(role: Role, surface: Surface) -> Look:
    """Colour, marker and dash of a role on a surface. An exit rule that is not registered takes the last reserve look."""
    paint = PAINTS[surface]
    if role.kind == "rule":
        return rule_looks().get(role.name, _RULE_RESERVE[-1])
    if role.kind == "block":
        return _BLOCKS[role.index % len(_BLOCKS)]
    if role.kind == "loop":
        return Look(blend(loop_palette(surface), float(loop_shade(np.array([float(role.index)]), float(role.of))[0])))
    if role.kind == "series":
        place = role.index / (role.of - 1) if role.of > 1 else 1.0
        return Look(blend(_SERIES[surface], place), _SERIES_MARKERS[role.index % len(_SERIES_MARKERS)])
    return Look(paint.muted if role.kind == "muted" else paint.ink)


def exit_size(size: float) -> float:
    """Size of an exit mark, softened so that nested marks of several rules keep their order and the smallest is seen."""
    return 4.0 + 0.8 * size


def palette(name: Literal["sequential", "diverging", "probability"], surface: Surface) -> tuple[str, ...]:
    """Colours at equal distances along a heatmap's scale, lowest value first."""
    if name == "diverging":
        return _DIVERGING
    return _PROBABILITY[surface] if name == "probability" else CIVIDIS


def loop_palette(surface: Surface) -> tuple[str, ...]:
    """The part of cividis that stands out from the surface, in 13 equal steps."""
    low, high = _LOOP_ENDS[surface]
    return tuple(blend(CIVIDIS, float(place)) for place in np.linspace(low, high, 13))


def loop_shade(loops: Float[np.ndarray, " rows"], last: float) -> Float64[np.ndarray, " rows"]:
    """Place of each loop on the loop scale, 0..1: log(1 + k) / log(1 + K), so that early loops are told apart."""
    return np.log1p(np.maximum(loops.astype(np.float64), 0.0)) / np.log1p(max(last, 1.0))


def loop_ticks(last: float) -> tuple[int, ...]:
    """Loops named on the colour bar: 0, 1, 2, 4, 8 and so on up to the last."""
    powers = [2**i for i in range(12) if 2**i <= last * 0.72]
    return (0, *powers, int(last))


def blend(colours: tuple[str, ...], place: float) -> str:
    """Colour at ``place`` (0..1) along equally spaced colours, as #RRGGBB."""
    at = min(max(place, 0.0), 1.0) * (len(colours) - 1)
    left = min(int(at), len(colours) - 2)
    mixed = (1 - (at - left)) * channels(colours[left]) + (at - left) * channels(colours[left + 1])
    return "#" + "".join(f"{round(255 * part):02X}" for part in mixed)


def channels(colour: str) -> Float64[np.ndarray, " channels"]:
    """Red, green and blue of #RRGGBB, each 0..1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def brightness(colour: str) -> float:
    """Relative luminance of #RRGGBB, 0 (black) to 1 (white), as WCAG 2 defines it."""
    linear = np.where(channels(colour) <= 0.04045, channels(colour) / 12.92, ((channels(colour) + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def faded(colour: str, opacity: float) -> str:
    """The colour as rgba(...) for the screen."""
    red, green, blue = (round(255 * part) for part in channels(colour))
    return f"rgba({red},{green},{blue},{opacity:g})"


def shortened(label: str, length: int) -> str:
    """At most ``length`` characters of every line of the label, ending in … where it was cut."""
    return "\n".join(line if len(line) <= length else line[: length - 1] + "…" for line in label.split("\n"))
