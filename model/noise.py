"""Initial states: noise keyed by (seed, block, position), zeros, the family's own rule, or a file."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from model.locate import file_digest
from model.request import InitialState, RequestError
from model.start import InitialRule


def keyed_noise(
    *, seed: int, block: int, tokens: int, width: int, cut: float | None = None
) -> Float32[np.ndarray, "tokens width"]:
    """Standard normal noise whose row depends on (seed, block, position) alone.

    A longer prompt, or another one beside it, never changes the rows of earlier positions. With ``cut``, numbers
    beyond that many standard deviations are drawn again from the same stream: a truncated normal.
    """
    rows = np.empty((tokens, width), dtype=np.float32)
    for position in range(tokens):
        stream = np.random.Generator(np.random.Philox(key=[seed, block], counter=[0, 0, 0, position]))
        row = stream.standard_normal(width)
        while cut is not None and (beyond := np.abs(row) > cut).any():
            row[beyond] = stream.standard_normal(int(beyond.sum()))
        rows[position] = row
    return rows


def ruled_noise(rule: InitialRule, *, seed: int, block: int, tokens: int, width: int) -> Float32[np.ndarray, "tokens width"]:
    """The noise of a family's own start, keyed as above."""
    rows = keyed_noise(seed=seed, block=block, tokens=tokens, width=width, cut=rule.cut)
    if rule.standardised:
        rows = (rows - rows.mean(axis=-1, keepdims=True)) / (rows.std(axis=-1, ddof=1, keepdims=True) + 1e-8)
    return (rows * np.float32(rule.std)).astype(np.float32)


def read_initial_states(path: str, blocks: int) -> list[Float32[np.ndarray, "tokens width"]]:
    """Arrays ``initial_state_0``.. of an .npz file, one per block. Raises RequestError when one is missing or odd."""
    file = Path(path)
    if not file.is_file():
        raise RequestError(f"The initial-state file {path!r} is not there; give an .npz with initial_state_0 and so on.")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: np.asarray(arrays[name]) for name in arrays.files if name.startswith("initial_state_")}
    except (OSError, ValueError) as error:
        raise RequestError(f"{file.name} is no .npz file that can be read ({error}).") from error
    states: list[np.ndarray] = []
    for block in range(blocks):
        array = found.get(f"initial_state_{block}")
        if array is None:
            raise RequestError(f"{file.name} has no array initial_state_{block}; the model has {blocks} looped blocks.")
        if array.ndim != 2 or array.dtype.kind != "f":
            raise RequestError(
                f"initial_state_{block} in {file.name} is {array.dtype} {array.shape}; expected floats, tokens x width."
            )
        states.append(array.astype(np.float32))
    return states


def words(state: InitialState, trained: str) -> str:
    """The initial state in words, for provenance."""
    named = {"trained": f"as trained: {trained}", "zeros": "zeros", "file": f"file {Path(state.path or '').name}"}
    return f"Gaussian noise of std {state.std:g}" if state.kind == "normal" else named[state.kind]


def initial_state_digest(path: str) -> str:
    """sha256 of the initial-state file. Raises RequestError when there is none."""
    if not Path(path).is_file():
        raise RequestError(f"The initial-state file {path!r} is not there; give an .npz with initial_state_0 and so on.")
    return file_digest(Path(path))
