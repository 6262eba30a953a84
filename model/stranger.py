"""Why no family takes a checkpoint, in one sentence that names what is odd about it and what to do."""

from collections.abc import Iterator, Mapping
from typing import Any

from model.architecture import Architecture, NativeArchitecture, stored_names
from model.families import architectures
from model.locate import Located

_SETTINGS = ("model_type", "model_args", "_class_name", "architectures", "loop_groups")


def stranger(located: Located, config: Mapping[str, Any], keys: frozenset[str]) -> str:
    """No config, or one that fits a family whose tensors these are not (or the other way round), or nothing fits."""
    some = ", ".join(sorted(keys)[:3]) or "none"
    if not any(name in config for name in _SETTINGS):
        return (
            f"{located.weights.name} (its tensors begin with {some}) says nothing of the network it belongs to, and there is "
            "no config.json with settings beside it; put the config.json of the checkpoint, or for nanoGPT-style files a "
            "model_args entry, with the weights."
        )
    close = max(_fits(config, keys), default=None, key=lambda fit: fit[1] / fit[2])
    if close is not None and close[1] == close[2]:
        return (
            f"The tensors of {located.name} are those of {close[0].title}, but its config does not say so "
            f"({_said(config)}). It is recognised by {close[0].recognised_by}; correct the config."
        )
    hand = _by_hand(config)
    if close is not None:
        family, matched, wanted = close
        return (
            f"The config of {located.name} could be that of {family.title}, but {matched} of {wanted} tensors matched in "
            f"{located.weights.name} (its tensors begin with {some}). Check that config and weights belong together, and "
            f"that no tensor was renamed{hand}."
        )
    return (
        f"{located.weights.name} is of no family known here (its tensors begin with {some}; {_said(config)}; "
        f"known: {', '.join(architectures())}). Check that config and weights belong together{hand}."
    )


def needless_names(config: Mapping[str, Any], keys: frozenset[str]) -> str:
    """A hint for people who named blocks in a checkpoint whose network is written here; "" for all others."""
    for family in architectures().values():
        if isinstance(family, NativeArchitecture) and family.recognises(config, keys):
            return f"Loopscope knows this family ({family.title}): leave out --block and the options that go with it"
    return ""


def _said(config: Mapping[str, Any]) -> str:
    kind = config.get("model_type", config.get("_class_name"))
    return "its config names no model_type" if kind is None else f"its config says {kind!r}"


def _by_hand(config: Mapping[str, Any]) -> str:
    """Files of the transformers library may be looped where a person says."""
    return "; or name the looped block of this transformers model (--block)" if "transformers_version" in config else ""


def _fits(config: Mapping[str, Any], keys: frozenset[str]) -> Iterator[tuple[Architecture, int, int]]:
    """Families whose reader accepts the config: family, number of its tensors that are in the file, number of all."""
    for family in architectures().values():
        if not isinstance(family, NativeArchitecture):
            continue
        try:
            names = family.key_map(family.settled(config, keys))
        except (ValueError, TypeError, KeyError):
            continue
        yield family, len({names[key] for key in keys if names.get(key) is not None}), len(stored_names(names))
