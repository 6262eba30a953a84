"""Prompt and loops that suit another checkpoint, for fields that still hold what the page itself has put there."""

from bisect import bisect_right
from collections.abc import Mapping

from analysis import study
from app import chosen, state

_MOST_LOOPS = 32
"""Loops that are suggested at most: enough to see whether states settle, and soon done on a CPU."""


def place() -> None:
    """Before the fields appear: fill in what the last pass has suggested."""
    fresh: Mapping[str, str] = state.get("_fresh") or {}
    for key, value in fresh.items():
        state.put(key, value)
    state.put("_fresh", None)


def suggest(card: study.Card | None, first: study.Request) -> bool:
    """Whether the checkpoint is another one and calls for other values; have the page drawn anew then, for ``place``.

    ``card`` is None while it is not known. What the reader has typed stays, and so does everything that a link says or
    leaves at its default: the first checkpoint of a session goes with the prompt and loops that came with it.
    """
    name = chosen.name()
    if state.get("_suited") is None:
        state.put("_suited", name)
    if card is None or state.get("_suited") == name:
        return False
    state.put("_suited", name)
    default = {"prompt": first.prompts[0].text or "", "loops": str(first.loops[0])}
    held: Mapping[str, str] = state.get("_suggested") or default
    better: dict[str, str] = {}
    if state.get("loops") == held["loops"]:
        better["loops"] = loops(card) or default["loops"]
    if state.get("prompt") == held["prompt"]:
        better["prompt"] = beginning(name, default["prompt"], card.context)
    fresh = {key: value for key, value in better.items() if value != held[key]}
    state.put("_suggested", {**held, **fresh})
    state.put("_fresh", fresh)
    return bool(fresh)


def loops(card: study.Card) -> str:
    """Twice the loops of the training, else those that the project's own code runs; "" where the card tells neither.

    In the words of the field: one number, or one per block where they differ.
    """
    if card.loops_trained is not None:
        return str(_within(round(2 * card.loops_trained)))
    numbers = [_within(count) for count in card.config_loops or ()]
    return ", ".join(str(number) for number in (numbers if len(set(numbers)) > 1 else numbers[:1]))


def _within(count: int) -> int:
    return min(max(count, 1), _MOST_LOOPS)


def beginning(checkpoint: str, text: str, context: int) -> str:
    """The longest beginning of the text, in whole words, that fits the context; all of it where that cannot be told."""
    words = text.split(" ")

    def length(count: int) -> int:
        return len(study.tokenize(checkpoint, " ".join(words[:count]))[0])

    try:
        fitting = bisect_right(range(1, len(words) + 1), context, key=length)
    except study.KNOWN_ERRORS:
        return text
    return text if fitting in (0, len(words)) else " ".join(words[:fitting]).rstrip(",;")
