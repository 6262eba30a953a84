"""Heatmap chart: a value for every token and loop, with the exits on it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float32, Float64, Int64

from analysis import steps
from analysis.caption import counted, joined, nonfinite_words, source_words
from analysis.chart import Chart, ChartError, Heatmap, Mark, Panel, Points, Role, Rule, View
from analysis.exit_marks import rule_exits, rule_words
from analysis.keys import grid_keys, loop_axis, loop_numbers, loop_rules, token_axis, token_keys
from analysis.named import loop_statistic
from analysis.statistic import Statistic
from model.capture.trajectory import BlockTrace

DISTANCE = "distance_to_last"


@dataclass(frozen=True)
class HeatmapChart:
    """Tokens across, loops downwards; the shade is the distance to the last iterate, or a statistic.

    Attributes:
        statistic: ``distance_to_last`` (log10 of ||x^(k) - x^(K)||, needs stored states; blank at k = K), or the name of
            any statistic with a value per loop, of which the logarithm is shown where its axis is logarithmic.
    """

    name: ClassVar[str] = "heatmap"
    title: ClassVar[str] = "Token by loop"

    statistic: str = DISTANCE

    def build(self, view: View) -> Chart:
        """The grid of the selected block and prompt. Raises ChartError where no cell has a value."""
        trajectory, trace = view.trajectory, view.trajectory.blocks[view.block]
        grid = _distances(trace) if self.statistic == DISTANCE else _values(loop_statistic(self.statistic), view)
        shade, zeros = _shade(grid)
        if np.isnan(shade).all():
            raise ChartError(grid.nothing)
        low, high = float(np.nanmin(shade)), float(np.nanmax(shade))
        heat = Heatmap(
            x=grid.positions.astype(np.float64),
            y=grid.loops.astype(np.float64),
            values=shade,
            columns=grid_keys(view, positions=grid.positions, loops=grid.loops, block=view.block)
            | {grid.name: grid.values.ravel()},
            value_title=f"log₁₀ {grid.title}" if grid.logarithm else grid.title,
            palette="diverging" if low < 0 and not grid.logarithm else "sequential",
            limits=(-max(-low, high), max(-low, high)) if low < 0 and not grid.logarithm else None,
        )
        exits, missing = _exit_marks(view, grid.positions)
        chosen = _token_rule(view)
        rules = "; ".join(rule_words(rule, trajectory, (view.block,)) for rule in view.rules)
        return Chart(
            name=self.name,
            title=f"{self.title}, block {trace.name}",
            panels=(
                Panel(
                    x=token_axis(trajectory, grid.positions),
                    y=loop_axis(trace.loops, down=True),
                    marks=(heat, *loop_rules(view, trace.loops, across="horizontal"), *chosen, *exits),
                ),
            ),
            caption=joined(
                f"{heat.value_title} of {counted(len(grid.positions), 'token')} in block {trace.name}, K = {trace.loops}."
                f"{grid.note}",
                f"{counted(zeros, 'value')} of exactly 0 in the shade of the smallest positive one." if zeros else "",
                f"Exit marks: {rules}. A token without a mark of a rule never exits by it." if rules else "",
                source_words(trajectory.provenance),
            ),
            alt=_alt(heat, trace),
            provenance=trajectory.provenance,
            warnings=(*nonfinite_words(trajectory, (view.block,)), *missing),
        )


@dataclass(frozen=True)
class _Grid:
    """Values to shade. ``nothing`` is the sentence for a grid without any."""

    name: str
    title: str
    values: Float64[np.ndarray, "loops tokens"]
    loops: Int64[np.ndarray, " loops"]
    positions: Int64[np.ndarray, " tokens"]
    logarithm: bool
    note: str
    nothing: str


def _distances(trace: BlockTrace) -> _Grid:
    """||x^(k) - x^(K)|| of the stored iterates with k >= 1; NaN at k = K, where it would be 0 by definition.

    K is the last loop that a token ran: in a live run each has its own, and none where that state is not stored.
    """
    if not trace.states.size:
        raise ChartError(
            "The distance to the last iterate needs stored states and this run recorded statistics only; run again with "
            "states stored, or choose a statistic such as step_norm."
        )
    stored = trace.loop_index >= 1
    with np.errstate(invalid="ignore"):
        values = steps.norms(trace.states[stored].astype(np.float64) - _last(trace).astype(np.float64))
    values[trace.loop_index[stored][:, None] == trace.loops_run[trace.positions]] = np.nan
    thinned = " Only loops whose state is stored have a row." if stored.sum() < trace.loops else ""
    return _Grid(
        name=DISTANCE,
        title="‖x⁽ᵏ⁾ − x⁽ᴷ⁾‖",
        values=values,
        loops=trace.loop_index[stored],
        positions=trace.positions,
        logarithm=True,
        note=f" The row of the last loop is blank: the distance to itself says nothing.{thinned}",
        nothing=f"The distance to the last iterate needs at least 2 loops and a finite last state; block {trace.name} "
        f"ran {counted(trace.loops, 'loop')}. Run again with more loops, or choose step_norm.",
    )


def _last(trace: BlockTrace) -> Float32[np.ndarray, "tokens width"]:
    """Each token's state after the last loop that it ran; NaN where that one is not stored."""
    ran = trace.loops_run[trace.positions]
    row = np.searchsorted(trace.loop_index, ran)
    found = trace.states[row, np.arange(len(ran))]
    return np.where((trace.loop_index[row] == ran)[:, None], found, np.float32(np.nan))


