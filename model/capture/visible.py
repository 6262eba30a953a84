"""Token text that a person can see: whitespace and control characters shown."""

_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def visible(text: str) -> str:
    r"""Whitespace as visible characters, other control characters escaped: " a\n" -> "·a⏎"."""
    shown = "".join(_VISIBLE.get(c, c) for c in text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
