"""What both renderers must agree on: ranges, ticks, cell edges, which legend entries appear, words on axes."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64

from analysis.chart import Axis, Band, Bars, Chart, Heatmap, Mark, Panel, Points, Rule

Side = Literal["x", "y", "z"]
_WORDS = re.compile(r"(?:\([^()]*\)|\S)+")
_HIGH = 0.85
"""Share of a panel's height above which a line leaves no room for words over it."""
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def axis_words(axis: Axis) -> str:
    """Title with its unit: ``KL (nats)``."""
    return f"{axis.title} ({axis.unit})" if axis.unit else axis.title


def extent(panel: Panel, side: Side) -> tuple[float, float] | None:
    """Smallest and largest finite value of the panel's marks along one side; None when there is none.

    On a log axis only positive values count.
    """
    axis = getattr(panel, side)
    parts = [values[np.isfinite(values)] for mark in panel.marks for values in _along(mark, side)]
    values = np.concatenate(parts) if parts else np.zeros(0)
    if axis.scale == "log":
        values = values[values > 0]
    return (float(values.min()), float(values.max())) if values.size else None


def _along(mark: Mark, side: Side) -> Iterator[Float64[np.ndarray, " values"]]:
    if isinstance(mark, Rule):
        if side == ("y" if mark.across == "horizontal" else "x"):
            yield np.array([mark.at])
        return
    names: dict[str, tuple[str, ...]] = {"x": ("x",), "y": ("y",), "z": ("z",)}
    if isinstance(mark, Band):
        names["y"] = ("lower", "upper")
    if isinstance(mark, Bars):
        names["y"] = ("y", "lower", "upper")
    for name in names[side]:
        values = getattr(mark, name, None)
        if values is not None:
            yield values.astype(np.float64)


def near_top(panel: Panel, at: float) -> bool:
    """Whether a height of the panel lies so near its upper edge that there is no room for words above it."""
    low, high = panel.y.limits or extent(panel, "y") or (at, at)
    if panel.y.scale == "log":
        if min(low, at) <= 0:
            return False
        low, high, at = (math.log10(value) for value in (low, high, at))
    return high > low and (at - low) / (high - low) > _HIGH


def whole_step(low: float, high: float, *, most: int = 9) -> int:
    """Distance between ticks at whole numbers: 1, 2, 5, 10 and so on, so that at most about ``most`` of them appear."""
    rough = max((high - low) / most, 1.0)
    scale = 10 ** math.floor(math.log10(rough))
    return next(int(base * scale) for base in (1, 2, 5, 10) if base * scale >= rough - 1e-9)


def whole_ticks(low: float, high: float, *, most: int = 9) -> tuple[int, ...]:
    """Whole numbers from low to high at ``whole_step``, and the first one (loop 1) where it does not crowd the next."""
    step = whole_step(low, high, most=most)
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    regular = list(range(step * math.ceil(first / step), last + 1, step))
    if regular and regular[0] - first > 0.6 * step:
        regular = [first, *regular]
    return tuple(regular or range(first, last + 1))


def uneven_rows(panel: Panel, side: Side) -> tuple[float, ...] | None:
    """Centres of a map's cells where some whole numbers have none (a thinned run): ticks belong on these only."""
    for mark in panel.marks:
        if isinstance(mark, Heatmap) and side in ("x", "y"):
            centres = getattr(mark, side)
            if len(centres) > 1 and float(np.diff(centres).max()) > 1:
                return tuple(float(c) for c in centres[:: every_nth(len(centres), 16)])
    return None


def log_ticks(low: float, high: float, *, most: int = 6) -> tuple[float, ...]:
    """Powers of ten between low and high, thinned to ``most``; 1, 2, 3, 5 steps where fewer than two powers fit, and
    equal steps where fewer than two of those do.
    """
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    if len(powers) >= 2:
        every = math.ceil(len(powers) / most)
        return tuple(10.0**n for n in powers if n % every == 0)
    start = math.floor(math.log10(low))
    fine = [base * 10.0**n for n in range(start, start + 4) for base in (1, 2, 3, 5)]
    found = tuple(value for value in fine if low * (1 - 1e-9) <= value <= high * (1 + 1e-9))
    return found if len(found) >= 2 else _equal_steps(low, high)


