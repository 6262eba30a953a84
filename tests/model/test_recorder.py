"""record(): the trajectory of a block in anybody's module equals a manual unroll, and what cannot be true is refused."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (lambdas for torch, which has no types for them)

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from analysis import steps
from analysis.chart import View, chart_builders
from analysis.exit_rule import MissingReadout, default_rules, exit_rules
from analysis.export import KINDS, export
from model.capture import CaptureError, Run, Trajectory, load, record, save
from model.capture import lenses as lenses_module
from model.capture.quantities import chosen_readouts
from model.capture.readout import Head, decode
from tests.model.own_modules import IDS, VOCABULARY, WIDTH, Listed, Model, both, linear
from tests.model.toy_networks import Looped

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests" / "data" / "own_model"


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def unrolled(model: Model, ids: Tensor = IDS) -> list[np.ndarray]:
    """Initial state and iterates of each block, by hand."""
    with torch.no_grad():
        model.eval()
        x, found = model.embedding(ids), []
        for block, loops in zip((model.loop_a, model.loop_b), model.loops, strict=True):
            states = [x]
            for _ in range(loops):
                states.append(block(states[-1]))
            found.append(torch.cat(states).float().numpy())
            x = states[-1]
    return found


def test_states_and_statistics_equal_a_manual_unroll(model: Model) -> None:
    found = both(model)
    for trace, states in zip(found.blocks, unrolled(model), strict=True):
        assert np.array_equal(trace.states, states)
        assert np.array_equal(trace.entry, states[0])
        assert trace.loops == len(states) - 1
        np.testing.assert_allclose(trace.step_norm, steps.step_norms(states), rtol=1e-12)
        np.testing.assert_allclose(trace.step_cosine, steps.step_cosines(states), rtol=1e-9)
        np.testing.assert_allclose(trace.acceleration, steps.accelerations(states), rtol=1e-12)
    jump = found.blocks[1].states[1].astype(np.float64) - found.blocks[0].states[-1]
    np.testing.assert_allclose(found.blocks[1].drift_in, np.linalg.norm(jump, axis=-1), rtol=1e-12)
    assert np.isnan(found.blocks[0].drift_in).all()
    assert [block.name for block in found.blocks] == ["loop_a", "loop_b"]


def test_readouts_are_those_of_the_given_functions_and_the_coda_ends_in_the_models_own_logits(model: Model) -> None:
    found = both(model)
    with torch.no_grad():
        own = model.eval()(IDS).double().log_softmax(-1)[0]
    read = found.blocks[1].readouts
    following = own[torch.arange(6), IDS[0, 1:]].numpy()
    np.testing.assert_allclose(read["coda", "log_probability_next"][-1, :-1], following, atol=1e-5)
    assert np.isnan(read["coda", "log_probability_next"][-1, -1])
    assert np.array_equal(read["coda", "top10_id"][-1], own.topk(10).indices.numpy())
    assert {lens for lens, _ in found.blocks[0].readouts} == {"logit"}
    assert set(np.unique(read["coda", "top10_id"])) <= set(found.vocabulary)
    with torch.no_grad():
        features = model.norm(torch.from_numpy(found.blocks[0].states[1:].copy()))
    head = Head(model.head.weight.detach(), model.head.bias.detach())
    wanted = decode(features, head, torch.tensor([*IDS[0, 1:].tolist(), -1]), quantities=chosen_readouts(()))
    for quantity, array in wanted.items():
        np.testing.assert_allclose(found.blocks[0].readouts["logit", quantity], array, rtol=1e-3, atol=1e-6)


def test_memory_bounds_change_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = both(model)
    monkeypatch.setattr(lenses_module, "_CELLS", 1)
    parts = both(model)
    for a, b in zip(whole.blocks, parts.blocks, strict=True):
        for key in a.readouts:
            np.testing.assert_allclose(a.readouts[key], b.readouts[key], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("style", ["tensor", "tuple", "list", "mapping", "keyword", "inplace"])
@pytest.mark.parametrize("batch", [(), (1,)])
def test_wrappings_of_outputs_inputs_and_batches_give_the_same_arrays(style: str, batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain = Looped()
    other = Looped(style=style)
    other.load_state_dict(plain.state_dict())
    x = torch.randn(*batch, 3, 4)
    found = record(other, "block", run=lambda: other(x.clone(), 5)).blocks[0]
    assert found.loops == 5
    state = x.reshape(3, 4)
    for k in range(6):
        assert np.array_equal(found.states[k], state.numpy())
        with torch.no_grad():
            out = other.block(state.clone())
            state = out["state"] if style == "mapping" else out[0] if style in ("tuple", "list") else out
    assert all(not np.array_equal(a, b) for i, a in enumerate(found.states) for b in found.states[:i])


def test_the_state_is_the_input_that_carries_the_output_on() -> None:
    class Body(nn.Module):
        def forward(self, entry: Tensor, state: Tensor) -> Tensor:
            return torch.sin(entry + 2 * state)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Body()

        def forward(self, entry: Tensor, state: Tensor) -> None:
            for _ in range(3):
                state = self.body(entry, state)

    whole, entry, noise = Whole(), torch.randn(1, 5, 4), torch.randn(1, 5, 4)
    found = record(whole, "body", run=lambda: whole(entry, noise), entry=entry).blocks[0]
    assert np.array_equal(found.states[0], noise[0].numpy())
    assert np.array_equal(found.entry, entry[0].numpy())
    given = record(whole, "body", run=lambda: whole(entry, noise), initial_state=torch.ones(5, 4)).blocks[0]
    assert (given.states[0] == 1).all()
    assert np.array_equal(given.states[1:], found.states[1:])


@pytest.mark.parametrize(
    ("make", "rounds", "loops", "layers"),
    [
        (lambda a, b: [a, b], 3, 3, (0, 1)),
        (lambda a, b: [a] * 4, 1, 4, (0,)),
        (lambda a, b: [a, b] * 2, 1, 2, (0, 1)),
        (lambda a, b: [a], 3, 3, (0,)),
    ],
)
def test_a_list_of_layers_is_one_block(
    make: Callable[..., list[nn.Module]], rounds: int, loops: int, layers: tuple[int, ...]
) -> None:
    whole, x = Listed(make(linear(), linear()), rounds), torch.randn(1, 3, 4)
    for given in ("h", whole.h):
        found = record(whole, given, run=lambda: whole(x)).blocks[0]
        assert (found.name, found.loops, found.layers) == ("h", loops, layers)
        with torch.no_grad():
            assert np.array_equal(found.states[-1], whole(x)[0].numpy())
        assert np.array_equal(found.states[0], x[0].numpy())


def test_tied_weights_on_distinct_modules_are_distinct_layers() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    whole, x = Listed([first, second], 3), torch.randn(1, 3, 4)
    assert record(whole, "h", run=lambda: whole(x)).blocks[0].loops == 3
    found = record(whole, "h.1", run=lambda: whole(x)).blocks[0]
    assert (found.loops, found.layers) == (3, (1,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_become_float32_and_every_chart_and_export_works(model: Model, dtype: torch.dtype) -> None:
    found = both(model.to(dtype), labels=lambda token: f"<{token}>")
    assert found.provenance.dtype == str(dtype).removeprefix("torch.")
    for trace, states in zip(found.blocks, unrolled(model), strict=True):
        assert trace.states.dtype == np.float32
        assert np.array_equal(trace.states, states)
        assert np.isfinite(trace.readouts["logit", "kl_last"]).all()
    if dtype == torch.bfloat16:
        run = Run(request={}, trajectories=(found, both(model, tokens=None, decode=None)))
        rules = tuple(kind() for kind in default_rules().values())
        view = View(run=run, token=2, block=1, rules=rules, others=(("again", run),))
        for kind in chart_builders().values():
            chart = kind().build(view)
            for name in KINDS if kind.name in ("trajectory", "says") else ("csv", "json"):
                assert export(chart, kind=name, request=run.request)


def test_without_tokens_and_decode_there_are_statistics_only_and_charts_say_what_they_miss(model: Model) -> None:
    found = both(model, tokens=None, decode=None)
    assert (found.token_ids == -1).all()
    assert found.labels == ("⟨?⟩",) * 7
    assert not found.blocks[0].readouts
    with pytest.raises(MissingReadout):
        exit_rules()["kl"]().scores(found, 0)


def test_thinning_and_ranges_store_less_and_change_no_statistic(model: Model) -> None:
    whole, thin = both(model), both(model, every=3, positions=(2, 4))
    assert thin.blocks[0].loop_index.tolist() == [0, 1, 3, 6]
    assert thin.blocks[0].positions.tolist() == [2, 3]
    assert np.array_equal(thin.blocks[0].states, whole.blocks[0].states[[0, 1, 3, 6]][:, 2:4])
    none = both(model, states=False, decode=None)
    assert none.blocks[0].states.shape == (0, 0, WIDTH)
    for other in (thin, none):
        assert np.array_equal(other.blocks[1].acceleration, whole.blocks[1].acceleration, equal_nan=True)
        assert np.array_equal(other.blocks[1].drift_in, whole.blocks[1].drift_in, equal_nan=True)


def test_modes_come_back_part_by_part_and_training_goes_on(model: Model) -> None:
    model.train()
    model.coda.eval()
    before = [part.training for part in model.modules()]
    both(model)
    assert [part.training for part in model.modules()] == before
    with pytest.raises(RuntimeError, match="on purpose"):
        record(model, "loop_a", run=lambda: (_ for _ in ()).throw(RuntimeError("on purpose")))
    assert [part.training for part in model.modules()] == before
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    model(IDS).sum().backward()
    assert model.embedding.weight.grad is not None


def test_tables_that_a_model_makes_while_it_is_recorded_serve_its_training() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.table = nn.Linear(4, 4), None

        def forward(self, x: Tensor) -> Tensor:
            self.table: Tensor | None = torch.ones(4) if self.table is None else self.table
            return self.block(x) * self.table

    lazy, x = Lazy(), torch.randn(1, 3, 4)
    record(lazy, "block", run=lambda: lazy(x))
    lazy(x).sum().backward()
    assert lazy.block.weight.grad is not None


def test_a_recorded_prompt_does_not_depend_on_company_and_a_batch_is_refused(model: Model) -> None:
    short, long = torch.tensor([[7, 8]]), torch.arange(12)[None]
    alone = both(model, short)
    both(model, long)
    again = both(model, short)
    assert alone.blocks[0].step_norm.shape == (6, 2)
    assert np.array_equal(alone.blocks[0].step_norm, again.blocks[0].step_norm)
    with pytest.raises(CaptureError, match="batch of 2"):
        record(model, "loop_a", run=lambda: model(torch.cat([short, short])))


def test_forty_runs_in_threads_on_one_module_keep_apart(model: Model) -> None:
    prompts = [torch.randint(VOCABULARY, (1, 5 + i % 3), generator=torch.Generator().manual_seed(i)) for i in range(40)]
    alone = [both(model.eval(), ids, decode=None) for ids in prompts]
    model.train()
    found: dict[int, Trajectory] = {}
    barrier = threading.Barrier(8)

    def work(lane: int) -> None:
        for number in range(lane, 40, 8):

            def run(ids: Tensor = prompts[number]) -> None:
                barrier.wait(timeout=30)  # eight passes begin together
                model(ids)

            found[number] = record(model, ["loop_a", "loop_b"], run=run, tokens=prompts[number])

    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(40))
    for number, wanted in enumerate(alone):
        for a, b in zip(found[number].blocks, wanted.blocks, strict=True):
            assert np.array_equal(a.states, b.states)
    assert all(part.training for part in model.modules())


def test_a_recording_inside_a_recording_is_its_own(model: Model) -> None:
    inner: list[Trajectory] = []

    def run() -> None:
        inner.append(both(model))
        model(IDS)

    outer = record(model, ["loop_a", "loop_b"], run=run)
    assert [block.loops for block in outer.blocks] == [block.loops for block in inner[0].blocks] == [6, 4]
    assert np.array_equal(outer.blocks[0].states, inner[0].blocks[0].states)


def test_what_is_saved_is_what_is_loaded(model: Model, tmp_path: Any) -> None:
    found = both(model, name="mine at step 7", loops_trained=4.0)
    save([found, found], tmp_path / "run")
    run = load(str(tmp_path / "run"))
    assert (len(run.trajectories), dict(run.request)) == (2, {})
    assert run.trajectories[1].provenance == found.provenance
    assert np.array_equal(run.trajectories[1].blocks[1].states, found.blocks[1].states)
    with pytest.raises(ValueError, match="no trajectory"):
        save([], tmp_path / "empty")


def test_an_older_run_is_replaced_only_where_that_is_asked_for(model: Model, tmp_path: Path) -> None:
    found = both(model)
    save([found, found], tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(ValueError, match=r"holds a run already; give another folder, or overwrite=True to replace it\."):
        save(found, tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    save(found, tmp_path / "run", overwrite=True)
    assert len(load(tmp_path / "run").trajectories) == 1


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "prompt.safetensors", "W.PT", "pytorch_model.bin.index.json"]
)
def test_a_run_is_never_written_among_the_files_of_a_checkpoint(model: Model, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=f"holds a checkpoint .{name}., not a run; give a folder of its own"):
            save(both(model), tmp_path, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    save(both(model), tmp_path / "run")


def test_the_readmes_example_runs_beside_its_own_model_py_and_its_run_can_be_exported(tmp_path: Path) -> None:
    lines = (EXAMPLE / "train.py").read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if not line.startswith("# pyright:")]
    code = "\n".join(shown)
    assert f"```python\n{code}\n```\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert sum(bool(line) for line in shown) <= 15
    folder = tmp_path / "own"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    executable = Path(sys.executable)
    wanted = [
        str(executable.with_name("loopscope")),
        "export",
        "--run",
        "runs/step-100",
        "--chart",
        "says",
        "--format",
        "pdf,csv",
    ]
    for command in ([str(executable), "train.py"], [*wanted, "--out", "figures"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "figures" / "says-icml2024.pdf").read_bytes().startswith(b"%PDF")
    trained, untrained = (load(folder / "runs" / f"step-{step}").trajectories[0] for step in (100, 0))
    assert "".join(trained.labels) == "to·be·or·not·to·be"
    last = [run.blocks[0].readouts["logit", "log_probability_next"][-1, :-1].mean() for run in (untrained, trained)]
    assert last[0] < -4 < -0.7 < last[1]


def test_record_is_imported_with_torch_only_when_it_is_named() -> None:
    code = (
        "import sys, loopscope; a = 'torch' in sys.modules; loopscope.record; print(a, 'torch' in sys.modules, dir(loopscope))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("False True")
    assert all(name in done.stdout for name in ("'record'", "'save'", "'load'", "'Head'"))
