"""A made-up pass that exit rules can be watched on: states, inputs, distributions and a gate, and the run recorded of it."""

from dataclasses import dataclass, replace

import numpy as np

from model.capture.trajectory import Trajectory
from tests.toys import toy_block, toy_trajectory

VOCABULARY = 12


@dataclass(frozen=True)
class Step:
    """What one token's pass looks like right after one loop; nothing else is known then."""

    state: np.ndarray
    before: np.ndarray
    given: np.ndarray
    p: np.ndarray
    gate: np.float32
    following: int


@dataclass(frozen=True)
class World:
    """states ``loops+1 tokens width``, given (the adapted input) ``loops tokens width``, p ``loops tokens V``."""

    states: np.ndarray
    given: np.ndarray
    p: np.ndarray
    gate: np.ndarray
    following: np.ndarray

    @property
    def loops(self) -> int:
        return len(self.p)

    @property
    def tokens(self) -> int:
        return self.p.shape[1]

    def step(self, loop: int, token: int) -> Step:
        """The view after ``loop`` loops."""
        row = loop - 1
        return Step(
            state=self.states[loop, token],
            before=self.states[row, token],
            given=self.given[row, token],
            p=self.p[row, token],
            gate=self.gate[row, token],
            following=int(self.following[token]),
        )


def world(seed: int, *, loops: int = 9, tokens: int = 3, width: int = 5) -> World:
    """States that come to rest, each with a distribution of its own; the last token has no next one."""
    generator = np.random.default_rng(seed)
    shrink = generator.uniform(0.3, 0.9, size=(1, tokens, 1)) ** np.arange(loops + 1)[:, None, None]
    noise = generator.normal(size=(loops + 1, tokens, width)) * shrink
    states = (generator.normal(size=(tokens, width)) + noise).astype(np.float32).astype(np.float64)
    head = generator.normal(size=(width, VOCABULARY)) * 2
    logits = states[1:] @ head
    p = np.exp(logits - logits.max(-1, keepdims=True))
    following = generator.integers(0, VOCABULARY, size=tokens)
    following[-1] = -1
    return World(
        states=states,
        given=states[:-1] + generator.normal(size=(tokens, width)),
        p=p / p.sum(-1, keepdims=True),
        gate=generator.uniform(0, 0.6, size=(loops, tokens)).astype(np.float32),
        following=following,
    )


def recorded(made: World) -> Trajectory:
    """The run that would have been recorded, every quantity among it, in the dtypes of a real one."""
    p, loops, tokens = made.p, made.loops, made.tokens
    steps = made.states[1:] - made.given
    change = np.full((loops, tokens), np.nan)
    change[1:] = np.linalg.norm(np.diff(steps, axis=0), axis=-1)
    uniform = np.full_like(p, 1 / p.shape[-1])
    order = np.argsort(-p, axis=-1)[..., :10]
    decoded = {
        "entropy": -(p * np.log(p)).sum(-1),
        "kl_previous": _shifted(kl(p[:-1], p[1:])),
        "kl_reverse": _shifted(kl(p[1:], p[:-1])),
        "kl_uniform": kl(uniform, p),
        "kl_uniform_reverse": kl(p, uniform),
        "min_p_kl": _shifted(kl(min_p(p[:-1]), min_p(p[1:]))),
        "min_p_kl_uniform": kl(uniform, min_p(p)),
        "top10_probability": np.take_along_axis(p, order, axis=-1),
        "log_probability_next": np.where(made.following < 0, np.nan, np.log(p[:, np.arange(tokens), made.following])),
    }
    readouts = {("coda", name): array.astype(np.float32) for name, array in decoded.items()}
    readouts["coda", "top10_id"] = order
    readouts["gate", "gate_probability"] = made.gate
    readouts["block", "adapted_step_norm"] = np.linalg.norm(steps, axis=-1)
    readouts["block", "adapted_acceleration"] = change
    block = replace(toy_block(made.states.astype(np.float32)), readouts=readouts)
    return replace(toy_trajectory(loops=loops, tokens=tokens, blocks=1), blocks=(block,))


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Plain KL over the last axis."""
    return np.sum(p * (np.log(p) - np.log(q)), axis=-1)


def min_p(p: np.ndarray) -> np.ndarray:
    """Probabilities below a tenth of the largest set to 1/V, renormalised."""
    kept = np.where(p < 0.1 * p.max(-1, keepdims=True), 1 / p.shape[-1], p)
    return kept / kept.sum(-1, keepdims=True)


def _shifted(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.full((1, values.shape[1]), np.nan), values])
