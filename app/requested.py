"""The request that the options of the command line describe, as far as commands have them in common."""

import argparse
from collections.abc import Sequence
from typing import cast, get_args

from analysis import study
from analysis.exit_rule import ExitRule
from analysis.needs import quantities_of
from app.named import named_block
from app.options import OptionError


def requested(
    arguments: argparse.Namespace,
    rules: Sequence[ExitRule],
    *,
    prompts: tuple[study.Prompt, ...],
    record: study.Record,
    lenses: tuple[study.Lens, ...],
) -> study.Request:
    """These prompts through the model of ``arguments.model_options``, recording what the rules read.

    ``lenses`` are used where --lens was not given. Raises OptionError or RequestError for an option that cannot be used.
    """
    if arguments.dtype not in get_args(study.Dtype):
        raise OptionError(f"--dtype {arguments.dtype} was given; choose one of {', '.join(get_args(study.Dtype))}.")
    return study.Request(
        checkpoint=arguments.checkpoint,
        prompts=prompts,
        loops=arguments.loops,
        initial_state=_initial_state(arguments.initial_state),
        seed=arguments.seed,
        dtype=arguments.dtype,
        device=arguments.device,
        lenses=lenses if arguments.lens is None else _lenses(arguments.lens),
        record=record,
        named=named_block(arguments),
        quantities=tuple(sorted({*quantities_of(rules), *_words(arguments.record)})),
    )


def _lenses(text: str) -> tuple[study.Lens, ...]:
    lenses = () if text.strip() == "none" else tuple(lens.strip() for lens in text.split(","))
    for lens in lenses:
        if lens not in get_args(study.Lens):
            raise OptionError(f"--lens {lens} was given; choose from {', '.join(get_args(study.Lens))}, or none.")
    return cast("tuple[study.Lens, ...]", lenses)


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _initial_state(text: str) -> study.InitialState:
    kind, sign, std = text.partition(":")
    if kind == "normal":
        try:
            return study.InitialState("normal", std=float(std))
        except ValueError as error:
            if isinstance(error, study.RequestError):
                raise
            given = f"{text!r}" if sign else f"{text!r} without a std"
            raise OptionError(f"--initial-state: {given} was given; write normal:STD such as normal:0.02.") from error
    if text == "trained":
        return study.InitialState("trained")
    if text == "zeros":
        return study.InitialState("zeros")
    if text.endswith(".npz"):
        return study.InitialState("file", path=text)
    raise OptionError(f"--initial-state {text} was given; choose trained, zeros, normal:STD or a file ending in .npz.")
