"""Requests, noise and run folders: equality, round trips, damage."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (hooks and lambdas for torch, which has no types for them)

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.capture.trajectory import RunFormatError, load_run, load_trajectory, save_run
from model.noise import keyed_noise, words
from model.request import MAX_LOOPS, InitialState, Prompt, Record, Request, RequestError, loops_per_block
from tests.toys import toy_run


@given(
    text=st.text(min_size=1),
    loops=st.lists(st.integers(1, MAX_LOOPS), min_size=1, max_size=4),
    seed=st.integers(0, 2**63 - 1),
    every=st.integers(1, 9),
    lenses=st.sampled_from([(), ("logit",), ("logit", "coda")]),
)
def test_a_request_reads_back_equal(text: str, loops: list[int], seed: int, every: int, lenses: Any) -> None:
    record = Record(every=every, positions=(0, every))
    made = Request("demo", (Prompt(text), Prompt(ids=(1, 2))), tuple(loops), seed=seed, lenses=lenses, record=record)
    again = Request.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert hash(again) == hash(made)
    assert again.key() == made.key()
    assert replace(made, seed=(seed + 1) % 2**63).key() != made.key()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"loops": (0,)}, "0 loops were asked for; give a number from 1"),
        ({"loops": (10_000,)}, "10000 loops were asked for"),
        ({"loops": ()}, "No number of loops"),
        ({"prompts": ()}, "no prompt"),
        ({"seed": -1}, "Seed -1"),
    ],
)
def test_bad_requests_say_what_was_given(change: dict[str, Any], sentence: str) -> None:
    values: dict[str, Any] = {"checkpoint": "demo", "prompts": (Prompt("x"),), "loops": (2,)} | change
    with pytest.raises(RequestError, match=sentence):
        Request(**values)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Prompt(""), "empty"),
        (lambda: Prompt(), "either text or token ids"),
        (lambda: Prompt(ids=()), "empty"),
        (lambda: Prompt(ids=(3, -1)), "negative"),
        (lambda: InitialState("normal"), "needs a std"),
        (lambda: InitialState("normal", std=float("inf")), "finite"),
        (lambda: InitialState("file"), "needs a path"),
        (lambda: Record(every=0), "every 0-th"),
        (lambda: Record(positions=(3, 3)), "empty or negative"),
        (lambda: Request.from_json({"checkpoint": "demo"}), "cannot be read"),
        (lambda: loops_per_block((1, 2), 3), "give 1 or 3"),
        (lambda: loops_per_block((1, 2), 1), "the model has one looped block: give one number"),
    ],
)
def test_bad_parts_say_what_was_expected(make: Any, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        make()


def test_noise_depends_on_seed_block_and_position_alone() -> None:
    short = keyed_noise(seed=3, block=1, tokens=4, width=8)
    assert np.array_equal(short, keyed_noise(seed=3, block=1, tokens=9, width=8)[:4])
    assert not np.array_equal(short, keyed_noise(seed=3, block=2, tokens=4, width=8))
    assert not np.array_equal(short, keyed_noise(seed=4, block=1, tokens=4, width=8))
    assert not np.array_equal(short[0], short[1])
    many = keyed_noise(seed=0, block=0, tokens=400, width=64)
    assert abs(many.mean()) < 0.02
    assert abs(many.std() - 1) < 0.02


def test_initial_states_in_words() -> None:
    assert words(InitialState("trained"), "noise") == "as trained: noise"
    assert words(InitialState("normal", std=0.5), "") == "Gaussian noise of std 0.5"
    assert words(InitialState("file", path="a/b.npz"), "") == "file b.npz"


def test_a_run_folder_reads_back_equal_and_read_only(tmp_path: Path) -> None:
    run = replace(toy_run(prompts=3), request={"checkpoint": "x"})
    save_run(toy_run(prompts=5), tmp_path)
    save_run(run, tmp_path)
    again = load_run(tmp_path)
    assert again.request == run.request
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    for a, b in zip(run.trajectories, again.trajectories, strict=True):
        assert a.provenance == b.provenance
        assert a.labels == b.labels
        assert a.vocabulary == b.vocabulary
        for one, two in zip(a.blocks, b.blocks, strict=True):
            assert np.array_equal(one.states, two.states)
            assert set(one.readouts) == set(two.readouts)
            assert np.array_equal(one.acceleration, two.acceleration, equal_nan=True)
    with pytest.raises(ValueError, match="read-only"):
        again.trajectories[0].blocks[0].states[0] = 1


def test_equal_runs_make_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        save_run(toy_run(prompts=1), tmp_path / name)
    written = {(tmp_path / name / "prompt-0000.safetensors").read_bytes() for name in ("a", "b", "c", "d")}
    assert len(written) == 1


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    save_run(toy_run(prompts=1), tmp_path)
    prompt = tmp_path / "prompt-0000.safetensors"
    assert prompt.stat().st_mode == (tmp_path / "run.json").stat().st_mode
    whole = bytearray(prompt.read_bytes())
    whole[-100] ^= 1
    prompt.write_bytes(whole)
    with pytest.raises(RunFormatError, match="sha256 differs"):
        load_run(tmp_path)


def test_damaged_run_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFormatError, match=r"no run\.json"):
        load_run(tmp_path)
    save_run(toy_run(prompts=1), tmp_path)
    prompt = tmp_path / "prompt-0000.safetensors"
    whole = prompt.read_bytes()
    for damage in (b"", whole[: len(whole) // 2], b"x" * 100):
        prompt.write_bytes(damage)
        with pytest.raises(RunFormatError, match=r"prompt-0000\.safetensors"):
            load_run(tmp_path)
    prompt.unlink()
    with pytest.raises(RunFormatError, match="missing"):
        load_run(tmp_path)
    run_json = tmp_path / "run.json"
    for text, sentence in (
        ("{", "cannot be read"),
        ('{"format": 99, "request": {}, "prompts": {}}', "run format 99"),
        ('{"format": 1, "request": {}, "prompts": {"../../etc/passwd": ""}}', "points outside"),
    ):
        run_json.write_text(text)
        with pytest.raises(RunFormatError, match=sentence):
            load_run(tmp_path)


def test_a_safetensors_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(RunFormatError, match="run format none"):
        load_trajectory(tmp_path / "other.safetensors")
