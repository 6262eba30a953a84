"""Says chart: what the model would say after each loop, and how sure it would be."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64

from analysis.caption import counted, joined, nonfinite_words, source_words
from analysis.chart import Chart, ChartError, Heatmap, Panel, View
from analysis.exit_rule import recorded_lens
from analysis.keys import Keys, grid_keys, loop_axis, loop_numbers, token_axis, token_texts
from model.capture.trajectory import Trajectory

_HOVERED = 5
"""Alternatives that stand beside the first choice in a row's columns."""


@dataclass(frozen=True)
class SaysChart:
    """Tokens across, loops downwards; each cell holds the likeliest next token, its shade the probability.

    Attributes:
        lens: how iterates are decoded; ``default`` is the coda's where it was recorded, else the logit lens.
        window: half-open range of token positions to show; None shows all.
    """

    name: ClassVar[str] = "says"
    title: ClassVar[str] = "What the model says"

    lens: Literal["default", "logit", "coda"] = "default"
    window: tuple[int, int] | None = None

    def build(self, view: View) -> Chart:
        """The table of the selected block and prompt. Raises MissingReadout where the lens was not recorded."""
        trajectory, trace = view.trajectory, view.trajectory.blocks[view.block]
        lens = recorded_lens(trajectory, view.block, "top10_id", wanted=self.lens)
        positions = self._positions(trajectory)
        probability = trace.readouts[lens, "top10_probability"][:, positions].astype(np.float64)
        said = token_texts(trajectory, trace.readouts[lens, "top10_id"][:, positions])
        said[np.isnan(probability)] = ""
        loops = loop_numbers(trace.loops)
        keys = grid_keys(view, positions=positions, loops=loops, block=view.block)
        heat = Heatmap(
            x=positions.astype(np.float64),
            y=loops.astype(np.float64),
            values=probability[..., 0],
            columns=keys | _columns(said, probability, following=_following(trajectory)[keys["position"]]),
            value_title="probability",
            palette="probability",
            text=said[..., 0].astype(str),
            limits=(0.0, 1.0),
        )
        return Chart(
            name=self.name,
            title=f"{self.title}, block {trace.name}, {lens} lens",
            panels=(Panel(x=token_axis(trajectory, positions), y=loop_axis(trace.loops, down=True), marks=(heat,)),),
            caption=joined(
                f"Likeliest next token after each loop of block {trace.name} (K = {trace.loops}), by the {lens} lens"
                f"{_LENS_WORDS[lens]}; the shade is its probability.",
                f"Tokens {positions[0]} to {positions[-1]} of {trajectory.tokens}." if self.window else "",
                source_words(trajectory.provenance),
            ),
            alt=_alt(said[..., 0], probability[..., 0], name=trace.name),
            provenance=trajectory.provenance,
            warnings=nonfinite_words(trajectory, (view.block,)),
        )

    def _positions(self, trajectory: Trajectory) -> Int64[np.ndarray, " tokens"]:
        start, stop = self.window or (0, trajectory.tokens)
        if not 0 <= start < min(stop, trajectory.tokens):
            raise ChartError(f"Tokens {start}:{stop} were asked for; this prompt has tokens 0 to {trajectory.tokens - 1}.")
        return np.arange(start, min(stop, trajectory.tokens), dtype=np.int64)


_LENS_WORDS = {"logit": " (the model's own norm and head on the iterate)", "coda": " (through the rest of the network)"}


def _following(trajectory: Trajectory) -> np.ndarray:
    """The true next token of every position; "" at the last."""
    return np.array([*trajectory.labels[1:], ""])


def _columns(said: np.ndarray, probability: Float64[np.ndarray, "loops tokens n"], *, following: np.ndarray) -> Keys:
    """The true next token, then the likeliest ones with their probabilities."""
    columns: Keys = {"next": following}
    for rank in range(min(_HOVERED, said.shape[-1])):
        columns[f"top{rank + 1}"] = said[..., rank].ravel().astype(str)
        columns[f"top{rank + 1}_probability"] = probability[..., rank].ravel()
    return columns


def _alt(said: np.ndarray, probability: Float64[np.ndarray, "loops tokens"], *, name: str) -> str:
    settled = int(np.sum((said == said[-1]).all(axis=0)))
    first, last = (_middle(probability[row]) for row in (0, -1))
    return (
        f"Likeliest next token of {counted(said.shape[1], 'token')} over {counted(said.shape[0], 'loop')} of block {name}; "
        f"its median probability goes from {first} to {last}, and {counted(settled, 'token')} never changed."
    )


def _middle(values: Float64[np.ndarray, " tokens"]) -> str:
    defined = values[~np.isnan(values)]
    return f"{np.median(defined):.2g}" if len(defined) else "undefined"
