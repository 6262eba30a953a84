"""Which modules of a transformers model are looped, as a person names them; no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NamedBlock:
    """Dotted module paths in a model of the transformers library.

    Attributes:
        block: the looped block, or several in order, separated by commas. A list of modules stands for its layers one
            after the other, ``list.2:5`` for some of them. The state is the first tensor that the block is handed, its
            first output the iterate.
        count: the config field that sets the number of loops, or one per block; "" leaves the model's own number.
        norm: what a lens applies to an iterate before the head, in order, separated by commas; "" for nothing.
        head: the linear module that gives the logits; "" for no readouts.
    """

    block: str
    count: str = ""
    norm: str = ""
    head: str = ""

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "NamedBlock":
        """Read what ``dataclasses.asdict`` made of one. Raises TypeError for a field that is unknown or no text."""
        odd = [name for name, value in values.items() if not isinstance(value, str)]
        if odd:
            raise TypeError(f"{odd[0]} of the named block is no text")
        return NamedBlock(**values)


def parts(paths: str) -> tuple[str, ...]:
    """The paths in a list that is separated by commas."""
    return tuple(part.strip() for part in paths.split(",") if part.strip())
