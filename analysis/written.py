"""What a model writes with exits, beside what it writes at full depth: token by token, with the loops each one took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.caption import counted, joined
from model.capture.trajectory import Trajectory
from model.request import RequestError


@dataclass(frozen=True)
class Written:
    """The tokens that two live runs wrote after the same prompt; either may have been stopped on its way.

    Attributes:
        start: position of the first written token.
        differ: position of the first token that differs; None where all that both wrote are the same.
        ours, full: labels of the tokens written with exits, and at full depth.
        loops: per looped block, by name, the loops that each token written with exits took when it was read in its turn.
    """

    start: int
    differ: int | None
    ours: tuple[str, ...]
    full: tuple[str, ...]
    loops: Mapping[str, tuple[int, ...]]


def written(ours: Trajectory, full: Trajectory, *, given: int) -> Written:
    """Set what was written with exits beside what was written without, after a prompt of ``given`` tokens.

    Raises RequestError when the two have not read the same prompt.
    """
    shared = min(given, ours.tokens, full.tokens)
    if list(ours.token_ids[:shared]) != list(full.token_ids[:shared]):
        raise RequestError("The two live runs did not read the same prompt; run both on one prompt.")
    pairs = zip(ours.token_ids[given:], full.token_ids[given:], strict=False)
    differ = next((given + i for i, (one, other) in enumerate(pairs) if one != other), None)
    loops = {block.name: tuple(int(ran) for ran in block.loops_run[given:]) for block in ours.blocks}
    return Written(given, differ, ours.labels[given:], full.labels[given:], loops)


def written_columns(found: Written) -> dict[str, list[str]]:
    """One row per written token, by column: position, both texts, and loops per block; "" where a text is over."""
    count = max(len(found.ours), len(found.full))
    columns = {
        "position": [str(position) for position in range(found.start, found.start + count)],
        "with exits": _filled(found.ours, count),
    }
    columns |= {f"loops {name}": _filled(ran, count) for name, ran in found.loops.items()}
    return columns | {"at full depth": _filled(found.full, count)}


def _filled(values: Sequence[object], count: int) -> list[str]:
    return [*map(str, values), *[""] * (count - len(values))]


def written_words(found: Written) -> str:
    """Both texts in a sentence, and the token at which they part."""
    both = min(len(found.ours), len(found.full))
    at = found.differ
    if at is None:
        whole = len(found.ours) == len(found.full)
        alike = "The text at full depth is the same" + ("." if whole else f" in its first {counted(both, 'token')}.")
        return joined(f"With exits: {_text(found.ours)}.", alike if both else "")
    one, other = found.ours[at - found.start], found.full[at - found.start]
    return (
        f"With exits: {_text(found.ours)}. At full depth: {_text(found.full)}. They part at token {at}: “{one}” with exits, "
        f"“{other}” at full depth."
    )


def _text(labels: tuple[str, ...]) -> str:
    """Labels as running text, with plain spaces for the visible ones."""
    return f"“{''.join(labels).replace('·', ' ').strip()}”"