def _equal_steps(low: float, high: float) -> tuple[float, ...]:
    """Round numbers at equal distances between low and high, two at least unless the two are equal."""
    if not high > low:
        return (low,)
    rough = (high - low) / 3
    scale = 10.0 ** math.floor(math.log10(rough))
    step = max(base * scale for base in (1, 2, 5) if base * scale <= rough * (1 + 1e-9))
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return tuple(float(f"{number * step:.12g}") for number in numbers)


def log_words(values: Sequence[float]) -> tuple[str, ...]:
    """Ticks of one log axis, all written alike: ``0.01`` and ``10``, or ``10⁻⁵`` and ``10⁶`` where they go far."""
    plain = all(0.0099 < value < 10001 for value in values)
    return tuple(f"{value:g}" if plain else _power(value) for value in values)


def _power(value: float) -> str:
    exponent = math.floor(math.log10(value) + 1e-9)
    base = float(f"{value / 10.0**exponent:.3g}")
    power = f"10{str(exponent).translate(_SUPERSCRIPT)}"
    return power if base == 1 else f"{base:g}×{power}"


def cell_edges(centres: Float[np.ndarray, " cells"]) -> Float64[np.ndarray, " edges"]:
    """Edges of cells half-way between their centres; a single cell is one wide."""
    at = centres.astype(np.float64)
    if len(at) == 1:
        return np.array([at[0] - 0.5, at[0] + 0.5])
    middle = (at[1:] + at[:-1]) / 2
    return np.concatenate([[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]])


def colour_limits(heatmap: Heatmap) -> tuple[float, float]:
    """Values at the two ends of the colours: as given, else the data's, symmetric about 0 when diverging."""
    if heatmap.limits is not None:
        return heatmap.limits
    finite = heatmap.values[np.isfinite(heatmap.values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    if heatmap.palette == "diverging":
        reach = max(abs(low), abs(high)) or 1.0
        return -reach, reach
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def last_loop(chart: Chart) -> float:
    """Largest loop that any mark of the chart colours by; the loop scale of all panels ends there."""
    ends = [
        float(mark.value[np.isfinite(mark.value)].max())
        for panel in chart.panels
        for mark in panel.marks
        if isinstance(mark, Points) and mark.value is not None and np.isfinite(mark.value).any()
    ]
    return max(ends, default=1.0)


def above_zero(band: Band) -> tuple[Float64[np.ndarray, " rows"], Float64[np.ndarray, " rows"]]:
    """The band's edges for a log axis: a lower edge at or below zero moves to the smallest positive value shown."""
    lower, upper = band.lower.astype(np.float64), band.upper.astype(np.float64)
    shown = np.concatenate([lower, upper])
    shown = shown[np.isfinite(shown) & (shown > 0)]
    floor = float(shown.min()) if shown.size else np.nan
    upper = np.where(upper > 0, upper, np.nan)
    return np.where((lower <= 0) & np.isfinite(upper), floor, lower), upper


def runs(x: Float[np.ndarray, " rows"], *others: Float[np.ndarray, " rows"]) -> list[slice]:
    """Stretches of rows in which every array is finite."""
    good = np.isfinite(np.stack([x, *others])).all(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], good.astype(np.int8), [0]])))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def every_nth(count: int, most: int) -> int:
    """Keep every n-th of ``count`` labels so that at most ``most`` remain."""
    return max(1, math.ceil(count / max(most, 1)))


def broken(text: str, fits: Callable[[str], bool]) -> str:
    """The text with line breaks at spaces, so that every line fits; a long word or bracket stays whole."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines.append("")
        for word in _WORDS.findall(line):
            longer = f"{lines[-1]} {word}" if lines[-1] else word
            if lines[-1] and not fits(longer):
                lines.append(word)
            else:
                lines[-1] = longer
    return "\n".join(lines)


def columns_across(panel: Panel, heatmap: Heatmap) -> float:
    """How many columns of the map lie side by side in the panel, which may be wider than the map."""
    low, high = panel.x.limits or (0.0, float(len(heatmap.x)))
    return max(abs(high - low), 1.0)


def repeats_y(chart: Chart, number: int, across: int) -> bool:
    """Whether a panel has the same y title as all others of its row, and is not the first of them."""
    row = chart.panels[number // across * across : (number // across + 1) * across]
    return number % across > 0 and len({axis_words(panel.y) for panel in row}) == 1 and all(panel.z is None for panel in row)
