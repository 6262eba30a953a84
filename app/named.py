"""The options that name looped blocks in a model of the transformers library."""

import argparse

from analysis import study
from app.options import OptionError

_OTHERS = ("count", "norm", "head")


def named_block(arguments: argparse.Namespace) -> study.NamedBlock | None:
    """What was named, None where nothing was. Raises OptionError when --block is missing beside the others."""
    if arguments.block is not None:
        return study.NamedBlock(arguments.block, count=arguments.count, norm=arguments.norm, head=arguments.head)
    given = [f"--{name}" for name in _OTHERS if getattr(arguments, name)]
    if given:
        raise OptionError(f"{given[0]} was given without --block; name the looped block too, such as --block model.layers.")
    return None
