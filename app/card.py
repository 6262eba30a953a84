"""A checkpoint's card in words: the same lines on the page and on the command line."""

from analysis import study

_SPACES = {"raw": "raw: the block's plain output", "normed": "normed inside the loop"}
_SHORT_DIGEST = 16


def card_rows(card: study.Card, needed: study.Estimate | None = None) -> tuple[tuple[str, str], ...]:
    """Label and value of every line; a value that the checkpoint does not tell is "", never a number.

    ``needed`` adds the memory of the run that was asked for.
    """
    rows = [
        ("Family", card.title),
        ("Width", _width(card)),
        ("Looped blocks", f"{len(card.block_names)}: {', '.join(card.block_names)}"),
        ("Loops trained", _loops_trained(card)),
        *([] if card.config_loops is None else [("Loops in its config", ", ".join(map(str, card.config_loops)))]),
        ("Parameters", count_words(card.parameters)),
        ("Stored as", card.dtype),
        *([] if needed is None else [("Memory of this run", memory_words(needed))]),
        ("Tokenizer", card.tokenizer),
        ("Vocabulary", f"{card.vocabulary:,}"),
        ("Context", f"{card.context:,} tokens"),
        ("Predicts", objective_words(card)),
        ("Initial state", card.initial_state_rule),
        ("Iterates", _SPACES.get(card.space, card.space)),
        ("Injection", card.injection),
        *([("Exit gate", "learned")] if card.has_gate else []),
        ("Logit lens", card.logit_lens),
        ("Digest", card.digest[:_SHORT_DIGEST]),
    ]
    rows.extend(("Note", note) for note in card.notes)
    return tuple(rows)


def _width(card: study.Card) -> str:
    own = card.state_width in (0, card.width)
    return f"{card.width:,}" if own else f"{card.width:,}, of the iterates {card.state_width:,}"


def _loops_trained(card: study.Card) -> str:
    return "" if card.loops_trained is None else f"{card.loops_trained:g} per block on average"


def objective_words(card: study.Card) -> str:
    """What the model's head predicts."""
    if card.objective == "masked token":
        return "masked language model: predicts the token at the same position"
    return "the next token"


def count_words(count: int) -> str:
    """``1,539,584 (1.5 M)``."""
    for size, unit in ((10**9, "B"), (10**6, "M")):
        if count >= size:
            return f"{count:,} ({count / size:.1f} {unit})"
    return f"{count:,}"


def memory_words(needed: study.Estimate) -> str:
    """What a run takes, of what may be used."""
    need = needed.stored_bytes + needed.working_bytes
    return f"about {_bytes_words(need)} of {_bytes_words(needed.limit_bytes)}{'' if needed.fits else ': too much'}"


def _bytes_words(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