def _values(statistic: Statistic, view: View) -> _Grid:
    trace = view.trajectory.blocks[view.block]
    count, held = statistic.first_loop, statistic.holds_first_step
    return _Grid(
        name=statistic.name,
        title=statistic.title + (f" in {statistic.unit}" if statistic.unit else ""),
        values=statistic.values(view.trajectory, view.block).astype(np.float64),
        loops=loop_numbers(trace.loops),
        positions=np.arange(view.trajectory.tokens),
        logarithm=statistic.scale == "log",
        note=f" The row of loop {held} contains the step away from the initial state." if held else "",
        nothing=f"{statistic.title} needs at least {counted(count, 'loop')} and a finite state; block {trace.name} ran "
        f"{counted(trace.loops, 'loop')}. Run again with more loops.",
    )


def _shade(grid: _Grid) -> tuple[Float64[np.ndarray, "loops tokens"], int]:
    """What the cells show, and how many exact zeros had to be given the shade of the smallest positive value."""
    if not grid.logarithm:
        return grid.values, 0
    zero = grid.values == 0
    if not (grid.values > 0).any():
        return np.full(grid.values.shape, np.nan), 0
    smallest = float(np.min(grid.values[grid.values > 0]))
    return np.log10(np.where(zero, smallest, grid.values)), int(zero.sum())


def _exit_marks(view: View, positions: Int64[np.ndarray, " tokens"]) -> tuple[tuple[Mark, ...], tuple[str, ...]]:
    found, missing = rule_exits(view.trajectory, view.block, view.rules)
    marks: list[Mark] = []
    for one in found:
        where = positions[one.exits.fired[positions]]
        loop = one.exits.loop[where]
        if len(where):
            columns = token_keys(view, position=where, block=view.block, loop=loop)
            columns |= {"rule": np.full(len(where), one.rule.name), "score": one.scores[loop - 1, where]}
            columns |= {"exit_loop": loop, "threshold": np.full(len(where), one.rule.threshold)}
            marks.append(
                Points(
                    x=where.astype(np.float64),
                    y=loop.astype(np.float64),
                    columns=columns,
                    role=Role("rule", name=one.rule.name),
                    glyph="exit",
                    legend=f"exit: {one.rule.title}",
                    size=one.size,
                )
            )
    return tuple(marks), missing


def _token_rule(view: View) -> tuple[Rule, ...]:
    if view.token is None:
        return ()
    return (Rule(at=float(view.token), across="vertical", label=f"token #{view.token}", role=Role("ink"), dash="dot"),)


def _alt(heat: Heatmap, trace: BlockTrace) -> str:
    rows = np.flatnonzero(~np.isnan(heat.values).all(axis=1))
    first, last = (float(np.nanmedian(heat.values[row])) for row in (rows[0], rows[-1]))
    return (
        f"{heat.value_title} of {counted(len(heat.x), 'token')} in block {trace.name}; the median over tokens goes from "
        f"{first:.3g} at loop {heat.y[rows[0]]:g} to {last:.3g} at loop {heat.y[rows[-1]]:g}."
    )
