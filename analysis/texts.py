"""Texts that exit rules are compared on: those that come with the project, and how a text is cut into windows."""

from typing import Literal

from analysis.prompts import PromptError
from model.locate import DEMO_FOLDER

BundledText = Literal["calibrate", "report"]
"""Both are held out from the demo's training: thresholds are chosen on one and reported on the other."""

_FEWEST_WINDOWS = 8
"""Intervals over windows need several, so a long context is not filled by a short text."""


def bundled_text(name: BundledText) -> str:
    """One of the project's texts."""
    return (DEMO_FOLDER.parent / "corpus" / f"{name}.txt").read_text(encoding="utf-8")


def check_words(words: str, name: object) -> None:
    """Raise PromptError, naming the text, where it holds nothing but white space: windows of that compare no rule."""
    if not words.strip():
        raise PromptError(f"{name} holds {'white space alone' if words else 'nothing'}; give a text with words in it.")


def window_length(tokens: int, *, context: int) -> int:
    """Tokens of a window, so that a text of ``tokens`` gives several and none is longer than the model's context."""
    return min(context, max(2, tokens // _FEWEST_WINDOWS))
