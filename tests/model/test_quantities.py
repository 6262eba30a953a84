"""Quantities that a run has only where they are asked for, against the formulas of the code they come from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from analysis.exit_rule import exit_rules, exits
from model import runner
from model.capture.errors import CaptureError
from model.capture.quantities import chosen_readouts
from model.capture.readout import decode, readouts
from model.capture.recorder import record
from model.request import InitialState, Prompt, Request, RequestError

DATA = Path(__file__).resolve().parents[1] / "data"
EXTRA = ("kl_reverse", "kl_uniform", "min_p_kl")


def case(vocabulary: int, *, loops: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Features that come to rest, a head, and their log-probabilities in float64."""
    torch.manual_seed(vocabulary)
    base = torch.randn(4, 16)
    features = torch.stack([base + torch.randn(4, 16) * 0.4**k for k in range(loops)])
    head = torch.randn(vocabulary, 16)
    return features, head, (features.double() @ head.double().T).log_softmax(-1)


def decoded(features: Tensor, head: Tensor, *names: str) -> dict[str, np.ndarray]:
    return decode(features, head, torch.full((4,), -1), quantities=[readouts()[name] for name in names])


def kl_div(prediction: Tensor, target: Tensor) -> np.ndarray:
    """KL(target || prediction) of log-probabilities as reference code writes it."""
    return functional.kl_div(prediction, target, reduction="none", log_target=True).sum(-1).numpy()


def min_p(log_p: Tensor) -> Tensor:
    """Huginn's filter: below a tenth of the largest becomes 1/V; renormalised."""
    p = log_p.exp()
    p = torch.where(p < 0.1 * p.max(-1, keepdim=True).values, 1 / p.shape[-1], p)
    return (p / p.sum(-1, keepdim=True)).log()


@pytest.mark.parametrize("vocabulary", [7, 300, 4096, 9001])
def test_extra_readouts_equal_the_reference_formulas_in_float64(vocabulary: int) -> None:
    features, head, log_p = case(vocabulary)
    found = decoded(features, head, *EXTRA)
    uniform, q = torch.full_like(log_p, 1 / vocabulary).log(), min_p(log_p)
    np.testing.assert_allclose(found["kl_reverse"][1:], kl_div(log_p[:-1], log_p[1:]), rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(found["kl_uniform"], kl_div(log_p, uniform), rtol=1e-4)
    np.testing.assert_allclose(found["kl_uniform_reverse"], kl_div(uniform, log_p), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["min_p_kl"][1:], kl_div(q[1:], q[:-1]), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found["min_p_kl_uniform"], kl_div(q, uniform), rtol=1e-4, atol=1e-6)
    assert np.isnan(found["kl_reverse"][0]).all()
    assert np.isnan(found["min_p_kl"][0]).all()
    assert all((array[1:] >= 0).all() for array in found.values())


def test_equal_readouts_have_no_divergence_and_one_loop_has_none_at_all() -> None:
    features, head, _ = case(50)
    found = decoded(features[:1].expand(3, -1, -1), head, *EXTRA)
    assert (found["kl_reverse"][1:] == 0).all()
    assert (found["min_p_kl"][1:] == 0).all()
    alone = decoded(features[:1], head, *EXTRA)
    assert all(array.shape == (1, 4) for array in alone.values())
    assert np.isnan(alone["min_p_kl"]).all()
    assert np.isfinite(alone["min_p_kl_uniform"]).all()


def test_states_that_are_no_numbers_have_no_extra_readout_either() -> None:
    features, head, _ = case(50)
    features[3:, 1] = torch.inf
    found = decoded(features, head, *EXTRA)
    for array in found.values():
        assert np.isnan(array[3:, 1]).all()
        assert np.isfinite(array[1:, [0, 2, 3]]).all()


def request_for(checkpoint: str, **changes: Any) -> Request:
    return replace(Request(checkpoint, (Prompt("the king"),), (5,)), **changes)


def test_a_run_has_what_was_asked_for_and_nothing_else_changes() -> None:
    plain = runner.run(request_for("demo")).trajectories[0]
    more = runner.run(request_for("demo", quantities=(*EXTRA, "adapted_input"))).trajectories[0]
    for a, b in zip(plain.blocks, more.blocks, strict=True):
        assert not {quantity for _, quantity in a.readouts} & set(EXTRA)
        assert {quantity for lens, quantity in b.readouts if lens == "logit"} >= set(EXTRA)
        assert ("block", "adapted_acceleration") in b.readouts
        assert np.array_equal(a.states, b.states)
        for key, array in a.readouts.items():
            assert np.array_equal(array, b.readouts[key], equal_nan=True)


def test_every_rule_answers_on_a_run_that_recorded_everything() -> None:
    found = runner.run(request_for("demo", quantities=(*EXTRA, "adapted_input"))).trajectories[0]
    for name, kind in exit_rules().items():
        if name != "learned_gate":
            assert exits(kind(), found, len(found.blocks) - 1).defined[:-1].all(), name
    ouro = runner.run(request_for(str(DATA / "ouro-tiny"), prompts=(Prompt(ids=(1, 2, 3)),))).trajectories[0]
    assert exits(exit_rules()["learned_gate"](), ouro, 0).defined.all()


def test_statistics_only_is_enough_for_the_adapted_input() -> None:
    from model.request import Record

    asked = request_for("demo", quantities=("adapted_input",), lenses=(), record=Record(states=False))
    found = runner.run(asked).trajectories[0]
    assert {lens for lens, _ in found.blocks[0].readouts} == {"block"}


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in DATA.glob("*/golden.npz")))
def test_steps_from_the_adapted_input_equal_the_references(folder: str) -> None:
    golden = np.load(DATA / folder / "golden.npz")
    if "block_input_0" not in golden.files:
        pytest.skip("this reference kept no block inputs")
    blocks = sum(name.startswith("block_input_") for name in golden.files)
    loops = tuple(len(golden[f"block_input_{g}"]) for g in range(blocks))
    asked = Request(
        str(DATA / folder),
        (Prompt(ids=tuple(int(i) for i in golden["input_ids"])),),
        loops,
        quantities=("adapted_input",),
        lenses=(),
    )
    if not _starts_from_its_input(folder):
        asked = replace(asked, initial_state=InitialState("file", path=str(DATA / folder / "golden.npz")))
    found = runner.run(asked).trajectories[0]
    for g, block in enumerate(found.blocks):
        steps = golden[f"states_{g}"][-loops[g] :].astype(np.float64) - golden[f"block_input_{g}"]
        tolerance = 1e-4 * np.linalg.norm(steps, axis=-1).max()
        wanted = np.linalg.norm(steps, axis=-1)
        np.testing.assert_allclose(block.readouts["block", "adapted_step_norm"], wanted, atol=tolerance)
        change = block.readouts["block", "adapted_acceleration"]
        assert np.isnan(change[0]).all()
        np.testing.assert_allclose(change[1:], np.linalg.norm(np.diff(steps, axis=0), axis=-1), atol=tolerance)


