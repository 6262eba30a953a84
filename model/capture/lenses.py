"""Decode iterates through functions that somebody gives: token by token, or through the rest of their network."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from .errors import CaptureError
from .hooks import first_tensor
from .readout import ReadoutClass, decode_logits
from .trajectory import ReadoutKey

Lens = Literal["logit", "coda"]
Decode = Callable[[Tensor], Tensor]
"""States ``n tokens width`` -> logits ``n tokens vocabulary``."""

_CELLS = 16_000_000  # logits held at once, in float32 64 MB


def named_lenses(decode: Decode | Mapping[str, Decode] | None) -> dict[Lens, Decode]:
    """The functions by lens; one alone is the logit lens. Raises CaptureError for an unknown lens."""
    if decode is None:
        return {}
    given = cast("Mapping[str, Decode]", decode) if isinstance(decode, Mapping) else {"logit": decode}
    for lens, function in given.items():
        if lens not in get_args(Lens):
            raise CaptureError(f"decode has a lens {lens!r}; the lenses are {' and '.join(get_args(Lens))}.")
        if not callable(function):
            raise CaptureError(
                f"decode ({lens} lens) is {function!r}; give a function from states to logits, such as "
                "lambda x: model.head(model.norm(x))."
            )
    return cast("dict[Lens, Decode]", dict(given))


def read_out(
    states: Float[Tensor, "loops tokens width"],
    targets: Int64[Tensor, " tokens"],
    *,
    lens: Lens,
    decode: Decode,
    dtype: torch.dtype,
    quantities: Sequence[ReadoutClass],
) -> dict[ReadoutKey, np.ndarray]:
    """The quantities of one block through one lens; the function is handed states in ``dtype``, the module's own.

    The logit lens decodes a few tokens at a time. A coda mixes tokens, so it is handed all of them, a few loops at
    a time, and again for every stretch of tokens that does not fit. Raises CaptureError when the function returns
    no logits, or mixes tokens under the name of the logit lens.
    """
    last = _checked(decode, states[-1:].to(dtype), lens=lens)
    vocabulary = last.shape[-1]
    if lens == "logit":
        _refuse_mixing(decode, states[-1:].to(dtype), last)
    at_once = max(1, _CELLS // (len(states) * max(vocabulary, 16_384)))

    def logits_at(some: slice) -> Tensor:
        return decode(states[:, some].to(dtype))

    work = logits_at if lens == "logit" else _Windows(states, decode, dtype=dtype, vocabulary=vocabulary).at
    found = decode_logits(work, targets, at_once=at_once, quantities=quantities)
    return {(lens, quantity): array for quantity, array in found.items()}


class _Windows:
    """A coda's logits of some tokens; it runs over whole sequences, and a stretch of what it gave is held."""

    def __init__(self, states: Tensor, decode: Decode, *, dtype: torch.dtype, vocabulary: int) -> None:
        self._states, self._decode, self._dtype = states, decode, dtype
        loops, tokens, _ = states.shape
        self._loops_at_once = max(1, _CELLS // (tokens * vocabulary))
        self._width = max(1, 4 * _CELLS // (loops * vocabulary))
        self._start = self._stop = 0
        self._held: Tensor | None = None

    def at(self, some: slice) -> Tensor:
        """Logits ``loops part vocabulary``; stretches are asked for in order."""
        if self._held is None or some.stop > self._stop:
            self._start, self._stop = some.start, max(some.stop, some.start + self._width)
            parts: tuple[Tensor, ...] = torch.split(self._states, self._loops_at_once)
            stretch = slice(self._start, self._stop)
            self._held = torch.cat([self._decode(part.to(self._dtype))[:, stretch] for part in parts])
        return self._held[:, some.start - self._start : some.stop - self._start]


def _checked(decode: Decode, state: Float[Tensor, "1 tokens width"], *, lens: Lens) -> Float[Tensor, "1 tokens vocabulary"]:
    try:
        logits = cast("object", decode(state))  # what people's functions return is theirs
    except (RuntimeError, TypeError) as error:
        raise CaptureError(
            f"decode ({lens} lens) failed on states of shape {list(state.shape)}: {error}. It must take the block's own states."
        ) from error
    if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != state.shape[:2]:
        got = f"shape {list(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise CaptureError(
            f"decode ({lens} lens) was handed states of shape {list(state.shape)} and returned {got}; "
            f"expected logits of shape {[*state.shape[:2], 'vocabulary']}."
        )
    return logits


def _refuse_mixing(decode: Decode, state: Float[Tensor, "1 tokens width"], whole: Float[Tensor, "1 tokens vocabulary"]) -> None:
    """The logit lens reads each token alone: one token by itself must give what it gave among the others."""
    middle = state.shape[1] // 2
    alone, among = decode(state[:, middle : middle + 1])[0, 0].float(), whole[0, middle].float()
    if not _alike(alone, among, state.dtype):
        raise CaptureError(
            "decode gives a token other logits when it stands alone, so it mixes tokens and is no logit lens. What runs "
            'the rest of the network is the coda lens of the last block: give decode={"coda": ...}.'
        )


def check_coda(decode: Decode, last: Float[Tensor, "1 tokens width"], output: object) -> None:
    """Compare the coda of the last iterate with the logits that the pass returned, where it returned logits.

    Logits of the last position alone are compared as well. Raises CaptureError when they differ.
    """
    own = output
    if isinstance(own, Mapping | tuple | list):
        try:
            own = first_tensor(own)
        except CaptureError:
            return
    coda = _checked(decode, last, lens="coda")[0]
    if not isinstance(own, Tensor) or own.dim() < 2 or own.shape[-1] != coda.shape[-1]:
        return
    own = own.detach().flatten(0, -2)
    if len(own) in (1, len(coda)) and not _alike(coda[-len(own) :].float(), own.float(), last.dtype):
        off = (coda[-len(own) :].float() - own.float()).abs().max()
        raise CaptureError(
            f"decode's coda on the last iterate is not what the model said (logits differ by up to {off:.3g}): it must be "
            "all that follows the last block, each norm once. Where run returns something else than logits, let it return None."
        )


def _alike(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> bool:
    """Whether logits are equal but for rounding in ``dtype``; what is not finite is passed over."""
    tolerance = 1e-3 if dtype in (torch.float32, torch.float64) else 0.1
    defined = found.isfinite() & wanted.isfinite()
    off = torch.where(defined, (found - wanted).abs(), 0.0).max()
    return bool(off <= tolerance * torch.where(defined, wanted.abs(), 0.0).max())
