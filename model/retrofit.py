"""The network of retrofitted models: layers of a plain language model, cut into prelude, core and coda, with an adapter.

Source: McLeish et al., "Teaching Pretrained Language Models to Think Deeper with Retrofitted Recurrence",
arXiv 2511.07384, in the form of the authors' public code. Llama and OLMo differ in their layers only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from model.config import integer, mapping, number, switch
from model.layers import Heads, Rotary
from model.raven import RavenNetwork, RavenSizes, noise_rule, raven_keys, read_sizes
from model.rope import Rope
from model.start import InitialRule


@dataclass(frozen=True)
class RetrofitConfig:
    """What the two networks are built from. ``embed_scale`` multiplies the token embeddings and the initial noise."""

    sizes: RavenSizes
    rope: Rope
    embed_scale: float


def read_retrofit(config: Mapping[str, Any]) -> RetrofitConfig:
    """The config with its fields checked. Raises ValueError naming the field that is missing, odd or not supported."""
    width, heads = integer(config, "n_embd"), integer(config, "n_heads")
    if switch(config, "qk_bias", default=False):
        raise ValueError("qk_bias is true; retrofitted models have none, so this config belongs to another family.")
    sizes = read_sizes(
        config,
        heads=Heads.of(
            width, heads, integer(config, "num_key_value_heads", heads), integer(config, "head_dim", width // heads)
        ),
        context=integer(config, "max_position_embeddings", config.get("block_size")),
        tied=False,
    )
    rope = Rope(number(config, "rope_theta", 10_000.0), mapping(config, "rope_scaling"))
    return RetrofitConfig(sizes=sizes, rope=rope, embed_scale=_embed_scale(config))


def _embed_scale(config: Mapping[str, Any]) -> float:
    return number(mapping(config, "init_values") or {}, "embed_scale", 1.0)


class RetrofitNetwork(RavenNetwork):
    """Token embeddings, the layers of a pretrained model around and inside a loop, an adapter on [state; entry].

    ``skips_adapter``: loop 1 starts from a copy of the entry and runs without the adapter.
    """

    def __init__(
        self, config: RetrofitConfig, layer: Callable[[RavenSizes], nn.Module], *, skips_adapter: bool = False
    ) -> None:
        super().__init__(config.sizes, layer)
        self._config, self._skips_adapter = config, skips_adapter

    def rotary(self, tokens: int) -> Rotary:
        """Halves of a head are paired; the base is ``rope_theta``."""
        return self._config.rope.rotary(tokens, self._config.sizes.heads.head_width, device=self.tokens.weight.device)

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Token embeddings times ``embed_scale``."""
        return self.tokens(ids) * self._config.embed_scale

    def inject(self, entry: Float[Tensor, "B T C"], state: Float[Tensor, "B T C"], loop: int) -> Float[Tensor, "B T C"]:
        """adapter([state; entry]); the state itself in a loop 1 that skips it."""
        return state if loop == 1 and self._skips_adapter else super().inject(entry, state, loop)


def retrofit_keys(config: Mapping[str, Any], extra: Mapping[str, str]) -> dict[str, str | None]:
    """The authors' tensor names -> ours; ``extra`` are names of a layer that one of the two has alone."""
    return raven_keys(read_retrofit(config).sizes, extra)


def is_retrofit(config: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Whether config and keys are of the code base that the retrofits share with Huginn, without Huginn's sandwich layers."""
    norms = {key.rpartition(".norm_")[2] for key in keys if key.startswith("transformer.") and ".norm_" in key}
    return config.get("model_type") == "huginn_raven" and norms == {"1.weight", "2.weight"}


def retrofit_noise(config: Mapping[str, Any]) -> InitialRule:
    """Truncated normal of std ``init_values.std`` times ``init_values.embed_scale``, cut at 3 std."""
    return noise_rule(config, scale=_embed_scale(config))
