"""Trajectory and Run: what a captured pass is, and how it lies on disk (safetensors, no pickle, no torch)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from .place import checkpoint_in

FORMAT = 1
Mode = Literal["post hoc", "live"]
ReadoutKey = tuple[str, str]


class RunFormatError(ValueError):
    """A run folder that cannot be read; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from; stands on every chart and in every export.

    Attributes:
        space: what a state is: ``raw`` block output, or ``normed`` by the family inside the loop.
        noise_floor: relative step norm below which a step is rounding of ``dtype``.
        loops_trained: mean loops per block in training; None where the checkpoint does not tell.
        mode: ``post hoc`` (one full-depth pass) or ``live`` (the loop really stopped).
        decoding: how a live run decoded, in words: exit rule, prompt, sampling, speed; empty post hoc.
    """

    checkpoint: str
    digest: str
    architecture: str
    space: str
    dtype: str
    device: str
    seed: int
    initial_state: str
    loops_trained: float | None
    noise_floor: float
    mode: Mode = "post hoc"
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    decoding: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class BlockTrace:
    """What one looped block did to the tokens of one prompt.

    Rows of ``loops`` arrays are loops 1..K, so row r is loop r + 1. Undefined is NaN. ``tokens`` are all
    positions of the prompt; ``kept`` are those whose states are stored.

    Attributes:
        name, layers: the block's name and the indices of its layers.
        loops: K, the loops asked for.
        loops_run: loops that ran per token; less than K only where a live run stopped.
        nonfinite_from: first loop after which the token's state holds Inf or NaN; 0 where it never does.
        state_norm: ||x^(k)||_2. step_norm: ||x^(k) - x^(k-1)||_2.
        step_cosine: cosine of steps k and k-1 (k >= 2). acceleration: ||step k - step k-1||_2 (k >= 2).
        drift_in: ||x_g^(1) - x_(g-1)^(K)||_2, the jump at the hand-off into this block; NaN for the first.
        loop_index: loop number of each stored state, 0 is the initial state.
        positions: token position of each kept token.
        states: stored iterates. entry: what enters the block from below, at the kept tokens;
            it may be of another width than the states.
        readouts: (lens, quantity) -> array ``loops tokens`` or ``loops tokens n``.
    """

    name: str
    layers: tuple[int, ...]
    loops: int
    loops_run: Int64[np.ndarray, " tokens"]
    nonfinite_from: Int64[np.ndarray, " tokens"]
    state_norm: Float64[np.ndarray, "loops tokens"]
    step_norm: Float64[np.ndarray, "loops tokens"]
    step_cosine: Float64[np.ndarray, "loops tokens"]
    acceleration: Float64[np.ndarray, "loops tokens"]
    drift_in: Float64[np.ndarray, " tokens"]
    loop_index: Int64[np.ndarray, " stored"]
    positions: Int64[np.ndarray, " kept"]
    states: Float32[np.ndarray, "stored kept width"]
    entry: Float32[np.ndarray, "kept entry_width"]
    readouts: Mapping[ReadoutKey, Shaped[np.ndarray, "loops tokens *n"]]


_BLOCK_ARRAYS = (
    "loops_run",
    "nonfinite_from",
    "state_norm",
    "step_norm",
    "step_cosine",
    "acceleration",
    "drift_in",
    "loop_index",
    "positions",
    "states",
    "entry",
)


@dataclass(frozen=True)
class Trajectory:
    """One prompt's way through the looped blocks. Arrays are read-only.

    Attributes:
        prompt: the text that was tokenized; None when ids were given.
        token_ids: the ids that went in. labels: each as a person can read it, whitespace visible.
        vocabulary: text of every token id that occurs in a readout.
        blocks: in the order in which they run.
        left_out: reasons for what was asked for and not recorded ("coda lens: ...").
        seconds: what each token of a live run took, its readouts for the record left out; None post hoc.
    """

    prompt: str | None
    token_ids: Int64[np.ndarray, " tokens"]
    labels: tuple[str, ...]
    vocabulary: Mapping[int, str]
    blocks: tuple[BlockTrace, ...]
    provenance: Provenance
    left_out: tuple[str, ...] = ()
    seconds: Float64[np.ndarray, " tokens"] | None = None

    def __post_init__(self) -> None:
        self.token_ids.flags.writeable = False
        if self.seconds is not None:
            self.seconds.flags.writeable = False
        for block in self.blocks:
            for name in _BLOCK_ARRAYS:
                getattr(block, name).flags.writeable = False
            for array in block.readouts.values():
                array.flags.writeable = False

    @property
    def tokens(self) -> int:
        """Number of tokens of the prompt."""
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays hold."""
        return sum(
            sum(getattr(block, name).nbytes for name in _BLOCK_ARRAYS) + sum(a.nbytes for a in block.readouts.values())
            for block in self.blocks
        )


