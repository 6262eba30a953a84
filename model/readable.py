"""Tokens as text that a person can read; no torch."""

from functools import lru_cache

from tokenizers import pre_tokenizers

_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def visible(text: str) -> str:
    r"""Whitespace as visible characters, other control characters escaped: " a\n" -> "·a⏎"."""
    shown = "".join(_VISIBLE.get(c, c) for c in text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def unused(token: int) -> str:
    """A row of the embedding that the tokenizer has no entry for: vocabularies are padded to round numbers."""
    return f"⟨unused {token}⟩"


def bytes_label(raw: bytes) -> str:
    """Bytes as visible text; those that are no text of their own are escaped."""
    try:
        return visible(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return visible(raw.decode("utf-8", errors="backslashreplace"))


@lru_cache(maxsize=1)
def byte_alphabet() -> dict[str, int]:
    """Character of the byte-level alphabet -> byte, found by encoding every byte that is a character of its own.

    The alphabet keeps printable Latin-1 bytes as they are and lifts the others, in order, to U+0100 and up.
    """
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    kept = {chr(b): b for b in range(256) if chr(b) in alphabet}
    lifted = sorted(alphabet - set(kept))
    rest = [b for b in range(256) if b not in kept.values()]
    return kept | dict(zip(lifted, rest, strict=True))
