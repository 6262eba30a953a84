"""Somebody's own modules, as record() meets them: toys for its tests; not collected by pytest."""

from typing import Any

import torch
from torch import Tensor, nn

from model.capture import Trajectory, record

VOCABULARY, WIDTH = 50, 16


class Mixing(nn.Module):
    """A layer through which every token sees the ones before it; dropout shows whether eval mode is on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        past = x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1, device=x.device, dtype=x.dtype)[:, None]
        return 0.5 * x + self.dropout(torch.tanh(self.linear(past)))


class Model(nn.Module):
    """Embedding, two looped blocks, a coda layer, norm and head: somebody's own network."""

    def __init__(self, loops: tuple[int, int] = (6, 4)) -> None:
        super().__init__()
        self.loops = loops
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.loop_a, self.loop_b, self.coda = Mixing(), Mixing(), Mixing()
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block, loops in zip((self.loop_a, self.loop_b), self.loops, strict=True):
            for _ in range(loops):
                x = block(x)
        return self.rest(x)

    def logit_lens(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))

    def rest(self, x: Tensor) -> Tensor:
        return self.logit_lens(self.coda(x))


X = torch.randn(1, 3, 4)
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])


def both(model: Model, ids: Tensor = IDS, **options: Any) -> Trajectory:
    given: dict[str, Any] = {"decode": {"logit": model.logit_lens, "coda": model.rest}, "tokens": ids} | options
    return record(model, ["loop_a", "loop_b"], run=lambda: model(ids), **given)


class Listed(nn.Module):
    """Runs its list of layers ``rounds`` times."""

    def __init__(self, layers: list[nn.Module], rounds: int) -> None:
        super().__init__()
        self.h, self.rounds = nn.ModuleList(layers), rounds

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.rounds):
            for layer in self.h:
                x = layer(x)
        return x


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())