@dataclass(frozen=True)
class Run:
    """A request (as JSON values; empty for runs recorded outside Loopscope) and one trajectory per prompt."""

    request: Mapping[str, Any]
    trajectories: tuple[Trajectory, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays of all prompts hold."""
        return sum(trajectory.nbytes for trajectory in self.trajectories)


def save_trajectory(trajectory: Trajectory, path: Path) -> None:
    """Write one trajectory as a .safetensors file whose header carries everything that is no array."""
    arrays: dict[str, np.ndarray] = {"token_ids": trajectory.token_ids}
    if trajectory.seconds is not None:
        arrays["seconds"] = trajectory.seconds
    blocks: list[dict[str, Any]] = []
    for g, block in enumerate(trajectory.blocks):
        arrays |= {f"{g}.{name}": np.ascontiguousarray(getattr(block, name)) for name in _BLOCK_ARRAYS}
        arrays |= {f"{g}.readout.{lens}.{quantity}": np.ascontiguousarray(a) for (lens, quantity), a in block.readouts.items()}
        blocks.append({"name": block.name, "layers": block.layers, "loops": block.loops})
    header = {
        "format": FORMAT,
        "prompt": trajectory.prompt,
        "labels": trajectory.labels,
        "vocabulary": {str(i): text for i, text in trajectory.vocabulary.items()},
        "blocks": blocks,
        "provenance": asdict(trajectory.provenance),
        "left_out": trajectory.left_out,
    }
    # One entry only: the library writes several in an order that changes from call to call.
    save_file(arrays, path, metadata={"trajectory": json.dumps(header)})


def load_trajectory(path: Path) -> Trajectory:
    """Read what ``save_trajectory`` wrote. Raises RunFormatError when the file is damaged or of another kind."""
    try:
        reader: Any = safe_open(path, framework="numpy")  # the library has no types
        with reader as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            header: dict[str, Any] = json.loads(metadata.get("trajectory", "{}"))
            if header.get("format") != FORMAT:
                found = header.get("format", "none")
                raise RunFormatError(f"{path.name} has run format {found}; this version reads {FORMAT}.")
            arrays: dict[str, np.ndarray] = {name: file.get_tensor(name) for name in list(file.keys())}
        return _assemble(header, arrays)
    except RunFormatError:
        raise
    except FileNotFoundError as error:
        raise RunFormatError(f"{path} is missing; copy the whole run folder.") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunFormatError(f"{path.name} is no trajectory that can be read ({error}); save the run again.") from error


def _assemble(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Trajectory:
    blocks: list[BlockTrace] = []
    for g, block in enumerate(header["blocks"]):
        prefix = f"{g}.readout."
        readouts: dict[ReadoutKey, np.ndarray] = {}
        for name, array in arrays.items():
            if name.startswith(prefix):
                lens, quantity = name.removeprefix(prefix).split(".", 1)
                readouts[lens, quantity] = array
        values: dict[str, Any] = {name: arrays[f"{g}.{name}"] for name in _BLOCK_ARRAYS}
        blocks.append(
            BlockTrace(name=block["name"], layers=tuple(block["layers"]), loops=block["loops"], readouts=readouts, **values)
        )
    return Trajectory(
        prompt=header["prompt"],
        token_ids=arrays["token_ids"],
        labels=tuple(header["labels"]),
        vocabulary={int(i): text for i, text in header["vocabulary"].items()},
        blocks=tuple(blocks),
        provenance=Provenance(**header["provenance"]),
        left_out=tuple(header["left_out"]),
        seconds=arrays.get("seconds"),
    )


def save_run(run: Run, folder: Path) -> None:
    """Write a run folder: run.json and prompt-0000.safetensors and so on. Files of an older run there are replaced.

    Raises ValueError when a checkpoint lies in the folder.
    """
    taken = checkpoint_in(folder)
    if taken is not None:
        raise ValueError(f"{folder} holds a checkpoint ({taken}), not a run; give a folder of its own to the run.")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("prompt-*.safetensors"):
        old.unlink()
    index = folder / "run.json"
    index.write_text("", encoding="utf-8")
    files: dict[str, str] = {}
    for i, trajectory in enumerate(run.trajectories):
        path = folder / f"prompt-{i:04d}.safetensors"
        save_trajectory(trajectory, path)
        path.chmod(index.stat().st_mode)  # safetensors writes files that only their owner can read
        files[path.name] = _digest(path)
    summary = {"format": FORMAT, "request": run.request, "prompts": files}
    index.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_run(folder: Path) -> Run:
    """Read a run folder. Raises RunFormatError naming the file that is missing or damaged.

    Every file is compared with the sha256 that run.json holds, so that a flipped bit never becomes a figure.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise RunFormatError(f"{folder} is no run folder: it has no run.json. Give the folder that `loopscope run` wrote.")
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        if summary["format"] != FORMAT:
            raise RunFormatError(f"{path} has run format {summary['format']}; this version reads {FORMAT}.")
        files: Mapping[str, str] = dict(summary["prompts"])
        request: Mapping[str, Any] = summary["request"]
    except RunFormatError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise RunFormatError(f"{path} cannot be read ({error}); save the run again.") from error
    for name, digest in files.items():
        if Path(name).name != name:
            raise RunFormatError(f"{path} points outside its folder ({name}); it was edited by hand.")
        if (folder / name).is_file() and _digest(folder / name) != digest:
            raise RunFormatError(f"{name} is not the file that was saved (its sha256 differs); copy it again, or run again.")
    return Run(request=request, trajectories=tuple(load_trajectory(folder / name) for name in files))
