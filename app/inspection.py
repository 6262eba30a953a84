"""``loopscope inspect``: a checkpoint's card and the memory of a run, without loading the weights."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from analysis import study
from app.card import card_rows
from app.named import named_block
from app.options import OptionError
from app.progress import ProgressBar

_A_TOKEN = 0
"""Which token is asked about has no part in the memory that a run takes."""


def inspect(arguments: argparse.Namespace) -> int:
    """Print the card as aligned lines or as JSON; with loops and tokens also what such a run would take."""
    if (arguments.loops is None) != (arguments.tokens is None):
        raise OptionError("--loops and --tokens belong together; give both, such as --loops 16 --tokens 128, or none.")
    show = ProgressBar(1)
    try:
        card = study.card(arguments.checkpoint, named=named_block(arguments), progress=show.prompt(0))
    finally:
        show.close()
    needed = None if arguments.loops is None else study.estimate(_request(arguments))
    if arguments.json:
        sys.stdout.write(json.dumps(asdict(card) | _memory(needed), indent=1, ensure_ascii=False) + "\n")
        return 0
    rows = card_rows(card, needed)
    width = max(len(label) for label, _ in rows)
    sys.stdout.write("".join(f"{label:<{width}}  {value}".rstrip() + "\n" for label, value in rows))
    return 0


def _request(arguments: argparse.Namespace) -> study.Request:
    if arguments.tokens < 1:
        raise OptionError(f"--tokens {arguments.tokens} was given; give 1 or more.")
    return study.Request(
        checkpoint=arguments.checkpoint,
        prompts=(study.Prompt(ids=(_A_TOKEN,) * arguments.tokens),),
        loops=arguments.loops,
        named=named_block(arguments),
    )


def _memory(needed: study.Estimate | None) -> dict[str, Any]:
    """The estimate in bytes, under ``memory``; nothing where none was asked for."""
    return {} if needed is None else {"memory": asdict(needed) | {"fits": needed.fits}}
