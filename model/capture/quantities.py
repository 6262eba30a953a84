"""Which quantities a pass records: those that every run has, and those that somebody asks for."""

from collections.abc import Sequence

from .errors import CaptureError
from .readout import ReadoutClass, readouts

ADAPTED_INPUT = "adapted_input"
"""Asks for norms of steps measured from the block's adapted input; they are taken during the pass, not decoded."""


class UnknownQuantity(CaptureError):
    """A quantity that nobody can record; the message names those that can be asked for."""


def chosen_readouts(asked: Sequence[str], *, also: Sequence[str] = ()) -> list[ReadoutClass]:
    """The readouts that are always made, and those asked for.

    ``also`` are words that the caller answers without decoding. Raises UnknownQuantity for any other.
    """
    known = readouts()
    for name in asked:
        if name not in also and name not in known:
            extra = (*also, *(name for name, kind in known.items() if not kind.always))
            raise UnknownQuantity(f"Quantity {name!r} was asked for; choose from {', '.join(extra)}.")
    return [kind for name, kind in known.items() if kind.always or name in asked]
