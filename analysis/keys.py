"""Key columns and reference lines that charts share: whose value a row is, where training and the selection stand."""

from typing import Literal

import numpy as np
from jaxtyping import Int64, Shaped

from analysis.chart import Axis, Line, Mark, Points, Role, Rule, View
from model.capture.trajectory import Provenance, Trajectory

Keys = dict[str, Shaped[np.ndarray, " rows"]]


def loop_numbers(loops: int) -> Int64[np.ndarray, " loops"]:
    """1..K."""
    return np.arange(1, loops + 1, dtype=np.int64)


def token_keys(
    view: View,
    *,
    position: Int64[np.ndarray, " rows"],
    block: Int64[np.ndarray, " rows"] | int,
    loop: Int64[np.ndarray, " rows"] | None = None,
) -> Keys:
    """The keys ``prompt``, ``position``, ``token``, ``block`` and ``loop`` of rows that belong to single tokens."""
    names = np.array([trace.name for trace in view.trajectory.blocks])
    keys: Keys = {
        "prompt": np.full(len(position), view.prompt),
        "position": position,
        "token": np.array(view.trajectory.labels)[position],
        "block": names[np.broadcast_to(block, position.shape)],
    }
    return keys if loop is None else keys | {"loop": loop}


def pooled_keys(trajectory: Trajectory, block: int, loop: Int64[np.ndarray, " rows"]) -> Keys:
    """The keys ``block`` and ``loop`` of rows that summarise many tokens."""
    return {"block": np.full(len(loop), trajectory.blocks[block].name), "loop": loop}


def grid_keys(view: View, *, positions: Int64[np.ndarray, " tokens"], loops: Int64[np.ndarray, " loops"], block: int) -> Keys:
    """Keys of a grid with loops as rows and tokens as columns, in row-major order."""
    loop, position = np.meshgrid(loops, positions, indexing="ij")
    return token_keys(view, position=position.ravel(), block=block, loop=loop.ravel())


def token_axis(trajectory: Trajectory, positions: Int64[np.ndarray, " tokens"]) -> Axis:
    """Token positions with labels as ticks: numeric, so that repeated tokens keep a column each."""
    return Axis(
        title="token",
        ticks=tuple((float(p), trajectory.labels[int(p)]) for p in positions),
        limits=(float(positions.min()) - 0.5, float(positions.max()) + 0.5),
    )


def loop_axis(loops: int, *, down: bool = False) -> Axis:
    """Loops 1..K; ``down`` starts at the top, as one reads."""
    return Axis(title="loop k", whole=True, limits=(0.5, loops + 0.5), reversed=down)


def loop_rules(view: View, loops: int, *, across: Literal["horizontal", "vertical"]) -> tuple[Rule, ...]:
    """Lines on a loop axis that ends at ``loops``: the depth of training and the selected loop, where they lie on it."""
    return trained_rules(view.trajectory.provenance, loops, across=across) + (
        (Rule(at=float(view.loop), across=across, label=f"loop {view.loop}", role=Role("ink"), dash="dot"),)
        if view.loop is not None and 1 <= view.loop <= loops
        else ()
    )


def trained_rules(provenance: Provenance, loops: int, *, across: Literal["horizontal", "vertical"]) -> tuple[Rule, ...]:
    """The mean number of loops in training as a line, where the checkpoint tells it and the axis reaches it."""
    trained = provenance.loops_trained
    if trained is None or trained > loops:
        return ()
    return (Rule(at=float(trained), across=across, label=f"trained: {trained:g} loops", role=Role("ink"), dash="dash"),)


def first_step_rings(held: int, line: Line) -> tuple[Mark, ...]:
    """Open rings on the defined values up to loop ``held``, which contain the step away from the initial state."""
    ringed = (line.x <= held) & ~np.isnan(line.y)
    if not ringed.any():
        return ()
    keys = {name: column[ringed] for name, column in line.columns.items()}
    return (Points(x=line.x[ringed], y=line.y[ringed], columns=keys, role=line.role, glyph="hollow", size=9.0),)


def token_texts(trajectory: Trajectory, ids: Int64[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
    """The text of every token id of a readout, as objects; ``#17`` where the run does not know it."""
    known, place = np.unique(ids, return_inverse=True)
    words = np.array([trajectory.vocabulary.get(int(i), f"#{i}") for i in known], dtype=object)
    return words[place.reshape(ids.shape)]
