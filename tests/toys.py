"""Small made-up runs for tests: real statistics of made-up states, no torch, no checkpoint.

Imports of our packages stand inside the functions, so that pytest can hook type checks into them first.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from model.capture.trajectory import BlockTrace, Run, Trajectory


def spiral(*, loops: int, tokens: int, width: int, seed: int, shift: float = 0.0) -> np.ndarray:
    """States ``loops+1 tokens width`` (float32) that contract in a spiral towards a random fixed point."""
    generator = np.random.default_rng(seed)
    target = generator.normal(size=(tokens, width)) + shift
    offset = generator.normal(size=(tokens, width))
    turned = np.roll(offset, 1, axis=-1)
    rows = [target + 0.6**k * (np.cos(0.5 * k) * offset + np.sin(0.5 * k) * turned) for k in range(loops + 1)]
    return np.stack(rows).astype(np.float32)


def toy_block(states: np.ndarray, *, name: str = "h[1]", drift_in: np.ndarray | None = None, seed: int = 0) -> "BlockTrace":
    """A block trace with every statistic computed from the given states, and made-up readouts of both lenses."""
    from analysis import steps
    from model.capture.trajectory import BlockTrace

    loops, tokens = int(states.shape[0]) - 1, int(states.shape[1])
    broken = np.asarray(~np.isfinite(states).all(axis=2))
    nonfinite = np.where(broken.any(axis=0), np.argmax(broken, axis=0), 0).astype(np.int64)
    return BlockTrace(
        name=name,
        layers=(1,),
        loops=loops,
        loops_run=np.full((tokens,), loops, dtype=np.int64),
        nonfinite_from=nonfinite,
        state_norm=steps.norms(states[1:]),
        step_norm=steps.step_norms(states),
        step_cosine=steps.step_cosines(states),
        acceleration=steps.accelerations(states),
        drift_in=np.full((tokens,), np.nan) if drift_in is None else drift_in,
        loop_index=np.arange(loops + 1, dtype=np.int64),
        positions=np.arange(tokens, dtype=np.int64),
        states=states.astype(np.float32),
        entry=states[0].astype(np.float32),
        readouts=toy_readouts(loops, tokens, seed=seed),
    )


def toy_readouts(loops: int, tokens: int, *, seed: int) -> dict[tuple[str, str], np.ndarray]:
    """Made-up readouts in the shapes and dtypes that a real run has."""
    generator = np.random.default_rng(seed)
    shrink = 0.4 ** np.arange(loops)[:, None] * np.ones(tokens)
    previous = np.where(np.arange(loops)[:, None] == 0, np.nan, shrink)
    following = generator.normal(-3, 0.1, size=(loops, tokens))
    following[:, -1] = np.nan
    probability = np.sort(generator.dirichlet(np.ones(12), size=(loops, tokens)), axis=-1)[..., ::-1][..., :10]
    made = {
        "entropy": generator.uniform(1, 4, size=(loops, tokens)),
        "kl_previous": previous,
        "kl_last": np.where(np.arange(loops)[:, None] == loops - 1, 0.0, shrink),
        "log_probability_next": following,
        "top10_probability": np.ascontiguousarray(probability),
        "top10_id": generator.integers(0, 40, size=(loops, tokens, 10)),
    }
    return {
        (lens, quantity): array.astype(np.int64 if quantity == "top10_id" else np.float32)
        for lens in ("logit", "coda")
        for quantity, array in made.items()
    }


def toy_trajectory(
    *, loops: int = 8, tokens: int = 5, width: int = 6, blocks: int = 3, seed: int = 0, labels: tuple[str, ...] | None = None
) -> "Trajectory":
    """One prompt through ``blocks`` looped blocks. The coda lens stands on the last block only, as in real runs."""
    from analysis import steps
    from model.capture.trajectory import Provenance, Trajectory

    traces: list[BlockTrace] = []
    last: np.ndarray | None = None
    for g in range(blocks):
        states = spiral(loops=loops, tokens=tokens, width=width, seed=seed * 10 + g, shift=2.0 * g)
        drift = None if last is None else steps.norms(states[1].astype(np.float64) - last)
        trace = toy_block(states, name=f"h[{g + 1}]", drift_in=drift, seed=seed * 10 + g)
        if g < blocks - 1:
            for key in [key for key in trace.readouts if key[0] == "coda"]:
                del trace.readouts[key]  # type: ignore[attr-defined]
        traces.append(trace)
        last = states[-1].astype(np.float64)
    return Trajectory(
        prompt="toy",
        token_ids=np.arange(tokens, dtype=np.int64),
        labels=labels if labels is not None else tuple(f"·t{i}" for i in range(tokens)),
        vocabulary={i: f"w{i}" for i in range(40)},
        blocks=tuple(traces),
        provenance=Provenance(
            checkpoint="toy",
            digest="0" * 64,
            architecture="latent_ttc",
            space="raw",
            dtype="float32",
            device="cpu",
            seed=seed,
            initial_state="normal(0.1)",
            loops_trained=8.0,
            noise_floor=1e-6,
            versions={"torch": "0"},
        ),
    )


def toy_run(*, prompts: int = 2, loops: int = 8, tokens: int = 5, width: int = 6, blocks: int = 3, seed: int = 0) -> "Run":
    """A run of several prompts of different length."""
    from model.capture.trajectory import Run

    return Run(
        request={},
        trajectories=tuple(
            toy_trajectory(loops=loops, tokens=tokens + i, width=width, blocks=blocks, seed=seed + i) for i in range(prompts)
        ),
    )
