"""Live decoding: equal to one pass where nothing stops, the reference's continuation, an honest record where it does."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model import generate as module
from model.capture.buffer import BlockBuffer
from model.capture.trajectory import Run, Trajectory, load_run, save_run
from model.decoding import Decoding, Exit, ReadPrompt, Sampling
from model.generate import generate
from model.memory import MemoryLimit
from model.request import Cancelled, InitialState, Prompt, Record, Request, RequestError
from model.runner import run
from model.running import Moment, Running
from model.skeleton import PreludeCoreCoda
from tests.model.zoo import DATA, NATIVE, TRAINED, Reference, named

SMALL = Reference("parcae-tiny", "parcae")
TWO_BLOCKS = Reference("latent_ttc-concat", "latent_ttc")
NEVER_LEAVES = Exit(lambda moment: False, "never")
NUMBERS = ("state_norm", "step_norm", "acceleration", "drift_in", "states", "entry")


def at(*loops: int) -> Exit:
    """Leaves block g after ``loops[g]`` loops; with one number all blocks."""
    return Exit(lambda moment: moment.loop == loops[moment.block.index % len(loops)], "fixed")


def asked(reference: Reference, *, loops: int = 5, tokens: int = 9, **changes: Any) -> Request:
    ids = tuple(int(i) for i in reference.golden["input_ids"][:tokens])
    return Request(reference.path, (Prompt(ids=ids),), (loops,), **changes)


def first(found: Run) -> Trajectory:
    return found.trajectories[0]


READ = [*((reference, "exits") for reference in NATIVE), *((reference, "full depth") for reference in (TWO_BLOCKS, *TRAINED))]


@pytest.mark.parametrize(("reference", "prompt"), READ, ids=[f"{reference.folder}, {prompt}" for reference, prompt in READ])
def test_where_nothing_stops_live_is_post_hoc(reference: Reference, prompt: ReadPrompt) -> None:
    request = asked(reference)
    post_hoc = first(run(request))
    live = first(generate(request, Decoding(prompt=prompt), NEVER_LEAVES))
    assert live.provenance == replace(post_hoc.provenance, mode="live", decoding=live.provenance.decoding)
    assert live.labels == post_hoc.labels
    for ours, theirs in zip(live.blocks, post_hoc.blocks, strict=True):
        assert (ours.loops_run == 5).all()
        assert (ours.name, ours.layers, ours.loops) == (theirs.name, theirs.layers, theirs.loops)
        for name in NUMBERS:
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-4, rtol=1e-4, err_msg=name)
        long = theirs.step_norm > 1e-3 * theirs.state_norm  # the angle of a short step is rounding
        np.testing.assert_allclose(ours.step_cosine[long], theirs.step_cosine[long], atol=1e-3)
        assert set(ours.readouts) == set(theirs.readouts)
        for (lens, quantity), array in theirs.readouts.items():
            rows, found = array, ours.readouts[lens, quantity]
            if lens == "coda" and prompt == "exits":
                # A live coda sees earlier tokens as they left: alike in the last loop alone, and two loops nowhere.
                if "kl" in quantity:
                    continue
                rows, found = array[-1:], found[-1:]
            if array.dtype.kind == "f":
                np.testing.assert_allclose(found, rows, atol=1e-4, rtol=1e-3, err_msg=f"{lens} {quantity}")


@pytest.mark.parametrize("reference", TRAINED, ids=named)
def test_the_greedy_continuation_is_that_of_the_reference(reference: Reference) -> None:
    wanted = reference.golden
    loops = json.loads((DATA / reference.folder / "golden.json").read_text())["text"]["loops"]
    start = InitialState("trained" if reference.family == "ouro" else "zeros")
    prompt = Prompt(ids=tuple(int(i) for i in wanted["prompt_ids"]))
    request = Request(reference.path, (prompt,), (loops,), initial_state=start, lenses=())
    count = len(wanted["continuation_ids"])
    live = first(generate(request, Decoding(new_tokens=count, prompt="full depth")))
    np.testing.assert_array_equal(live.token_ids[-count:], wanted["continuation_ids"])
    assert live.tokens == len(wanted["prompt_ids"]) + count


def test_tokens_that_left_have_nothing_beyond_their_exit_and_everything_before() -> None:
    reference = TWO_BLOCKS
    blocks = len(run(asked(reference)).trajectories[0].blocks)
    live = first(generate(asked(reference), Decoding(), at(2, 4, 3)))
    for block, ran in zip(live.blocks, (2, 4, 3)[:blocks], strict=True):
        assert (block.loops_run == ran).all()
        assert block.loops == 5
        assert (block.nonfinite_from == 0).all(), "what was not run is not non-finite"
        for array in (block.state_norm, block.step_norm):
            assert np.isfinite(array[:ran]).all()
            assert np.isnan(array[ran:]).all()
        assert np.isfinite(block.step_cosine[1:ran]).all()
        assert np.isfinite(block.states[: ran + 1]).all()
        assert np.isnan(block.states[ran + 1 :]).all()
        for (lens, quantity), array in block.readouts.items():
            assert (np.isnan(array[ran:]) if array.dtype.kind == "f" else array[ran:] == -1).all(), (lens, quantity)
        assert np.isfinite(block.readouts["logit", "entropy"][:ran]).all()
        np.testing.assert_allclose(block.readouts["logit", "kl_last"][ran - 1], 0, atol=1e-9)
    last = live.blocks[-1].readouts["coda", "log_probability_next"]
    assert np.isfinite(last[: live.blocks[-1].loops_run[0], :-1]).all()
    assert np.isnan(last[:, -1]).all()


def test_the_first_token_sees_nothing_of_exits_and_later_ones_do() -> None:
    request = asked(TWO_BLOCKS)
    post_hoc, live = first(run(request)), first(generate(request, Decoding(), at(2)))
    np.testing.assert_allclose(live.blocks[0].states[:3, 0], post_hoc.blocks[0].states[:3, 0], atol=1e-5)
    apart = np.abs(live.blocks[-1].states[:3, 1:] - post_hoc.blocks[-1].states[:3, 1:]).max()
    assert apart > 1e-3


def test_the_prompt_is_read_with_exits_or_at_full_depth() -> None:
    request = asked(TWO_BLOCKS, tokens=4)
    exits = first(generate(request, Decoding(new_tokens=3), at(2)))
    full = first(generate(request, Decoding(new_tokens=3, prompt="full depth"), at(2)))
    assert exits.blocks[0].loops_run.tolist() == [2] * 7
    assert full.blocks[0].loops_run.tolist() == [5] * 4 + [2] * 3
    assert "with exits" in exits.provenance.decoding["prompt"]
    assert "one pass" in full.provenance.decoding["prompt"]
    for trajectory in (exits, full):
        assert trajectory.provenance.decoding["written"] == "3 tokens, greedy"
        assert trajectory.seconds is not None
        assert (trajectory.seconds > 0).all()


def test_every_new_token_is_run_and_scored_by_the_one_that_follows() -> None:
    request = asked(SMALL, tokens=3)
    live = first(generate(request, Decoding(new_tokens=4)))
    log_p = live.blocks[-1].readouts["coda", "log_probability_next"][-1]
    top = live.blocks[-1].readouts["coda", "top10_id"][-1, :, 0]
    np.testing.assert_array_equal(top[2:-1], live.token_ids[3:])
    likeliest = live.blocks[-1].readouts["coda", "top10_probability"][-1, 2:-1, 0]
    np.testing.assert_allclose(log_p[2:-1], np.log(likeliest), atol=1e-4)
    again = first(run(replace(request, prompts=(Prompt(ids=tuple(int(i) for i in live.token_ids)),))))
    np.testing.assert_allclose(log_p, again.blocks[-1].readouts["coda", "log_probability_next"][-1], atol=1e-4)


def test_a_saved_live_run_comes_back_equal(tmp_path: Path) -> None:
    live = generate(asked(TWO_BLOCKS), Decoding(new_tokens=2), at(3))
    save_run(live, tmp_path)
    back = first(load_run(tmp_path))
    ours = first(live)
    assert ours.seconds is not None
    assert back.seconds is not None
    np.testing.assert_array_equal(back.seconds, ours.seconds)
    assert back.provenance == ours.provenance
    for a, b in zip(back.blocks, ours.blocks, strict=True):
        np.testing.assert_array_equal(a.states, b.states)
        np.testing.assert_array_equal(a.loops_run, b.loops_run)


def test_recorded_states_follow_the_request() -> None:
    whole = first(generate(asked(SMALL), Decoding(new_tokens=1), at(3)))
    thin = first(generate(asked(SMALL, record=Record(every=2, positions=(2, 30))), Decoding(new_tokens=1), at(3)))
    none = first(generate(asked(SMALL, record=Record(states=False)), Decoding(new_tokens=1), at(3)))
    block = thin.blocks[0]
    assert block.loop_index.tolist() == [0, 1, 2, 4, 5]
    assert block.positions.tolist() == list(range(2, 10))
    np.testing.assert_array_equal(block.states, whole.blocks[0].states[block.loop_index][:, 2:])
    np.testing.assert_array_equal(block.entry, whole.blocks[0].entry[2:])
    assert none.blocks[0].states.shape[:2] == (0, 0)
    for other in (thin, none):
        np.testing.assert_array_equal(other.blocks[0].acceleration, whole.blocks[0].acceleration)


def after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_a_stopped_run_keeps_the_tokens_that_were_done() -> None:
    request = asked(SMALL, tokens=5)
    per_token = 5 * len(run(request).trajectories[0].blocks)
    whole = first(generate(request, Decoding(new_tokens=6)))
    part = first(generate(request, Decoding(new_tokens=6), cancel=after(7 * per_token + 2)))
    assert part.tokens == 7
    np.testing.assert_array_equal(part.token_ids, whole.token_ids[:7])
    for a, b in zip(part.blocks, whole.blocks, strict=True):
        np.testing.assert_array_equal(a.states, b.states[:, :7])
        for key, array in a.readouts.items():
            np.testing.assert_array_equal(array, b.readouts[key][:, :7])
    assert "tokens 7 to 10: the run was stopped after 7 of 11 tokens" in part.left_out
    assert part.provenance.decoding["written"].startswith("2 tokens")
    with pytest.raises(Cancelled, match="before its first token"):
        generate(request, Decoding(), cancel=lambda: True)


def test_a_run_stopped_in_its_second_prompt_keeps_the_first() -> None:
    request = asked(SMALL, tokens=3)
    request = replace(request, prompts=(*request.prompts, Prompt(ids=(1, 2, 3))))
    per_token = 5 * len(first(run(request)).blocks)
    assert [t.tokens for t in generate(request, Decoding(), cancel=after(3 * per_token)).trajectories] == [3]
    assert [t.tokens for t in generate(request, Decoding(), cancel=after(5 * per_token)).trajectories] == [3, 2]


def test_progress_rises_to_one() -> None:
    told: list[float] = []
    request = asked(SMALL, tokens=3)
    request = replace(request, prompts=(*request.prompts, Prompt(ids=(1, 2))))
    generate(request, Decoding(new_tokens=2), progress=lambda stage, fraction: told.append(fraction))
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)
    assert len(set(told)) >= 9


def test_draws_depend_on_seed_and_position_alone() -> None:
    request = asked(SMALL, tokens=3, loops=2, lenses=())

    def written(count: int, sampling: Sampling) -> list[int]:
        return first(generate(request, Decoding(new_tokens=count, sampling=sampling))).token_ids[3:].tolist()

    hot = Sampling(temperature=1.5, seed=4)
    long = written(12, hot)
    assert written(12, hot) == long
    assert written(5, hot) == long[:5]
    assert written(12, replace(hot, seed=5)) != long
    assert written(6, Sampling(temperature=1.5, top_k=1)) == written(6, Sampling())


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.0 + 1e-300, 0.3, 0.2]))
    drawn = [Sampling(temperature=1.0, seed=1).choose(logits, position) for position in range(4000)]
    share = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(share, [0.5, 0.0, 0.3, 0.2], atol=0.03)
    two = {Sampling(temperature=1.0, top_k=2, seed=1).choose(logits, position) for position in range(200)}
    assert two == {0, 2}
    cold = [Sampling(temperature=0.25, seed=1).choose(logits, position) for position in range(2000)]
    sharp = np.array([0.5, 0.0, 0.3, 0.2]) ** 4
    np.testing.assert_allclose(np.bincount(cold, minlength=4) / len(cold), sharp / sharp.sum(), atol=0.04)
    assert Sampling(temperature=1.0).choose(np.array([np.nan, -np.inf, 2.0]), 0) == 2
    with pytest.raises(RequestError, match="not finite"):
        Sampling().choose(np.array([np.nan, -np.inf]), 7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sampling(temperature=-1.0), "temperature"),
        (lambda: Sampling(top_k=0), "top-k"),
        (lambda: Sampling(seed=-1), "sampling seed"),
        (lambda: Decoding(new_tokens=-1), "-1 new tokens"),
        (lambda: Decoding(prompt="half"), "half"),  # type: ignore[arg-type]
    ],
)
def test_odd_settings_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        make()


def test_what_cannot_be_run_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(PreludeCoreCoda, "steppable", False)
        with pytest.raises(RequestError, match="Parcae cannot run token by token"):
            generate(asked(SMALL), Decoding())
    with pytest.raises(RequestError, match="make 100009 tokens and the model's context is"):
        generate(asked(SMALL), Decoding(new_tokens=100_000))
    monkeypatch.setattr(module, "memory_limit", lambda: 1000)
    with pytest.raises(MemoryLimit, match="Ask for fewer loops or tokens"):
        generate(asked(SMALL), Decoding())


@pytest.mark.parametrize("tokens", [1, 3])
def test_running_statistics_are_those_of_the_capture(tokens: int) -> None:
    torch.manual_seed(0)
    states = torch.randn(7, tokens, 5) * torch.logspace(0, -6, 7)[:, None, None]
    states[4:, 0] = torch.inf
    buffer = BlockBuffer(
        name="b", layers=(), loops=6, tokens=tokens, width=5, device=torch.device("cpu"), keep=range(7), keep_working=False
    )
    running = Running(0, "b", (), loops=6, tokens=tokens, width=5)
    for _ in range(2):  # the second time over what the first one left
        running.start(states[0].numpy(), states[0].numpy())
        for loop in range(1, 7):
            running.add(states[loop].numpy(), handed=None)
    buffer.start(states[0], states[0])
    for loop in range(1, 7):
        buffer.add(loop, states[loop], before=None)
    wanted = buffer.trace({})
    for name in ("state_norm", "step_norm", "step_cosine", "acceleration"):
        np.testing.assert_allclose(getattr(running, name), getattr(wanted, name), rtol=1e-12, err_msg=name)
    np.testing.assert_array_equal(running.nonfinite_from, wanted.nonfinite_from)
    np.testing.assert_array_equal(running.states, wanted.states)


def test_an_exit_is_asked_after_every_loop_but_the_last_and_told_the_facts() -> None:
    seen: list[tuple[int, int, int]] = []

    def leaves(moment: Moment) -> bool:
        block = moment.block
        assert block.loop == moment.loop
        assert np.isfinite(block.state_norm[: moment.loop]).all()
        assert np.isnan(block.state_norm[moment.loop :]).all()
        assert [earlier.loop for earlier in moment.earlier] == [3] * block.index
        block.read(("logit", "entropy"))
        assert np.isfinite(block.readouts["logit", "entropy"][: moment.loop]).all()
        seen.append((moment.position, block.index, moment.loop))
        return moment.loop == 3

    live = first(generate(asked(TWO_BLOCKS, tokens=3), Decoding(), Exit(leaves, "watched")))
    assert seen == [(t, g, k) for t in range(3) for g in range(len(live.blocks)) for k in (1, 2, 3)]
    seen.clear()
    generate(asked(TWO_BLOCKS, tokens=3, loops=3), Decoding(), Exit(leaves, "watched"))
    assert {k for _, _, k in seen} == {1, 2}
