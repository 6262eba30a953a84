"""The one door to the transformers library: asked for a network by its class, filled with the tensors that we read.

The library is handed a config and tensors, never a folder, so it finds no code and no pickle beside the weights, and
it is kept from the network.
"""

import importlib
import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import torch
from torch import Tensor, nn

from model.locate import CheckpointError, Located
from model.weights import tensors

OLDEST, NEWEST = (5, 24), (5, 24)
"""The first and the last version (major, minor) that the networks were compared with their references in."""

# What ``contained`` sets belongs to the whole process, and so does the default dtype while the library builds.
_LOCK = threading.RLock()
_ATTENTION = "sdpa"
_WRAPPER = "model."
_SPARE = 2**24  # weights that a file may lack before it is looked at name by name
# What a config may say and a network does not need: names of code, kernels and files that the library would fetch, and
# switches that change what a pass returns.
_DROPPED = frozenset(
    {
        "attn_implementation",
        "auto_map",
        "custom_pipelines",
        "distributed_config",
        "dtype",
        "experts_implementation",
        "fsdp_plan",
        "output_attentions",
        "output_hidden_states",
        "pp_plan",
        "quantization_config",
        "return_dict",
        "torch_dtype",
        "tp_plan",
        "transformers_weights",
        "use_cache",
        "use_kernels",
    }
)


@dataclass(frozen=True)
class LibraryModel:
    """Which classes of the library a checkpoint is opened with.

    Attributes:
        title: the family, for a person.
        config_class, model_class: names in ``transformers``.
        ignored: beginnings of tensor names that other heads of the same family left in the file.
        wrapped: whether a ``model.`` before every tensor name is no part of it.
    """

    title: str
    config_class: str
    model_class: str
    ignored: tuple[str, ...] = ()
    wrapped: bool = True


def transformers(title: str) -> Any:
    """The library. Raises CheckpointError where it is not installed or its version was not tested."""
    try:
        found = version("transformers")
    except PackageNotFoundError as error:
        raise _absent(title) from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if not OLDEST <= numbers <= NEWEST:
        raise CheckpointError(
            f"{title} needs transformers {_words(OLDEST)}.0 to {_words(NEWEST)}.x, found {found}; install loopscope[hf]."
        )
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise _absent(title) from error


def _absent(title: str) -> CheckpointError:
    return CheckpointError(f"{title} needs the transformers library; install loopscope[hf].")


def _words(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))


@contextmanager
def contained(library: Any) -> Generator[None]:
    """Neither reports nor progress bars on the terminal, and nothing is asked of the hub, until the block is left.

    One thread at a time.
    """
    logs = library.utils.logging
    constants: Any = importlib.import_module("huggingface_hub.constants")
    with _LOCK:
        offline, level, bar = constants.HF_HUB_OFFLINE, logs.get_verbosity(), logs.is_progress_bar_enabled()
        constants.HF_HUB_OFFLINE = True
        logs.set_verbosity(logs.CRITICAL)
        logs.disable_progress_bar()
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = offline
            logs.set_verbosity(level)
            if bar:
                logs.enable_progress_bar()


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without what would make the library fetch, run or return other things; its sub-configs likewise.

    Raises ValueError for quantized weights, which are not read.
    """
    if config.get("quantization_config") is not None:
        raise ValueError("quantization_config is set, and quantized weights are not read; save the model unquantized.")
    kept = {key: value for key, value in config.items() if key not in _DROPPED and not key.startswith("_")}
    return {
        key: plain(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value for key, value in kept.items()
    }


def library_config(kind: LibraryModel, config: Mapping[str, Any]) -> Any:
    """The library's own config object. Raises ValueError with the library's reason when it refuses a field."""
    library = transformers(kind.title)
    fields = plain(config)
    with contained(library):
        try:
            made = getattr(library, kind.config_class).from_dict(fields)
        except Exception as error:  # the library's checks raise errors of their own kinds
            raise ValueError(_objection(error)) from error
    if hasattr(made, "use_cache"):
        made.use_cache = False  # one pass per prompt: nothing reads it
    return made


def build_model(kind: LibraryModel, config: Mapping[str, Any]) -> nn.Module:
    """The network with untrained weights, on the current default device. Raises ValueError when the config is wrong."""
    library, made = transformers(kind.title), library_config(kind, config)
    with contained(library):
        try:
            return getattr(library, kind.model_class)._from_config(made, attn_implementation=_ATTENTION).eval()
        except Exception as error:  # as above: whatever the library objects to is one sentence
            raise ValueError(_objection(error)) from error


def load_model(
    kind: LibraryModel, located: Located, config: Mapping[str, Any], *, dtype: torch.dtype, device: torch.device
) -> nn.Module:
    """The network with its weights, in eval mode.

    Raises CheckpointError naming a tensor that is missing, unexpected or of another shape, ValueError when the config is
    wrong.
    """
    library, made = transformers(kind.title), library_config(kind, config)
    stored = _without_wrapper(tensors(located)) if kind.wrapped else tensors(located)
    stored = {name: tensor for name, tensor in stored.items() if not name.startswith(kind.ignored)}
    _check_size(kind, located, config, sum(tensor.numel() for tensor in stored.values()))
    with contained(library):
        try:
            model, report = getattr(library, kind.model_class).from_pretrained(
                None,
                config=made,
                state_dict=stored,
                dtype=dtype,
                attn_implementation=_ATTENTION,
                ignore_mismatched_sizes=True,  # reported below, by name
                output_loading_info=True,
            )
        except Exception as error:
            raise CheckpointError(f"{located.weights.name} cannot be loaded as {kind.title}: {_objection(error)}.") from error
    _check(kind, located, report)
    return model.to(device).eval()


def _check_size(kind: LibraryModel, located: Located, config: Mapping[str, Any], held: int) -> None:
    """The library makes up what a file lacks before it reports it: refuse what would fill the memory with that."""
    with torch.device("meta"):
        asked = sum(weight.numel() for weight in build_model(kind, config).parameters())
    if asked > 2 * held + _SPARE:
        raise CheckpointError(
            f"The config of {located.name} asks for {asked} weights and {located.weights.name} holds {held}; check that config "
            "and weights belong together."
        )


def _without_wrapper(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    while stored and all(name.startswith(_WRAPPER) for name in stored):
        stored = {name.removeprefix(_WRAPPER): tensor for name, tensor in stored.items()}
    return stored


def _check(kind: LibraryModel, located: Located, report: Mapping[str, Any]) -> None:
    """Refuse what the library would only report: weights that were made up, left over, or of another shape."""
    file = located.weights.name
    for found, said in (
        ("missing_keys", f"{file} lacks {{}} tensors that {kind.title} needs: {{}}."),
        ("unexpected_keys", f"{file} holds {{}} tensors that {kind.title} does not know: {{}}."),
        ("mismatched_keys", f"{file} holds {{}} tensors of another shape than the config asks for: {{}}."),
        ("error_msgs", f"{file} cannot be read as {kind.title} ({{}} reasons): {{}}."),
    ):
        names = sorted(_name(entry) for entry in report.get(found, ()))
        if names:
            some = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
            raise CheckpointError(f"{said.format(len(names), some)} Check that config and weights belong together.")


def _name(entry: Any) -> str:
    """A name, or the name in (name, stored shape, shape asked for)."""
    if isinstance(entry, tuple):
        name, *shapes = cast("tuple[Any, ...]", entry)
        return f"{name} ({', not '.join(str(tuple(shape)) for shape in shapes)})"
    return str(entry)


def _objection(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"the transformers library says: {text if len(text) <= 300 else text[:299] + '…'}"
