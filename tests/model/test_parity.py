"""Our networks against golden iterates of the reference implementations."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from model.architecture import Context
from model.capture.trajectory import Run
from model.checkpoint import load
from model.locate import locate
from model.request import InitialState, Prompt, Request
from model.runner import run
from tests.model.zoo import DATA, NATIVE, TRAINED, Reference, named

each = pytest.mark.parametrize("reference", NATIVE, ids=named)
each_trained = pytest.mark.parametrize("reference", TRAINED, ids=named)
TWO_SCALE = tuple(reference for reference in NATIVE if reference.family == "latent_ttc")


def loops_of(wanted: dict[str, np.ndarray]) -> tuple[int, ...]:
    blocks = sum(key.startswith("states_") and "norm" not in key for key in wanted)
    return tuple(len(wanted[f"states_{g}"]) - 1 for g in range(blocks))


def captured(reference: Reference) -> tuple[Run, dict[str, np.ndarray]]:
    wanted = reference.golden
    ids = tuple(int(i) for i in wanted["input_ids"])
    state = InitialState("file", path=str(DATA / reference.folder / "golden.npz"))
    return run(Request(reference.path, (Prompt(ids=ids),), loops_of(wanted), initial_state=state)), wanted


@each
def test_states_entries_and_handoffs_match(reference: Reference) -> None:
    found, wanted = captured(reference)
    trajectory = found.trajectories[0]
    assert trajectory.provenance.architecture == reference.family
    for g, block in enumerate(trajectory.blocks):
        np.testing.assert_allclose(block.states, wanted[f"states_{g}"], atol=1e-4, rtol=0)
        np.testing.assert_allclose(block.entry, wanted[f"entry_{g}"], atol=1e-4, rtol=0)
        if g:
            jump = wanted[f"states_{g}"][1].astype(np.float64) - wanted[f"states_{g - 1}"][-1]
            np.testing.assert_allclose(block.drift_in, np.linalg.norm(jump, axis=-1), atol=1e-3, rtol=1e-5)
    assert len(trajectory.blocks) == len(loops_of(wanted))


@each
def test_logits_injection_and_coda_lens_of_every_iterate_match(reference: Reference) -> None:
    wanted = reference.golden
    network = load(locate(reference.path), dtype="float32", device="cpu").network
    loops, ids = loops_of(wanted), torch.from_numpy(wanted["input_ids"])
    inputs: list[list[torch.Tensor]] = [[] for _ in loops]

    def start(block: int, entry: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(wanted[f"initial_state_{block}"])[None]

    def watch(g: int) -> Callable[[Any, Any], None]:
        return lambda module, given: inputs[g].append(given[0][0])

    for g, body in enumerate(network.bodies):
        body.register_forward_pre_hook(watch(g))
    with torch.inference_mode():
        logits = network(ids[None], loops=loops, initial_state=start)
        states = torch.from_numpy(wanted[f"states_{len(loops) - 1}"][1:])
        coda = network.head.logits(network.features(states, ids=ids, lens="coda"))
    np.testing.assert_allclose(logits[0].numpy(), wanted["logits_final"], atol=1e-4, rtol=0)
    np.testing.assert_allclose(coda.numpy(), wanted["coda_logits"], atol=1e-4, rtol=0)
    for g, given in enumerate(inputs):
        np.testing.assert_allclose(torch.stack(given).numpy(), wanted[f"block_input_{g}"], atol=1e-4, rtol=0)


@each
def test_readouts_of_the_run_match_the_golden_logits(reference: Reference) -> None:
    found, wanted = captured(reference)
    block = found.trajectories[0].blocks[-1]
    log_p = torch.from_numpy(wanted["coda_logits"]).double().log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1).numpy()
    kl = (log_p[:-1].exp() * (log_p[:-1] - log_p[1:])).sum(-1).numpy()
    ids = wanted["input_ids"]
    following = log_p[:, np.arange(len(ids) - 1), ids[1:]].numpy()
    np.testing.assert_allclose(block.readouts["coda", "entropy"], entropy, atol=1e-4)
    np.testing.assert_allclose(block.readouts["coda", "kl_previous"][1:], kl, atol=1e-4)
    np.testing.assert_allclose(block.readouts["coda", "log_probability_next"][:, :-1], following, atol=1e-4)
    assert np.isnan(block.readouts["coda", "log_probability_next"][:, -1]).all()
    top = log_p.argmax(-1).numpy()
    assert (block.readouts["coda", "top10_id"][..., 0] == top).all()


@pytest.mark.parametrize("folder", ["ouro-tiny", "ouro-real"])
def test_the_learned_exit_gate_matches(folder: str) -> None:
    found, wanted = captured(Reference(folder, "ouro"))
    readouts = found.trajectories[0].blocks[0].readouts
    np.testing.assert_allclose(readouts["gate", "gate_logit"], wanted["gate_logit"], atol=1e-4, rtol=0)
    np.testing.assert_allclose(readouts["gate", "gate_probability"], wanted["gate_probability"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(readouts["gate", "exit_probability"], wanted["exit_pdf"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(readouts["gate", "exit_probability"].sum(axis=0), 1, atol=1e-6)


@each_trained
def test_cross_entropy_of_every_depth_matches(reference: Reference) -> None:
    wanted = reference.golden
    depths = wanted["cross_entropy_depths"]
    prompts = tuple(Prompt(ids=tuple(int(i) for i in row)) for row in wanted["eval_ids"])
    start = InitialState("trained" if reference.family == "ouro" else "zeros")
    found = run(Request(reference.path, prompts, (int(depths.max()),), initial_state=start, lenses=("coda",)))
    log_p = np.stack([t.blocks[0].readouts["coda", "log_probability_next"][:, :-1] for t in found.trajectories])
    by_depth = -log_p.astype(np.float64).mean(axis=(0, 2))
    np.testing.assert_allclose(by_depth[depths - 1], wanted["cross_entropy"], atol=1e-5, rtol=0)


@each_trained
def test_the_greedy_continuation_is_that_of_the_reference(reference: Reference) -> None:
    wanted = reference.golden
    facts = json.loads((DATA / reference.folder / "golden.json").read_text())
    network = load(locate(reference.path), dtype="float32", device="cpu").network

    def start(block: int, entry: torch.Tensor) -> torch.Tensor:
        return entry if reference.family == "ouro" else torch.zeros_like(entry)

    ids = torch.from_numpy(wanted["prompt_ids"])
    with torch.inference_mode():
        for _ in range(len(wanted["continuation_ids"])):
            logits = network(ids[None], loops=(facts["text"]["loops"],), initial_state=start)
            ids = torch.cat([ids, logits[0, -1:].argmax(-1)])
    assert bytes(ids[len(wanted["prompt_ids"]) :].numpy().astype(np.uint8)).decode() == facts["text"]["greedy_continuation"]


@pytest.mark.parametrize("reference", TWO_SCALE, ids=named)
def test_one_loop_is_the_plain_stack_without_noise_or_adapter(reference: Reference) -> None:
    network = load(locate(reference.path), dtype="float32", device="cpu").network
    ids = torch.from_numpy(reference.golden["input_ids"])[None]

    def never(block: int, entry: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a single loop asked for an initial state")

    with torch.inference_mode():
        looped = network(ids, loops=[1] * len(network.blocks), initial_state=never)
        internals: Any = network
        x = (internals.tokens(ids) + internals.positions(torch.arange(ids.shape[1]))) * network.width**0.5
        for stage in internals.stages:
            x = stage(x, Context(ids))
        plain = network.head.logits(internals.norm(x))
    assert torch.equal(looped, plain)
