"""What a person typed into a field, read as numbers, or a sentence that says what to write."""

from analysis import study


def loops(text: str) -> tuple[int, ...]:
    """``16`` or ``8, 16, 8``: loops for all looped blocks, or one number per block. Raises RequestError."""
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise study.RequestError(
            f"Loops: {text!r} was given; write a whole number such as 16, or one per looped block such as 8, 16, 8."
        )
    return tuple(int(part) for part in parts)


def token_range(text: str) -> tuple[int, int] | None:
    """``0:32`` as a half-open range of positions; nothing typed is None, which means all. Raises RequestError."""
    if not text.strip():
        return None
    start, sign, stop = (part.strip() for part in text.partition(":"))
    if not sign or not (start.isascii() and start.isdigit() and stop.isascii() and stop.isdigit()):
        raise study.RequestError(f"Tokens to store: {text!r} was given; write start:stop such as 0:32, or leave it empty.")
    return int(start), int(stop)
