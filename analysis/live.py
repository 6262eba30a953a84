"""Exit rules live: the loop really stops, token by token; and how that stands beside the post hoc reading of the same text.

A rule is asked by the very functions that read it post hoc: its ``scores`` on what the token has shown so far, and the
threshold and patience of ``analysis.exit_rule``. There is no second form of any rule.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64

from analysis import study
from analysis.exit_rule import NEVER, ExitRule, default_lens, exits, on_stopping_side
from model.capture.trajectory import BlockTrace, Provenance, ReadoutKey, Run, Trajectory
from model.decoding import ASKED_FROM, Decoding, Exit
from model.request import Prompt, Request, RequestError
from model.running import Moment, Running


def live(
    request: Request,
    rule: ExitRule | None,
    decoding: Decoding,
    *,
    blocks: Collection[int] | None = None,
    progress: study.Progress | None = None,
    cancel: study.Cancel | None = None,
) -> Run:
    """Run the request with the loop stopping where the rule fires; None runs all loops, which is what to compare with.

    ``blocks`` are those that may be left early, None is all. A cancelled run keeps the tokens that were done.
    Raises RequestError for a rule that cannot be asked live or a model that cannot run token by token, MissingReadout
    when no lens of the request gives what the rule reads, and else what ``study.run`` raises.
    """
    exit_ = None if rule is None else live_exit(rule, blocks=blocks)
    return study.generate(request, decoding, exit_, progress=progress, cancel=cancel)


def live_exit(rule: ExitRule, *, blocks: Collection[int] | None = None) -> Exit:
    """The rule as a question for a live run. Raises RequestError when it cannot be answered there."""
    if not rule.causal:
        raise RequestError(
            f"The rule {rule.name!r} judges a loop by later ones or by the true next token, so it exists post hoc only; choose "
            "a causal rule for a live run."
        )
    if getattr(rule, "scope", "token") != "token":
        raise RequestError(
            f"The rule {rule.name!r} with scope {rule.scope!r} averages over tokens that a live run has not read yet; choose "
            "scope token."
        )
    return Exit(_Question(rule, blocks), _words(rule, blocks))


def _words(rule: ExitRule, blocks: Collection[int] | None) -> str:
    where = "" if blocks is None else f", in blocks {', '.join(map(str, sorted(blocks)))} alone"
    return (
        f"{rule.title} ({rule.name}), threshold {rule.threshold:g}, patience {rule.patience}, "
        f"minimum loops {rule.minimum_loops}{where}"
    )


def fires_now(rule: ExitRule, scores: Float64[np.ndarray, "loops 1"]) -> bool:
    """Whether a rule that has not fired before fires at the last row: enough loops, and the last scores all stop it."""
    loops = len(scores)
    if loops < max(rule.minimum_loops, rule.patience):
        return False
    return bool(on_stopping_side(rule, scores[-rule.patience :]).all())


class _Question:
    """Asks a rule about a token inside a block. Views of the running arrays are made once per block and loop."""

    def __init__(self, rule: ExitRule, blocks: Collection[int] | None) -> None:
        self._rule, self._blocks = rule, blocks
        self._first = max(rule.minimum_loops, rule.patience)
        self._views: dict[tuple[int, int], tuple[Running, Trajectory]] = {}

    def __call__(self, moment: Moment) -> bool:
        index = moment.block.index
        if moment.loop < self._first or (self._blocks is not None and index not in self._blocks):
            return False
        return fires_now(self._rule, self._rule.scores(self._view(moment), index))

    def _view(self, moment: Moment) -> Trajectory:
        place = moment.block.index, moment.loop
        known = self._views.get(place)
        if known is None or known[0] is not moment.block:  # another text has arrays of its own
            known = self._views[place] = moment.block, _one_token(moment)
        return known[1]


class _OnDemand(dict[ReadoutKey, np.ndarray]):
    """Readouts that are decoded when a rule looks one up, and not before."""

    def __init__(self, block: Running, loops: int) -> None:
        super().__init__({key: array[:loops] for key, array in block.readouts.items()})
        self._read = block.read

    def __getitem__(self, key: ReadoutKey) -> np.ndarray:
        self._read(key)
        return super().__getitem__(key)


def _one_token(moment: Moment) -> Trajectory:
    """A trajectory of the one token, up to its present loop; its arrays are views and follow the run."""
    traces = [_trace(block, block.loops) for block in moment.earlier]
    nowhere = Provenance(
        checkpoint="", digest="", architecture="", space="", dtype="", device="", seed=0, initial_state="",
        loops_trained=None, noise_floor=0.0, mode="live",
    )  # fmt: skip
    return Trajectory(
        prompt=None,
        token_ids=np.zeros(1, dtype=np.int64),
        labels=("",),
        vocabulary={},
        blocks=(*traces, _trace(moment.block, moment.loop)),
        provenance=nowhere,
    )


def _trace(block: Running, loops: int) -> BlockTrace:
    return BlockTrace(
        name=block.name,
        layers=block.layers,
        loops=loops,
        loops_run=np.full(1, loops, dtype=np.int64),
        nonfinite_from=block.nonfinite_from[:],
        state_norm=block.state_norm[:loops],
        step_norm=block.step_norm[:loops],
        step_cosine=block.step_cosine[:loops],
        acceleration=block.acceleration[:loops],
        drift_in=block.drift_in[:],
        loop_index=np.arange(loops + 1),
        positions=np.zeros(1, dtype=np.int64),
        states=block.states[: loops + 1],
        entry=block.entry[:],
        readouts=_OnDemand(block, loops),
    )


@dataclass(frozen=True)
class Comparison:
    """A live run beside the post hoc reading of the same text, over all tokens that the live run could leave early.

    Those of a prompt that was read in one pass at full depth are not among them.

    Attributes:
        agreement: per block, the share of tokens that leave after equally many loops.
        live_loops, post_hoc_loops: per block, mean loops of a token; K where the rule never fires.
        live, post_hoc, full_depth: cross-entropy in nats per token: of the live run; post hoc at the exits of the last
            block, where earlier tokens are still seen at full depth; after all loops. NaN where no lens was recorded.
        lens: through which they were read, "" for none. tokens: how many there were.
        tokens_per_second: of the live run, readouts for the record left out.
    """

    agreement: tuple[float, ...]
    live_loops: tuple[float, ...]
    post_hoc_loops: tuple[float, ...]
    live: float
    post_hoc: float
    full_depth: float
    lens: str
    tokens: int
    tokens_per_second: float

    @property
    def change(self) -> float:
        """Cross-entropy that stopping early costs: live less full depth."""
        return self.live - self.full_depth


def post_hoc_request(request: Request, found: Run) -> Request:
    """The request of the post hoc run to stand beside a live one: the same in all, on the text as it was written."""
    texts = tuple(Prompt(ids=tuple(int(i) for i in trajectory.token_ids)) for trajectory in found.trajectories)
    return replace(request, prompts=texts)


def compare(found: Run, post_hoc: Run, rule: ExitRule, *, blocks: Collection[int] | None = None) -> Comparison:
    """Set a live run of the rule against a post hoc run of the same text, prompt by prompt.

    ``blocks`` as the live run had it. Raises RequestError when the two are not of the same tokens and blocks.
    """
    pairs = list(zip(found.trajectories, post_hoc.trajectories, strict=False))
    for ours, theirs in pairs:
        _check_pair(ours, theirs)
    if not pairs:
        raise RequestError("There is no prompt to compare; give a live run and a post hoc run of the same text.")
    count, kept = len(pairs[0][0].blocks), [_asked(ours) for ours, _ in pairs]
    tokens = sum(int(some.sum()) for some in kept)
    if not tokens:
        raise RequestError(
            "The live run asked the rule about no token: let it write new tokens, or read the prompt with exits."
        )
    stops = [[_exits(theirs, rule, g, blocks, tokens=ours.tokens) for ours, theirs in pairs] for g in range(count)]
    losses = [_losses(*pair, stop, some) for pair, stop, some in zip(pairs, stops[-1], kept, strict=True)]
    live_, at_exit, full = (np.concatenate([loss[i] for _, loss in losses]) for i in range(3))
    stopped = [np.concatenate([stop[some] for stop, some in zip(of_block, kept, strict=True)]) for of_block in stops]
    ran = [
        np.concatenate([ours.blocks[g].loops_run[some] for (ours, _), some in zip(pairs, kept, strict=True)])
        for g in range(count)
    ]
    seconds = sum(
        float(ours.seconds[some].sum()) for (ours, _), some in zip(pairs, kept, strict=True) if ours.seconds is not None
    )
    return Comparison(
        agreement=tuple(float((a == b).mean()) for a, b in zip(ran, stopped, strict=True)),
        live_loops=tuple(float(a.mean()) for a in ran),
        post_hoc_loops=tuple(float(b.mean()) for b in stopped),
        live=_mean(live_),
        post_hoc=_mean(at_exit),
        full_depth=_mean(full),
        lens=losses[0][0],
        tokens=tokens,
        tokens_per_second=tokens / seconds if seconds > 0 else float("nan"),
    )


def _asked(trajectory: Trajectory) -> Bool[np.ndarray, " tokens"]:
    """Tokens that the rule was asked about."""
    return np.arange(trajectory.tokens) >= int(trajectory.provenance.decoding.get(ASKED_FROM, "0"))


def _check_pair(ours: Trajectory, theirs: Trajectory) -> None:
    same = np.array_equal(ours.token_ids, theirs.token_ids[: ours.tokens])
    if not same or [(b.name, b.loops) for b in ours.blocks] != [(b.name, b.loops) for b in theirs.blocks]:
        raise RequestError(
            f"A live run of {ours.tokens} tokens stands beside a post hoc one of {theirs.tokens} that has other tokens, blocks "
            "or loops; make the post hoc run from post_hoc_request()."
        )


def _exits(
    trajectory: Trajectory, rule: ExitRule, block: int, blocks: Collection[int] | None, *, tokens: int
) -> Int64[np.ndarray, " tokens"]:
    loops = trajectory.blocks[block].loops
    if blocks is not None and block not in blocks:
        return np.full(tokens, loops)
    found = exits(rule, trajectory, block).loop[:tokens]
    return np.where(found == NEVER, loops, found)


def _losses(
    ours: Trajectory, theirs: Trajectory, stop: Int64[np.ndarray, " tokens"], some: Bool[np.ndarray, " tokens"]
) -> tuple[str, tuple[Float64[np.ndarray, " scored"], ...]]:
    """The lens, and -log p of the token after each of ``some``: live, post hoc at the exit, and after all loops."""
    quantity, last, tokens = "log_probability_next", len(ours.blocks) - 1, np.arange(ours.tokens)
    lenses = {lens for lens, name in ours.blocks[last].readouts if name == quantity}
    lenses &= {lens for lens, name in theirs.blocks[last].readouts if name == quantity}
    if not lenses:
        return "", (np.zeros(0),) * 3
    lens = "coda" if "coda" in lenses else default_lens(ours, last, quantity)
    log_p = theirs.blocks[last].readouts[lens, quantity].astype(np.float64)
    own = ours.blocks[last].readouts[lens, quantity].astype(np.float64)
    rows = own[ours.blocks[last].loops_run - 1, tokens], log_p[stop - 1, tokens], log_p[-1, tokens]
    known = some & np.isfinite(np.stack(rows)).all(axis=0)
    return lens, tuple(-row[known] for row in rows)


def _mean(values: Float64[np.ndarray, " tokens"]) -> float:
    return float(values.mean()) if len(values) else float("nan")
