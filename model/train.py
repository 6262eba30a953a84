"""Train the bundled demo: `python -m model.train --out DIR` (resumes from DIR when it holds a state).

The recipe is the two-scale paper's (arXiv 2509.23314, section 3): loop counts drawn per group and step from
a Poisson-lognormal, gradients through the last loops only, the first state of every group fresh noise.
Every random draw is keyed by (seed, step), so a resumed run sees what an uninterrupted one would have seen.
"""

import argparse
import csv
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional as F

from model.architecture import InitialState, LoopedNetwork, stored_names
from model.architectures.latent_ttc import LatentTTC

DEMO_MODEL: dict[str, Any] = {
    "n_layer": 6,
    "n_head": 4,
    "n_embd": 128,
    "block_size": 128,
    "vocab_size": 2048,
    "bias": False,
    "loop_groups": [[1], [2, 3], [4]],
    "loop_counts": [],
    "max_loops": 32,
    "loop_noise_scale": 1.0,
    "concatenate_initial_representation": True,
}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run. Token counts are per step unless named otherwise."""

    steps: int = 2100
    batch: int = 16
    learning_rate: float = 2e-3
    final_fraction: float = 0.05
    warmup: int = 60
    weight_decay: float = 0.1
    clip: float = 1.0
    loop_rate: float = 7.0
    loop_sigma: float = 0.5
    max_loops: int = 40
    gradient_loops: int = 4
    seed: int = 0
    keep: tuple[int, ...] = (0, 50, 150, 400, 1000, 2100)
    validate_every: int = 150
    save_every: int = 50


def sample_loops(recipe: Recipe, groups: int, generator: torch.Generator) -> list[int]:
    """Loops per group: tau ~ Normal(log r - s^2/2, s), loops ~ Poisson(exp tau) + 1.

    The mean is r + 1 (arXiv 2502.05171, section 3.3). Draws above ``max_loops`` are cut there.
    """
    tau = math.log(recipe.loop_rate) - recipe.loop_sigma**2 / 2 + recipe.loop_sigma * torch.randn(groups, generator=generator)
    loops = torch.poisson(tau.exp(), generator=generator) + 1
    return [min(int(n), recipe.max_loops) for n in loops]


def train_tokenizer(text: str, vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer: every byte string round-trips, no special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine from the peak down to ``final_fraction`` of it."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    progress = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return recipe.learning_rate * (recipe.final_fraction + (1 - recipe.final_fraction) * cosine)


def noise(std: float, generator: torch.Generator) -> InitialState:
    """Fresh Gaussian noise of ``std`` for every block."""

    def draw(block: int, entry: Tensor) -> Tensor:
        return torch.randn(entry.shape, generator=generator) * std

    return draw


def windows(ids: Tensor, context: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Consecutive windows of ``context`` predictions, stride = context; the rest at the end is left out."""
    for start in range(0, len(ids) - context, context):
        yield ids[start : start + context], ids[start + 1 : start + context + 1]


@torch.inference_mode()
def cross_entropy(network: LoopedNetwork, ids: Tensor, *, loops: int, std: float, seed: int, batch: int = 16) -> float:
    """Mean next-token cross-entropy in nats over consecutive windows, noise start, every block ``loops`` times."""
    was_training = network.training
    network.eval()
    generator = torch.Generator().manual_seed(seed)
    pairs = list(windows(ids, network.context))
    total, count = 0.0, 0
    for start in range(0, len(pairs), batch):
        x = torch.stack([a for a, _ in pairs[start : start + batch]])
        y = torch.stack([b for _, b in pairs[start : start + batch]])
        logits = network(x, loops=[loops] * len(network.blocks), initial_state=noise(std, generator))
        total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
        count += y.numel()
    network.train(was_training)
    return total / count


