"""Trajectory chart: the path of every token through every looped block, seen through a projection."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from analysis import paths
from analysis.caption import block_words, counted, joined, loops_words, movement, nonfinite_words, source_words, token_words
from analysis.chart import Arrows, Camera, Chart, ChartError, Mark, Panel, Role, View
from analysis.exit_marks import rule_exits, rule_words
from analysis.projection import Projected, Projection, gather, projections
from analysis.scene import Scene, plane
from analysis.statistic import statistics, summarise

_CROWD = 8
"""More tokens than this are drawn thinner, so that single paths can still be told apart."""


_CAMERA = Camera()


@dataclass(frozen=True)
class TrajectoryChart:
    """One path per token and block: loops as discs, the start an open circle, the end a filled square, exits on it.

    Attributes:
        dims: plane or space. projection: None is PCA with its defaults.
        fit: what the projection is fitted on: the selected token, the ``chosen`` positions, or all tokens.
        show: draw all tokens, the others muted beside a selected one, or the selected token alone.
        blocks: all looped blocks in one picture, or the selected one.
        show_start: whether the initial states (k = 0, often noise) are drawn.
        leave_out: token positions that are neither fitted nor drawn.
        norm_limit: leaves out tokens whose largest state norm exceeds this many times the median one.
        camera: where a 3-D picture is looked at from.
    """

    name: ClassVar[str] = "trajectory"
    title: ClassVar[str] = "Trajectories"

    dims: Literal[2, 3] = 2
    projection: Projection | None = None
    fit: Literal["token", "chosen", "all"] = "all"
    chosen: tuple[int, ...] = ()
    show: Literal["all", "selected"] = "all"
    blocks: Literal["all", "selected"] = "all"
    show_start: bool = True
    leave_out: tuple[int, ...] = ()
    norm_limit: float | None = None
    camera: Camera = _CAMERA

    def build(self, view: View) -> Chart:
        """The picture of the selected prompt. Raises ChartError or ProjectionError with a sentence."""
        scene, projected, left_out = self._scene(view)
        strong, muted = scene.of_tokens(selected=view.token)
        found_exits, warnings = _exit_marks(strong)
        marks = (*_muted(muted), *_paths(strong), *_stations(strong), *found_exits, *_selected_loop(strong))
        solid = len(scene.axes) == 3
        panel = Panel(
            x=scene.axes[0],
            y=scene.axes[1],
            z=scene.axes[2] if solid else None,
            marks=marks,
            equal=projected.equal and projected.coordinates.shape[1] > 1,
        )
        trace_words = f"{block_words(view.trajectory, scene.blocks)}, {loops_words(view.trajectory, scene.blocks)}"
        return Chart(
            name=self.name,
            title=f"{self.title}, {trace_words}",
            panels=(panel,),
            caption=self._caption(scene, projected, left_out),
            alt=_alt(scene),
            provenance=view.trajectory.provenance,
            warnings=(
                *nonfinite_words(view.trajectory, scene.blocks),
                *projected.warnings,
                *_absent(scene),
                *dict.fromkeys(warnings),
            ),
            camera=self.camera if solid else None,
        )

    def _scene(self, view: View) -> tuple["Scene", Projected, tuple[str, ...]]:
        blocks = (view.block,) if self.blocks == "selected" else tuple(range(len(view.trajectory.blocks)))
        basis = self._basis(view)
        drawn = (view.token,) if self.show == "selected" and view.token is not None else None
        wanted = None if drawn is None or basis is None else sorted({*drawn, *basis})
        points = gather(view.trajectory, blocks, positions=wanted, leave_out=self.leave_out, norm_limit=self.norm_limit)
        if basis is not None:
            points = replace(points, fit=points.fit & np.isin(points.position, basis))
        projected = (self.projection or projections()["pca"]()).project(points, dims=self.dims)
        visible = (points.loop > 0) | self.show_start
        if drawn is not None:
            visible &= np.isin(points.position, drawn)
        coordinates, axes = plane(projected, points.loop)
        scene = Scene(
            view=view,
            blocks=blocks,
            axes=axes,
            coordinates=coordinates[visible],
            position=points.position[visible],
            block=points.block[visible],
            loop=points.loop[visible],
        )
        return scene, projected, points.left_out

    def _basis(self, view: View) -> tuple[int, ...] | None:
        """Token positions that the projection is fitted on; None is all."""
        if self.fit == "all":
            return None
        if self.fit == "token":
            return (view.token or 0,)
        if not self.chosen:
            raise ChartError("The projection is to be fitted on chosen tokens, but none is chosen; choose some, or fit on all.")
        return self.chosen

    def _caption(self, scene: "Scene", projected: Projected, left_out: tuple[str, ...]) -> str:
        view = scene.view
        rules = "; ".join(rule_words(rule, view.trajectory, scene.blocks) for rule in view.rules)
        basis = self._basis(view)
        fitted = "" if basis is None else f"It was fitted on {', '.join(f'#{p}' for p in basis)} and the others projected."
        start = "start open" if self.show_start else "initial states (k = 0) not drawn"
        return joined(
            f"Paths of {counted(scene.tokens, 'token')} through "
            f"{block_words(view.trajectory, scene.blocks)}, {loops_words(view.trajectory, scene.blocks)}: "
            f"{start}, end square, discs coloured by loop, hand-offs (x⁽ᴷ⁾ to the next block's x⁽¹⁾) dashed.",
            projected.caption,
            fitted,
            f"{'; '.join(left_out)}." if left_out else "",
            f"Exit marks: {rules}." if rules else "",
            source_words(view.trajectory.provenance),
        )


def _muted(scene: Scene) -> tuple[Mark, ...]:
    if not len(scene.loop):
        return ()
    looks = {"role": Role("muted"), "width": 0.8, "opacity": 0.5}
    return (scene.line(paths.gapped(scene.position, scene.block), **looks), *_hand_offs(scene, **looks))


def _paths(scene: Scene) -> tuple[Mark, ...]:
    crowd = scene.tokens > _CROWD
    looks: dict[str, Any] = {"width": 1.0, "opacity": 0.55} if crowd else {"width": 1.6, "opacity": 1.0}
    marks: list[Mark] = []
    for g in scene.blocks:
        own = scene.where(scene.block == g)
        if len(own.loop):
            name = scene.view.trajectory.blocks[g].name
            role = Role("block", index=g, of=len(scene.view.trajectory.blocks))
            marks.append(own.line(paths.gapped(own.position), role=role, legend=name, **looks))
    return (*marks, *_hand_offs(scene, role=Role("ink"), legend="hand-off", **looks), *_arrows(scene))


def _hand_offs(scene: Scene, **looks: Any) -> tuple[Mark, ...]:
    pairs = paths.links(scene.last(), scene.loop == 1, position=scene.position, block=scene.block)
    if not len(pairs):
        return ()
    order = np.column_stack([pairs, np.full(len(pairs), paths.GAP)]).ravel()[:-1]
    return (scene.line(order, dash="dash", **looks),)


def _arrows(scene: Scene) -> tuple[Mark, ...]:
    """Heads on the long segments of a plane picture; the short ones near the end would be a blot."""
    if scene.coordinates.shape[1] != 2:
        return ()
    order = paths.gapped(scene.position, scene.block)
    pairs = paths.long_segments(scene.coordinates, order, share=0.04, most=150)
    if not len(pairs):
        return ()
    tail, head = scene.coordinates[pairs[:, 0]], scene.coordinates[pairs[:, 1]]
    keys = {name: column[pairs[:, 1]] for name, column in scene.keys().items()}
    (x, y), (dx, dy) = tail.T, (head - tail).T
    return (Arrows(x=x, y=y, dx=dx, dy=dy, columns=keys, role=Role("ink")),)


def _stations(scene: Scene) -> tuple[Mark, ...]:
    """Loop discs, then starts and ends on top of them."""
    size = 4.0 if scene.tokens > _CROWD else 6.0
    last, first = scene.last(), scene.loop == 0
    deepest = max(scene.view.trajectory.blocks[g].loops for g in scene.blocks)
    loops = scene.where(~first & ~last)
    disc = {"value": loops.loop.astype(np.float64), "value_title": "loop k", "role": Role("loop", of=deepest)}
    groups = (
        (loops, {"glyph": "loop", "size": size, **disc}),
        (scene.where(first), {"glyph": "start", "size": size + 1.0, "role": Role("ink"), "legend": "start (k = 0)"}),
        (scene.where(last & ~first), {"glyph": "end", "size": size + 1.0, "role": Role("ink"), "legend": "end (k = K)"}),
    )
    return tuple(group.points(group.hover(), **looks) for group, looks in groups if len(group.loop))


def _exit_marks(scene: Scene) -> tuple[tuple[Mark, ...], tuple[str, ...]]:
    """One mark per rule, at the iterates after which it fires; a loop whose state is not stored has none."""
    trajectory, rules = scene.view.trajectory, scene.view.rules
    at = {rule: np.zeros(len(scene.loop), dtype=bool) for rule in rules}
    sizes: dict[Any, float] = {}
    shrink = 0.7 if scene.tokens > _CROWD else 1.0
    warnings: list[str] = []
    for g in scene.blocks:
        found, missing = rule_exits(trajectory, g, rules)
        warnings += missing
        for one in found:
            sizes[one.rule] = one.size * shrink
            at[one.rule] |= (scene.block == g) & (scene.loop == one.exits.loop[scene.position])
    marks: list[Mark] = []
    for rule, mask in at.items():
        if mask.any():
            fired = scene.where(mask)
            count = len(fired.loop)
            settings = {"threshold": np.full(count, rule.threshold), "patience": np.full(count, rule.patience)}
            columns = {"rule": np.full(count, rule.name), "exit_loop": fired.loop, **settings}
            looks: dict[str, Any] = {"glyph": "exit", "size": sizes[rule], "legend": f"exit: {rule.title}"}
            marks.append(fired.points(columns, role=Role("rule", name=rule.name), **looks))
    return tuple(marks), tuple(warnings)


def _selected_loop(scene: Scene) -> tuple[Mark, ...]:
    here = scene.where(scene.loop == scene.view.loop) if scene.view.loop is not None else None
    if here is None or not len(here.loop):
        return ()
    return (here.points(glyph="hollow", size=11.0, role=Role("ink"), legend=f"loop {scene.view.loop}"),)


def _absent(scene: Scene) -> tuple[str, ...]:
    """Sentences about a selection that the picture cannot show."""
    view, words = scene.view, list[str]()
    if view.token is not None and not np.any(scene.position == view.token):
        words.append(f"The selected {token_words(view.trajectory, view.token)} is left out, or its states are not stored.")
    if view.loop is not None and not np.any(scene.loop == view.loop):
        words.append(f"Loop {view.loop} has no stored state; choose another loop, or run again with every state stored.")
    return tuple(words)


def _alt(scene: Scene) -> str:
    trajectory = scene.view.trajectory
    norm = statistics()["step_norm"]
    moves = "; ".join(
        f"in {trajectory.blocks[g].name} the median step norm {movement(summarise(norm.values(trajectory, g)).median)}"
        for g in scene.blocks
    )
    tokens = counted(scene.tokens, "token")
    return f"Paths of {tokens} in {counted(len(scene.blocks), 'looped block')} on {len(scene.axes)} axes: {moves}."
