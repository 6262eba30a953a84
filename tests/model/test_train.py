"""The trainer: the loop distribution, the schedule, resuming, what it keeps."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (hooks and lambdas for torch, which has no types for them)

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model import train
from model.checkpoint import card
from model.report import unigram_and_bigram
from model.train import Recipe, Trainer, learning_rate, sample_loops, train_tokenizer

TEXT = "The king said to the queen that the little door was open.\nAnd the queen laughed at the king!\n" * 40
SMALL = Recipe(steps=4, batch=2, warmup=2, keep=(0, 2, 4), validate_every=100, save_every=2, gradient_loops=2)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(train, "DEMO_MODEL", train.DEMO_MODEL | {"n_embd": 16, "n_head": 2, "block_size": 8, "vocab_size": 280})
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("train", "valid"):
        (folder / f"{name}.txt").write_text(TEXT, encoding="utf-8")
    return folder


def test_loops_follow_the_poisson_lognormal_of_the_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    recipe = replace(Recipe(), max_loops=10**6)
    drawn = torch.tensor([sample_loops(recipe, 3, generator) for _ in range(20_000)], dtype=torch.float64)
    assert drawn.min() >= 1
    assert drawn.mean().item() == pytest.approx(8.0, rel=0.02)  # r + 1
    variance = 7 + 49 * (math.exp(0.25) - 1)  # Poisson around a lognormal of mean r
    assert drawn.var().item() == pytest.approx(variance, rel=0.05)


def test_the_learning_rate_warms_up_and_falls() -> None:
    recipe = Recipe(steps=100, warmup=10, learning_rate=1.0, final_fraction=0.1)
    rates = [learning_rate(recipe, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert learning_rate(recipe, 100) == pytest.approx(0.1)


def test_a_resumed_run_equals_an_uninterrupted_one(corpus: Path, tmp_path: Path) -> None:
    whole = Trainer(SMALL, corpus=corpus, out=tmp_path / "whole")
    whole.run()
    first = Trainer(replace(SMALL), corpus=corpus, out=tmp_path / "parts")
    first.advance()
    first.advance()
    first.save()
    second = Trainer(SMALL, corpus=corpus, out=tmp_path / "parts")
    assert second.step == 2
    second.run()
    for a, b in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_it_keeps_checkpoints_that_load_and_a_log(corpus: Path, tmp_path: Path) -> None:
    trainer = Trainer(SMALL, corpus=corpus, out=tmp_path / "out")
    trainer.run()
    for step in (0, 2, 4):
        found = card(str(tmp_path / "out" / f"step-{step}"))
        assert (found.step, found.loops_trained) == (step, 8.0)
    with (tmp_path / "out" / "log.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["0", "2", "4"]
    assert all(2 < float(row["valid_8"]) < 9 for row in rows)


def test_gradients_flow_through_the_last_loops_only(corpus: Path, tmp_path: Path) -> None:
    trainer = Trainer(SMALL, corpus=corpus, out=tmp_path / "out")
    body = trainer.network.bodies[0]
    flows: list[bool] = []
    body.register_forward_hook(lambda module, given, output: flows.append(output.requires_grad))
    x = torch.zeros(1, 4, dtype=torch.long)
    trainer.network(x, loops=(5, 5, 5), initial_state=lambda block, entry: torch.zeros_like(entry))
    assert flows == [False, False, False, True, True]


def test_the_tokenizer_round_trips_every_text() -> None:
    tokenizer = train_tokenizer(TEXT, 300)
    for text in ("The king", " naïve 🙂\n\t", "\x00\x7f", "ünï"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.get_vocab_size() == 300


def test_baselines_against_counts_by_hand() -> None:
    import numpy as np

    unigram, bigram = unigram_and_bigram(np.array([0, 1, 0, 1, 0]), np.array([0, 1, 0]), 3)
    p = {0: 4 / 8, 1: 3 / 8}
    assert unigram == pytest.approx(-(math.log(p[1]) + math.log(p[0])) / 2)
    mixed = [0.9 * 1.0 + 0.1 * p[1], 0.9 * 1.0 + 0.1 * p[0]]
    assert bigram == pytest.approx(-sum(map(math.log, mixed)) / 2)
