"""Our networks against golden iterates of the reference implementation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.architectures.latent_ttc import LatentTTC
from model.capture.trajectory import Run
from model.checkpoint import load
from model.locate import locate
from model.request import InitialState, Prompt, Request
from model.runner import run

DATA = Path(__file__).parent.parent / "data"
FOLDERS = ("latent_ttc-concat", "latent_ttc-plain")


def golden(folder: str) -> dict[str, np.ndarray]:
    with np.load(DATA / folder / "golden.npz", allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> str:
    return request.param


def captured(folder: str) -> tuple[Run, dict[str, np.ndarray]]:
    wanted = golden(folder)
    ids = tuple(int(i) for i in wanted["input_ids"])
    state = InitialState("file", path=str(DATA / folder / "golden.npz"))
    return run(Request(str(DATA / folder / "ckpt.pt"), (Prompt(ids=ids),), (6,), initial_state=state)), wanted


def test_states_entries_and_handoffs_match(folder: str) -> None:
    found, wanted = captured(folder)
    trajectory = found.trajectories[0]
    for g, block in enumerate(trajectory.blocks):
        np.testing.assert_allclose(block.states, wanted[f"states_{g}"], atol=1e-4, rtol=0)
        np.testing.assert_allclose(block.entry, wanted[f"entry_{g}"], atol=1e-4, rtol=0)
        if g:
            jump = wanted[f"states_{g}"][1].astype(np.float64) - wanted[f"states_{g - 1}"][-1]
            np.testing.assert_allclose(block.drift_in, np.linalg.norm(jump, axis=-1), atol=1e-3, rtol=1e-5)
    assert len(trajectory.blocks) == sum(key.startswith("states_") for key in wanted)


def test_logits_and_coda_lens_of_every_iterate_match(folder: str) -> None:
    wanted = golden(folder)
    network = load(locate(str(DATA / folder)), dtype="float32", device="cpu").network
    last = len(network.blocks) - 1

    def start(block: int, entry: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(wanted[f"initial_state_{block}"])[None]

    with torch.inference_mode():
        logits = network(torch.from_numpy(wanted["input_ids"])[None], loops=[6] * (last + 1), initial_state=start)
        states = torch.from_numpy(wanted[f"states_{last}"][1:])
        coda = network.features(states, lens="coda") @ network.head_weight.T
    np.testing.assert_allclose(logits[0].numpy(), wanted["logits_final"], atol=1e-4, rtol=0)
    np.testing.assert_allclose(coda.numpy(), wanted["coda_logits"], atol=1e-4, rtol=0)


def test_readouts_of_the_run_match_the_golden_logits(folder: str) -> None:
    found, wanted = captured(folder)
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


def test_one_loop_is_the_plain_stack_without_noise_or_adapter(folder: str) -> None:
    network = load(locate(str(DATA / folder)), dtype="float32", device="cpu").network
    ids = torch.from_numpy(golden(folder)["input_ids"])[None]

    def never(block: int, entry: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a single loop asked for an initial state")

    with torch.inference_mode():
        looped = network(ids, loops=[1] * len(network.blocks), initial_state=never)
        internals: Any = network
        x = (internals.tokens(ids) + internals.positions(torch.arange(ids.shape[1]))) * network.width**0.5
        for stage in internals.stages:
            x = stage(x)
        plain = internals.norm(x) @ network.head_weight.T
    assert torch.equal(looped, plain)


def test_key_map_hits_every_weight_once_and_inverts() -> None:
    for folder in FOLDERS:
        content = torch.load(DATA / folder / "ckpt.pt", weights_only=True)
        config = {"model_args": content["model_args"]}
        names = LatentTTC().key_map(config)
        assert set(names) == set(content["model"])
        ours = [name for name in names.values() if name is not None]
        assert len(ours) == len(set(ours))
        assert set(ours) == set(LatentTTC().build(config).state_dict())
