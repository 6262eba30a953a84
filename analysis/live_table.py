"""A live run beside the post hoc reading of the same text, as rows to read."""

import math
from collections.abc import Sequence

from analysis.live import Comparison

LIVE_HEADER = ("block", "mean loops live", "mean loops post hoc", "equal exit loops")


def live_rows(found: Comparison, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """One row per looped block under ``LIVE_HEADER``."""
    each = zip(names, found.live_loops, found.post_hoc_loops, found.agreement, strict=True)
    return tuple((name, f"{live:.2f}", f"{post_hoc:.2f}", f"{share:.0%}") for name, live, post_hoc, share in each)


def live_words(found: Comparison) -> tuple[tuple[str, str], ...]:
    """Label and value of what holds for the whole model; what is undefined is "–"."""
    return (
        ("Cross-entropy live", _nats(found.live)),
        ("post hoc at the exits", _nats(found.post_hoc)),
        ("full depth", _nats(found.full_depth)),
        ("change, live less full depth", _nats(found.change, sign="+")),
        ("tokens per second, live", f"{found.tokens_per_second:.1f}" if math.isfinite(found.tokens_per_second) else "–"),
    )


def _nats(value: float, *, sign: str = "") -> str:
    return f"{value:{sign}.4f} nats" if math.isfinite(value) else "–"
