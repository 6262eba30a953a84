"""Toy modules and a tiny checkpoint folder for tests of the capture; not collected by pytest."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# (hooks and lambdas for torch, which has no types for them)

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

TINY: dict[str, Any] = {
    "n_layer": 5,
    "n_head": 2,
    "n_embd": 16,
    "block_size": 12,
    "vocab_size": 256,
    "bias": True,
    "loop_groups": [[1], [2, 3]],
    "loop_noise_scale": 1.0,
    "concatenate_initial_representation": True,
}


class Looped(nn.Module):
    """One linear map called ``loops`` times; ``style`` is how its result is wrapped or its input passed."""

    def __init__(self, *, style: str = "tensor", width: int = 4) -> None:
        super().__init__()
        self.block = _Block(style=style, width=width)
        self.style = style

    def forward(self, x: Tensor, loops: int) -> Tensor:
        """The state after ``loops`` calls of the block."""
        for _ in range(loops):
            out: Any = self.block(hidden_states=x) if self.style == "keyword" else self.block(x)
            x = out["state"] if self.style == "mapping" else out[0] if self.style in ("tuple", "list") else out
        return x


class _Block(nn.Module):
    def __init__(self, *, style: str, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.style = style

    def forward(self, hidden_states: Tensor) -> Any:
        if self.style == "inplace":
            return hidden_states.add_(torch.tanh(self.linear(hidden_states)))
        out = torch.tanh(self.linear(hidden_states))
        wrapped: dict[str, Any] = {"tuple": (out, None), "list": [out, 3], "mapping": {"state": out}}
        return wrapped.get(self.style, out)


def write_tiny(folder: Path, *, changes: dict[str, Any] | None = None, seed: int = 0) -> Path:
    """A checkpoint folder of a tiny random network of the two-scale paper; returns the folder."""
    from safetensors.torch import save_file

    from model.architecture import stored_names
    from model.architectures.latent_ttc import LatentTTC

    config = {"model_args": TINY | (changes or {}), "training": {"mean_loops": 4.0, "step": 7}}
    torch.manual_seed(seed)
    family = LatentTTC()
    network = family.build(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" in name:
                parameter.mul_(torch.rand_like(parameter) + 0.5)
    own = network.state_dict()
    tensors = {theirs: own[ours].clone() for ours, theirs in stored_names(family.key_map(config)).items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
