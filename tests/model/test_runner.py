"""The runner: hooked equals plain, what was asked is what ran, edges, seeds, cancelling."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (hooks and lambdas for torch, which has no types for them)

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analysis import steps
from model import opened, runner
from model.capture.errors import CaptureError
from model.checkpoint import load
from model.locate import locate
from model.memory import MemoryLimit
from model.request import Cancelled, InitialState, Prompt, Record, Request, RequestError
from tests.model.toy_networks import write_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("tiny")))


def request_for(tiny: str, *texts: str, loops: tuple[int, ...] = (6,), **changes: Any) -> Request:
    return replace(Request(tiny, tuple(Prompt(text) for text in texts or ("Hi there",)), loops), **changes)


def test_hooked_equals_plain_bit_for_bit(tiny: str) -> None:
    found = runner.run(request_for(tiny)).trajectories[0]
    assert not any(module.training for module in next(iter(opened._loaded.values())).network.modules())
    network = load(locate(tiny), dtype="float32", device="cpu").network
    ids = torch.from_numpy(found.token_ids.copy())[None]

    def start(block: int, entry: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(found.blocks[block].states[0].copy())[None]

    last = torch.from_numpy(found.blocks[-1].states[-1].copy())[None]
    with torch.inference_mode():
        plain = network(ids, loops=(6, 6), initial_state=start)
        decoded = network.head.logits(network.features(last, ids=ids[0], lens="coda"))
    assert torch.equal(plain, decoded)


def test_every_loop_is_captured_and_numbers_are_those_of_the_states(tiny: str) -> None:
    found = runner.run(request_for(tiny, loops=(3, 9))).trajectories[0]
    for block, loops in zip(found.blocks, (3, 9), strict=True):
        assert block.states.shape == (loops + 1, 8, 16)
        assert (block.loops_run == loops).all()
        np.testing.assert_allclose(block.state_norm, steps.norms(block.states[1:]), rtol=1e-12)
        np.testing.assert_allclose(block.step_norm, steps.step_norms(block.states), rtol=1e-12)
        np.testing.assert_allclose(block.step_cosine, steps.step_cosines(block.states), rtol=1e-9)
        np.testing.assert_allclose(block.acceleration, steps.accelerations(block.states), rtol=1e-12)
    jump = found.blocks[1].states[1].astype(np.float64) - found.blocks[0].states[-1]
    np.testing.assert_allclose(found.blocks[1].drift_in, np.linalg.norm(jump, axis=-1), rtol=1e-12)
    assert np.isnan(found.blocks[0].drift_in).all()


def test_a_model_that_runs_other_loops_than_asked_is_refused(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = opened.load

    def stubborn(*arguments: Any, **options: Any) -> Any:
        loaded = real(*arguments, **options)
        inner = loaded.network.forward
        loaded.network.forward = lambda ids, *, loops, **rest: inner(ids, loops=(4, 4), **rest)
        return loaded

    monkeypatch.setattr(opened, "load", stubborn)
    opened._loaded.clear()
    with pytest.raises(CaptureError, match=r"\[4, 4\] iterates were captured and \[2, 2\] loops asked for"):
        runner.run(request_for(tiny, loops=(2,)))
    opened._loaded.clear()


def test_company_and_length_change_nothing(tiny: str) -> None:
    alone = runner.run(request_for(tiny, "Hi")).trajectories[0]
    together = runner.run(request_for(tiny, "A longer one", "Hi")).trajectories[1]
    longer = runner.run(request_for(tiny, "Hi there")).trajectories[0]
    assert list(alone.token_ids) == list(together.token_ids)
    for a, b, c in zip(alone.blocks, together.blocks, longer.blocks, strict=True):
        np.testing.assert_allclose(a.step_norm, b.step_norm, atol=1e-5)
        np.testing.assert_allclose(a.step_norm, c.step_norm[:, :2], atol=1e-5)
        assert np.array_equal(a.states[0], c.states[0, :2])
        assert list(a.positions) == [0, 1]


def test_equal_requests_are_bit_equal_and_seeds_differ(tiny: str) -> None:
    one, two, other = (runner.run(request_for(tiny, seed=seed)).trajectories[0] for seed in (0, 0, 1))
    for a, b, c in zip(one.blocks, two.blocks, other.blocks, strict=True):
        assert np.array_equal(a.states, b.states)
        assert all(np.array_equal(a.readouts[key], b.readouts[key], equal_nan=True) for key in a.readouts)
        assert not np.array_equal(a.states[0], c.states[0])


def test_initial_states_zeros_normal_and_file(tiny: str, tmp_path: Path) -> None:
    zeros = runner.run(request_for(tiny, initial_state=InitialState("zeros"))).trajectories[0]
    assert (zeros.blocks[0].states[0] == 0).all()
    normal = runner.run(request_for(tiny, initial_state=InitialState("normal", std=3.0))).trajectories[0]
    assert 2 < normal.blocks[1].states[0].std() < 4
    arrays = {f"initial_state_{g}": np.full((8, 16), g + 1.0, dtype=np.float32) for g in range(2)}
    np.savez(tmp_path / "start.npz", **arrays)  # type: ignore[arg-type]
    state = InitialState("file", path=str(tmp_path / "start.npz"))
    filed = runner.run(request_for(tiny, initial_state=state)).trajectories[0]
    assert (filed.blocks[1].states[0] == 2).all()
    assert "start.npz" in filed.provenance.initial_state
    with pytest.raises(RequestError, match=r"shape \(8, 16\).*\(2, 16\)"):
        runner.run(request_for(tiny, "Hi", initial_state=state))
    np.savez(tmp_path / "half.npz", initial_state_0=arrays["initial_state_0"])
    with pytest.raises(RequestError, match="initial_state_1"):
        runner.run(request_for(tiny, initial_state=InitialState("file", path=str(tmp_path / "half.npz"))))
    with pytest.raises(RequestError, match="not there"):
        runner.run(request_for(tiny, initial_state=InitialState("file", path=str(tmp_path / "none.npz"))))


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("loops", [1, 2, 3])
def test_smallest_sizes_keep_every_axis(tiny: str, tokens: int, loops: int) -> None:
    found = runner.run(request_for(tiny, "x" * tokens, loops=(loops,))).trajectories[0]
    for block in found.blocks:
        assert block.step_norm.shape == block.step_cosine.shape == (loops, tokens)
        assert np.isfinite(block.step_norm).all()
        assert np.isfinite(block.step_cosine).sum() == np.isfinite(block.acceleration).sum() == (loops - 1) * tokens
        assert block.states.shape == (loops + 1, tokens, 16)
    if loops == 1:
        assert np.array_equal(found.blocks[0].states[0], found.blocks[0].entry)


def test_one_loop_says_that_it_starts_from_the_entry(tiny: str) -> None:
    plain = runner.run(request_for(tiny, loops=(1,))).trajectories[0].provenance.initial_state
    assert "block's entry" in plain
    assert "noise" not in plain
    mixed = runner.run(request_for(tiny, loops=(1, 4))).trajectories[0].provenance.initial_state
    assert "noise of std" in mixed
    assert "h[1]: one loop, a plain pass" in mixed


def test_thinning_changes_no_number(tiny: str) -> None:
    full = runner.run(request_for(tiny, loops=(9,))).trajectories[0]
    for record in (Record(every=4), Record(positions=(2, 5)), Record(states=False)):
        thin = runner.run(request_for(tiny, loops=(9,), record=record)).trajectories[0]
        for a, b in zip(full.blocks, thin.blocks, strict=True):
            for name in ("state_norm", "step_norm", "step_cosine", "acceleration", "drift_in"):
                assert np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
            assert all(np.array_equal(a.readouts[key], b.readouts[key], equal_nan=True) for key in a.readouts)
    thin = runner.run(request_for(tiny, loops=(9,), record=Record(every=4, positions=(2, 5)))).trajectories[0].blocks[0]
    assert list(thin.loop_index) == [0, 1, 4, 8, 9]
    assert list(thin.positions) == [2, 3, 4]
    assert np.array_equal(thin.states, full.blocks[0].states[[0, 1, 4, 8, 9], 2:5])
    bare = runner.run(request_for(tiny, lenses=(), record=Record(states=False))).trajectories[0].blocks[0]
    assert bare.states.shape[0] == 0
    assert not bare.readouts


def test_half_precision_is_recorded_in_float32_and_named(tiny: str) -> None:
    found = runner.run(request_for(tiny, dtype="bfloat16")).trajectories[0]
    assert found.provenance.dtype == "bfloat16"
    assert found.provenance.noise_floor > 1e-2
    assert all(block.states.dtype == np.float32 for block in found.blocks)
    assert np.isfinite(found.blocks[-1].readouts["coda", "entropy"]).all()


def test_a_half_precision_run_draws_and_exports_every_chart(tiny: str) -> None:
    from analysis.chart import View, chart_builders
    from analysis.exit_rule import default_rules
    from analysis.export import export

    run = runner.run(request_for(tiny, dtype="bfloat16"))
    rules = tuple(kind() for kind in default_rules().values())
    view = View(run, block=1, rules=rules, others=(("a", run), ("b", run)))
    for name, kind in chart_builders().items():
        chart = kind().build(view if name != "drift" else replace(view, block=0))
        assert "bfloat16" in chart.caption, name
        for form in ("pdf", "svg", "png", "csv", "json"):
            assert export(chart, kind=form)


def test_coda_lens_only_on_the_last_block(tiny: str) -> None:
    found = runner.run(request_for(tiny)).trajectories[0]
    assert {lens for lens, _ in found.blocks[0].readouts} == {"logit"}
    assert {lens for lens, _ in found.blocks[1].readouts} == {"logit", "coda"}


def test_non_finite_activations_are_reported_from_the_loop_on(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = opened.load

    def broken(*arguments: Any, **options: Any) -> Any:
        loaded = real(*arguments, **options)
        calls = 0

        def explode(module: Any, given: Any, output: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls >= 5:
                output = output.clone()
                output[:, 2] = torch.inf
            return output

        loaded.network.bodies[1].register_forward_hook(explode)
        return loaded

    monkeypatch.setattr(opened, "load", broken)
    opened._loaded.clear()
    block = runner.run(request_for(tiny, loops=(8,))).trajectories[0].blocks[1]
    opened._loaded.clear()
    assert block.nonfinite_from[2] == 5
    assert np.isfinite(block.step_norm[:4, 2]).all()
    assert np.isnan(block.step_norm[4:, 2]).all()
    # At the loop of the accident the others are whole; afterwards attention may spread it (zero times Inf).
    assert np.isfinite(block.step_norm[:5, [0, 1, 3, 4]]).all()
    assert all(since == 0 or since > 5 for since in np.delete(block.nonfinite_from, 2))


def test_bad_requests_are_refused_with_numbers(tiny: str) -> None:
    with pytest.raises(RequestError, match="13 tokens and the model's context is 12"):
        runner.run(request_for(tiny, "x" * 13))
    with pytest.raises(RequestError, match="3 numbers of loops were given; the model has 2"):
        runner.run(request_for(tiny, loops=(1, 2, 3)))
    with pytest.raises(RequestError, match="Token id 256 is outside the vocabulary of 256"):
        runner.run(Request(tiny, (Prompt(ids=(1, 256)),), (2,)))
    with pytest.raises(RequestError, match="token range starts at 50"):
        runner.run(request_for(tiny, record=Record(positions=(50, 60))))


def test_too_much_memory_is_refused_with_advice(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSCOPE_MEMORY_GIB", "0.0001")
    with pytest.raises(MemoryLimit, match="To make it fit: ask for fewer loops"):
        runner.run(request_for(tiny))
    opened._loaded.clear()
    monkeypatch.setattr(opened, "load", lambda *arguments, **options: pytest.fail("loaded what would not fit"))
    with pytest.raises(MemoryLimit, match="To make it fit: ask for fewer loops"):
        runner.run(request_for(tiny))


def test_cancelling_stops_and_frees_the_lock(tiny: str) -> None:
    asked = 0

    def cancel() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with pytest.raises(Cancelled):
        runner.run(request_for(tiny, loops=(12,)), cancel=cancel)
    assert asked == 4
    assert runner.run(request_for(tiny)).trajectories
    bodies = next(iter(opened._loaded.values())).network.bodies
    assert all(not body._forward_hooks for body in bodies)


def test_progress_rises_to_the_end_and_names_its_stages(tiny: str) -> None:
    told: list[tuple[str, float]] = []
    opened._loaded.clear()
    runner.run(request_for(tiny, "one", "two"), progress=lambda stage, fraction: told.append((stage, fraction)))
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert {stage for stage, _ in told} == {"hashing", "loading", "capturing", "decoding"}


def test_one_load_for_many_runs_and_one_model_in_memory(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = str(write_tiny(tmp_path / "other", seed=5))
    loads: list[str] = []
    real = opened.load

    def counted(*arguments: Any, **options: Any) -> Any:
        loads.append(arguments[0].name)
        return real(*arguments, **options)

    monkeypatch.setattr(opened, "load", counted)
    opened._loaded.clear()
    threads = [threading.Thread(target=runner.run, args=(request_for(tiny, seed=i),)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(10):
        runner.run(request_for(tiny, seed=seed))
    assert loads == [tiny]
    runner.run(request_for(other))
    runner.run(request_for(tiny))
    assert loads == [tiny, other, tiny]
    assert len(opened._loaded) == 1