def _starts_from_its_input(folder: str) -> bool:
    return folder.startswith(("albert", "dory"))


def test_a_quantity_that_nobody_can_record_is_refused_with_the_list() -> None:
    with pytest.raises(
        RequestError, match=r"'min_p' was asked for; choose from adapted_input, kl_reverse, kl_uniform, min_p_kl"
    ):
        runner.run(request_for("demo", quantities=("min_p",)))
    block = torch.nn.Linear(3, 3)
    with pytest.raises(CaptureError, match=r"'adapted_input' was asked for; choose from kl_reverse"):
        record(block, "", run=lambda: block(torch.ones(2, 3)), quantities=("adapted_input",))


def test_record_makes_what_it_is_asked_for() -> None:
    torch.manual_seed(0)
    block, head = torch.nn.Linear(6, 6), torch.nn.Linear(6, 9)

    def run() -> None:
        x = torch.ones(1, 3, 6)
        for _ in range(4):
            x = block(x)

    plain = record(block, "", run=run, decode=head)
    found = record(block, "", run=run, decode=head, quantities=("min_p_kl",))
    assert set(found.blocks[0].readouts) - set(plain.blocks[0].readouts) == {
        ("logit", "min_p_kl"),
        ("logit", "min_p_kl_uniform"),
    }
    assert exits(exit_rules()["min_p_kl"](), found, 0).defined.all()


def test_requests_without_extras_keep_their_keys_and_extras_survive_json() -> None:
    plain, more = request_for("demo"), request_for("demo", quantities=("min_p_kl", "adapted_input"))
    assert "quantities" not in plain.to_json()
    assert plain.key() != more.key()
    assert Request.from_json(more.to_json()) == more
    assert Request.from_json(plain.to_json()) == plain


def test_what_is_always_made_is_made_without_asking() -> None:
    assert {kind.name for kind in chosen_readouts(())} == {name for name, kind in readouts().items() if kind.always}
    assert [kind.name for kind in chosen_readouts(("entropy", "entropy"))].count("entropy") == 1
