"""Read numbers and switches out of a checkpoint's config; whatever is odd becomes a ValueError that names the field."""

from collections.abc import Mapping
from typing import Any, cast

_MOST = 2**24  # entries of a vocabulary, tokens of a context: larger ones are damage, not models
MOST_LAYERS = 4096
"""Layers of one part of a network; a config that asks for more would exhaust memory before anything is loaded."""

_REQUIRED: Any = object()


def section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The mapping under ``name``, or the config itself where there is none."""
    inner = config.get(name, config)
    if not isinstance(inner, Mapping):
        raise ValueError(f"{name} is {_shown(inner)}; a mapping of fields was expected.")
    return cast("Mapping[str, Any]", inner)


def integer(config: Mapping[str, Any], name: str, default: int | Any = _REQUIRED, *, least: int = 1, most: int = _MOST) -> int:
    """A whole number within bounds. A field that is null counts as absent."""
    value = _value(config, name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {_shown(value)}; a whole number from {least} to {most} was expected.")
    return value


def layers(config: Mapping[str, Any], name: str, default: int | Any = _REQUIRED, *, least: int = 0) -> int:
    """A number of layers."""
    return integer(config, name, default, least=least, most=MOST_LAYERS)


def number(config: Mapping[str, Any], name: str, default: float | Any = _REQUIRED) -> float:
    """A finite number of at least 0."""
    value = _value(config, name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {_shown(value)}; a finite number of at least 0 was expected.")
    return float(value)


def switch(config: Mapping[str, Any], name: str, default: bool) -> bool:
    """True or false."""
    value = _value(config, name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {_shown(value)}; true or false was expected.")
    return value


def choice(config: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str | Any = _REQUIRED) -> str:
    """One of several words. What is known but not built here is refused like what is unknown."""
    value = _value(config, name, default)
    if value not in choices:
        raise ValueError(f"{name} is {_shown(value)}; this version can build {', '.join(choices)}.")
    return cast("str", value)


def mapping(config: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Fields under a name, None where there are none."""
    value: Any = config.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{name} is {_shown(value)}; a mapping of fields was expected.")
    return cast("Mapping[str, Any] | None", value)


def mean_loops(config: Mapping[str, Any], name: str) -> float | None:
    """The number of loops under ``name``, None where the config does not tell."""
    return number(config, name) if config.get(name) is not None else None


def run_loops(config: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    """The same as what one looped block runs by default."""
    return (integer(config, name),) if config.get(name) is not None else None


def _value(config: Mapping[str, Any], name: str, default: Any) -> Any:
    value = config.get(name)
    if value is not None:
        return value
    if default is _REQUIRED:
        raise ValueError(f"the field {name} is missing.")
    return default


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
