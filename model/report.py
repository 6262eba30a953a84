"""Measure the bundled checkpoints on text they never saw: `python -m model.report` writes assets/demo/report.csv.

Cross-entropy per checkpoint and loop count beside a unigram and an interpolated bigram model of the same
tokens; step norm and step cosine per checkpoint, block and loop, for the two-scale claims.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64, Int64
from tokenizers import Tokenizer

from model.checkpoint import load
from model.locate import DEMO_FOLDER, demo_names, locate
from model.request import Prompt, Record, Request
from model.runner import run
from model.train import cross_entropy

CORPUS = DEMO_FOLDER.parent / "corpus"
LOOP_COUNTS = (1, 2, 4, 8, 16, 32)
SEEDS = (0, 1, 2)


def unigram_and_bigram(train: Int64[np.ndarray, " n"], test: Int64[np.ndarray, " m"], vocabulary: int) -> tuple[float, float]:
    """Nats per token of a unigram model (add one) and of 0.9 bigram + 0.1 unigram, over tokens 1..m-1 of ``test``."""
    counts = np.bincount(train, minlength=vocabulary) + 1.0
    unigram = counts / counts.sum()
    pairs = train[:-1] * vocabulary + train[1:]
    seen, how_often = np.unique(pairs, return_counts=True)
    asked = test[:-1] * vocabulary + test[1:]
    place = np.minimum(np.searchsorted(seen, asked), len(seen) - 1)
    joint = np.where(seen[place] == asked, how_often[place], 0)
    before = np.bincount(train[:-1], minlength=vocabulary)[test[:-1]]
    bigram = np.divide(joint, before, out=np.zeros(len(asked)), where=before > 0)
    # A context never seen has no bigram; the unigram then stands alone.
    alone: Float64[np.ndarray, " predicted"] = unigram[test[1:]]
    mixed = np.where(before > 0, 0.9 * bigram + 0.1 * alone, alone)
    nats = -np.log(mixed)
    return float(-np.log(alone).mean()), float(nats.mean())


def measure(names: Sequence[str], text: str, out: Path) -> None:
    """Write ``report.csv``: checkpoint, loops, mean cross-entropy over the seeds of the initial state, its spread."""
    with (out / "report.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["checkpoint", "loops", "cross_entropy", "spread"])
        for name in names:
            loaded = load(locate(name), dtype="float32", device="cpu")
            std = loaded.architecture.initial_rule(loaded.config).std
            ids = torch.tensor(_tokenizer().encode(text).ids)
            for loops in LOOP_COUNTS:
                # One loop is a plain pass without noise; the spread over seeds is measured where it matters.
                seeds = SEEDS if name == names[-1] and loops > 1 else SEEDS[:1]
                values = [cross_entropy(loaded.network, ids, loops=loops, std=std, seed=seed) for seed in seeds]
                spread = f"{np.ptp(values):.4f}" if len(values) > 1 else ""
                writer.writerow([name, loops, f"{np.mean(values):.4f}", spread])
                file.flush()
                sys.stderr.write(f"{name} {loops} loops: {np.mean(values):.4f}\n")


def two_scales(names: Sequence[str], text: str, out: Path, *, loops: int = 16, windows: int = 8) -> None:
    """Write ``two_scales.csv``: median step norm and cosine per checkpoint, block and loop, and the drift ratio."""
    prompts = tuple(Prompt(ids=ids) for ids in _windows(text, 128, windows))
    with (out / "two_scales.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["checkpoint", "block", "loop", "step_norm", "relative_step_norm", "step_cosine", "drift_in"])
        for name in names:
            found = run(Request(name, prompts, (loops,), lenses=(), record=Record(states=False)))
            for g, block in enumerate(found.trajectories[0].blocks):
                traces = [trajectory.blocks[g] for trajectory in found.trajectories]
                norms = np.concatenate([trace.step_norm for trace in traces], axis=1)
                states = np.concatenate([trace.state_norm for trace in traces], axis=1)
                cosines = np.concatenate([trace.step_cosine for trace in traces], axis=1)
                drift = float(np.median(np.concatenate([trace.drift_in for trace in traces])))
                for row in range(loops):
                    cosine = f"{np.median(cosines[row]):.4f}" if row else ""
                    relative = f"{np.median(norms[row] / states[row]):.3e}"
                    first = [name, block.name, row + 1, f"{np.median(norms[row]):.6g}", relative, cosine]
                    writer.writerow([*first, f"{drift:.4f}" if g else ""])


def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO_FOLDER / "step-0" / "tokenizer.json"))


def _windows(text: str, length: int, count: int) -> list[tuple[int, ...]]:
    ids: list[int] = _tokenizer().encode(text).ids
    return [tuple(ids[i * length : (i + 1) * length]) for i in range(count)]


def main() -> None:
    """Measure everything; takes a few minutes on two cores."""
    report = (CORPUS / "report.txt").read_text(encoding="utf-8")
    train = np.array(_tokenizer().encode((CORPUS / "train.txt").read_text(encoding="utf-8")).ids)
    test = np.array(_tokenizer().encode(report).ids)
    unigram, bigram = unigram_and_bigram(train, test, _tokenizer().get_vocab_size())
    sys.stderr.write(f"{len(test)} tokens; unigram {unigram:.4f}, interpolated bigram {bigram:.4f} nats per token\n")
    two_scales(demo_names(), report, DEMO_FOLDER)
    measure(demo_names(), report, DEMO_FOLDER)


if __name__ == "__main__":
    main()
