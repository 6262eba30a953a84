"""Configs of every kind for every native family, and checkpoints with random weights; not collected by pytest."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor

from model.architecture import NativeArchitecture, stored_names
from model.families import architectures

FAMILIES = {name: family for name, family in architectures().items() if isinstance(family, NativeArchitecture)}

_PARTS = {"n_layers_in_prelude": 1, "n_layers_in_recurrent_block": 2, "n_layers_in_coda": 1, "padded_vocab_size": 260}
RAVEN: dict[str, Any] = _PARTS | {
    "model_type": "huginn_raven",
    "n_embd": 24,
    "n_heads": 4,
    "intermediate_size": 20,
    "block_size": 16,
}
OURO: dict[str, Any] = {
    "model_type": "ouro",
    "hidden_size": 24,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "vocab_size": 260,
    "max_position_embeddings": 16,
    "num_hidden_layers": 2,
    "total_ut_steps": 3,
}
PARCAE: dict[str, Any] = _PARTS | {
    "_class_name": "ParcaeConfig",
    "n_embd": 32,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "block_size": 16,
    "injection_type": "diagonal",
}
NANO: dict[str, Any] = {
    "n_embd": 24,
    "n_head": 4,
    "block_size": 16,
    "vocab_size": 260,
    "n_prelude": 1,
    "n_block": 2,
    "n_coda": 1,
    "n_loop": 3,
    "input_injection": "inject_random",
}
TWO_SCALE: dict[str, Any] = {
    "n_embd": 24,
    "n_head": 4,
    "block_size": 16,
    "vocab_size": 260,
    "n_layer": 5,
    "loop_groups": [[1], [2, 3]],
}

# Settings of every kind that a config may hold: (family, config).
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "huginn untied": ("huginn", RAVEN | {"tie_embeddings": False}),
    "huginn without query bias": ("huginn", RAVEN | {"qk_bias": False, "n_layers_in_prelude": 3, "n_layers_in_coda": 0}),
    "huginn with biases": ("huginn", RAVEN | {"bias": True, "n_layers_in_prelude": 0}),
    "huginn grouped": ("huginn", RAVEN | {"qk_bias": False, "num_key_value_heads": 2}),
    "llama grouped": ("retrofit_llama", RAVEN | {"num_key_value_heads": 1, "rope_theta": 5000.0}),
    "llama tied, wide heads": ("retrofit_llama", RAVEN | {"tie_embeddings": True, "head_dim": 8}),
    "llama scaled positions": (
        "retrofit_llama",
        RAVEN
        | {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8,
            }
        },
    ),
    "olmo grouped": ("retrofit_olmo", RAVEN | {"num_key_value_heads": 2, "n_layers_in_recurrent_block": 1}),
    "olmo skip adapter": ("retrofit_olmo", RAVEN | {"initial_state_mode": "skip-adapter", "init_values": {"embed_scale": 3.0}}),
    "olmo copy of the entry": ("retrofit_olmo", RAVEN | {"initial_state_mode": "embed-init", "bias": True}),
    "ouro grouped": ("ouro", OURO | {"num_key_value_heads": 2}),
    "ouro tied": ("ouro", OURO | {"tie_word_embeddings": True, "num_hidden_layers": 1}),
    "parcae wide state": ("parcae", PARCAE | {"recurrent_embedding_dimension": 48, "recurrent_num_attention_heads": 6}),
    "parcae linear": ("parcae", PARCAE | {"injection_type": "linear", "bias": True, "qk_bias": True, "state_init": "unit"}),
    "parcae add": ("parcae", PARCAE | {"injection_type": "add", "prelude_norm": False, "state_init": "zero"}),
    "parcae gated": ("parcae", PARCAE | {"mlp_class_name": "GatedMLP", "nonlin_name": "SiLU", "qk_norm": False}),
    "parcae soft cap": ("parcae", PARCAE | {"logit_softcap": 2.0, "tie_embeddings": False, "init_strategy": "takase"}),
    "parcae grouped": ("parcae", PARCAE | {"num_key_value_heads": 2, "value_embedding_layers": [0, 2, 3]}),
    "nanoloop biases": ("nanoloop", {"model_args": NANO | {"bias": True, "n_prelude": 0, "n_coda": 3}}),
    "nanoloop passthrough": ("nanoloop", {"model_args": NANO | {"input_injection": "passthrough"}}),
    "nanoloop copy": ("nanoloop", {"model_args": NANO | {"input_injection": "inject"}}),
    "two-scale without bias": ("latent_ttc", {"model_args": TWO_SCALE | {"bias": False}}),
    "two-scale adapter": (
        "latent_ttc",
        {"model_args": TWO_SCALE | {"bias": True, "concatenate_initial_representation": True, "loop_noise_scale": 1.0}},
    ),
}


def write(folder: Path, family: str, config: Mapping[str, Any], *, seed: int = 0) -> Path:
    """A checkpoint folder with random weights, norms included."""
    torch.manual_seed(seed)
    architecture = FAMILIES[family]
    network = architecture.build(config)
    own: dict[str, Tensor] = {}
    for name, value in network.state_dict().items():
        spread = torch.rand_like(value) + 0.5 if "norm" in name else torch.randn_like(value) * value.shape[-1] ** -0.5
        own[name] = spread
    names = stored_names(architecture.key_map(config))
    folder.mkdir(parents=True, exist_ok=True)
    save_file({theirs: own[ours] for ours, theirs in names.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