def save_checkpoint(network: LoopedNetwork, tokenizer: Tokenizer, folder: Path, *, training: dict[str, Any]) -> None:
    """Write config.json, model.safetensors (the authors' tensor names) and tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architecture": "latent_ttc", "model_args": DEMO_MODEL, "training": training}
    own = network.state_dict()
    names = stored_names(LatentTTC().key_map(config))
    tensors = {theirs: own[ours].contiguous() for ours, theirs in names.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    matrices = [
        p for name, p in network.named_parameters() if p.dim() == 2 and "tokens" not in name and "positions" not in name
    ]
    chosen = {id(p) for p in matrices}
    others = [p for p in network.parameters() if id(p) not in chosen]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.95))


def _batch(ids: Tensor, recipe: Recipe, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(ids) - context - 1, (recipe.batch,), generator=generator)
    rows = starts[:, None] + torch.arange(context + 1)
    picked = ids[rows]
    return picked[:, :-1], picked[:, 1:]


class Trainer:
    """One training run in a folder: state.pt to resume from, log.csv, and kept checkpoints as step-N folders."""

    def __init__(self, recipe: Recipe, *, corpus: Path, out: Path) -> None:
        self.recipe, self.out = recipe, out
        out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(recipe.seed)
        text = (corpus / "train.txt").read_text(encoding="utf-8")
        tokenizer_file = out / "tokenizer.json"
        if not tokenizer_file.exists():
            train_tokenizer(text, DEMO_MODEL["vocab_size"]).save(str(tokenizer_file))
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self.train_ids = torch.tensor(self.tokenizer.encode(text).ids)
        valid = (corpus / "valid.txt").read_text(encoding="utf-8")
        self.valid_ids = torch.tensor(self.tokenizer.encode(valid).ids)[: 64 * DEMO_MODEL["block_size"] + 1]
        family = LatentTTC()
        self.network = family.build({"model_args": DEMO_MODEL})
        self.noise_std = family.initial_rule({"model_args": DEMO_MODEL}).std
        self.network.gradient_loops = recipe.gradient_loops
        self.optimizer = _optimizer(self.network, recipe)
        self.step = 0
        self._resume()

    def _resume(self) -> None:
        path = self.out / "state.pt"
        if path.exists():
            state = torch.load(path, weights_only=True)
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self) -> None:
        """Write the state to resume from; the old one stays until the new one is complete."""
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state, self.out / "state.new")
        (self.out / "state.new").replace(self.out / "state.pt")

    def keep(self) -> None:
        """Write the checkpoint of this step as a folder of its own."""
        tokens = self.step * self.recipe.batch * self.network.context
        recipe = asdict(self.recipe)
        training = {"step": self.step, "tokens": tokens, "mean_loops": self.recipe.loop_rate + 1, "recipe": recipe}
        save_checkpoint(self.network, self.tokenizer, self.out / f"step-{self.step}", training=training)

    def advance(self) -> float:
        """One optimizer step; returns the training cross-entropy in nats per token."""
        generator = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + self.step)
        x, y = _batch(self.train_ids, self.recipe, self.network.context, generator)
        loops = sample_loops(self.recipe, len(self.network.blocks), generator)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, self.step)
        logits = self.network(x, loops=loops, initial_state=noise(self.noise_std, generator))
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def validate(self, loop_counts: Sequence[int] = (1, 2, 4, 8, 16, 32)) -> dict[int, float]:
        """Cross-entropy on the start of valid.txt (64 windows) per loop count; 1 is a plain pass."""
        return {
            loops: cross_entropy(self.network, self.valid_ids, loops=loops, std=self.noise_std, seed=0) for loops in loop_counts
        }

    def run(self) -> None:
        """Train to the last step, keeping, validating and saving on the way."""
        began, first = time.monotonic(), self.step
        losses: list[float] = []
        if self.step == 0:
            self.keep()
            self._log(self.validate(), math.nan)
        while self.step < self.recipe.steps:
            losses.append(self.advance())
            if self.step % 10 == 0:
                rate = (self.step - first) * self.recipe.batch * self.network.context / (time.monotonic() - began)
                left = (self.recipe.steps - self.step) * self.recipe.batch * self.network.context / rate
                recent = sum(losses[-50:]) / len(losses[-50:])
                sys.stderr.write(
                    f"\rstep {self.step}/{self.recipe.steps}  loss {recent:.3f}  {rate:,.0f} tokens/s  {left / 60:.0f} min "
                )
                sys.stderr.flush()
            if self.step in self.recipe.keep:
                self.keep()
            if self.step % self.recipe.validate_every == 0 or self.step in self.recipe.keep:
                self._log(self.validate(), sum(losses[-50:]) / len(losses[-50:]))
            if self.step % self.recipe.save_every == 0 or self.step == self.recipe.steps:
                self.save()

    def _log(self, validation: dict[int, float], training: float) -> None:
        path = self.out / "log.csv"
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(["step", "tokens", "train", *(f"valid_{n}" for n in validation)])
            tokens = self.step * self.recipe.batch * self.network.context
            shown = "" if math.isnan(training) else f"{training:.4f}"
            writer.writerow([self.step, tokens, shown, *(f"{value:.4f}" for value in validation.values())])
        sys.stderr.write(f"\nstep {self.step}  " + "  ".join(f"{n}: {value:.4f}" for n, value in validation.items()) + "\n")


def main() -> None:
    """Command line of the trainer."""
    parser = argparse.ArgumentParser(description="Train the bundled demo model; resumes when the folder holds a state.")
    parser.add_argument("--out", type=Path, required=True, help="folder for state, log and checkpoints")
    parser.add_argument("--corpus", type=Path, default=Path("assets/corpus"), help="folder with train.txt and valid.txt")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    Trainer(Recipe(steps=arguments.steps), corpus=arguments.corpus, out=arguments.out).run()


if __name__ == "__main__":
    main()
