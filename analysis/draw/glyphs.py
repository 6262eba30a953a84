"""Text for paper: every character that the bundled fonts can draw, and the others in escaped form."""

import unicodedata
from functools import cache
from importlib.resources import files
from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

_BUNDLED = ("SourceSansPro-Regular.ttf", "SourceSansPro-Semibold.ttf")
_SHIPPED = ("DejaVuSans.ttf", "STIXGeneral.ttf")
_NEVER_DRAWN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories without a shape of their own: controls, formats, surrogates, private and unassigned ones."""


@cache
def register_fonts() -> None:
    """Make the bundled fonts known to matplotlib, once per process."""
    for path in _bundled_paths():
        font_manager.fontManager.addfont(path)


def _bundled_paths() -> list[Path]:
    folder = Path(str(files("assets"))) / "fonts"
    return [folder / name for name in _BUNDLED]


@cache
def _fonts() -> tuple[FT2Font, ...]:
    """The regular faces in the order in which matplotlib falls back from one to the next."""
    shipped = Path(mpl.get_data_path()) / "fonts" / "ttf"
    return tuple(FT2Font(str(path)) for path in (_bundled_paths()[0], *(shipped / name for name in _SHIPPED)))


@cache
def has_glyph(character: str) -> bool:
    """Whether one of the paper fonts can draw the character."""
    return unicodedata.category(character) not in _NEVER_DRAWN and any(f.get_char_index(ord(character)) for f in _fonts())


def printable(text: str) -> str:
    r"""The text with every character that no font has as ``\u1f642``; line breaks stay line breaks."""
    return "".join(c if c == "\n" or has_glyph(c) else f"\\u{ord(c):04x}" for c in text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """``printable`` on a single line: a line break shows as ⏎."""
    return printable(text.replace("\r\n", "\n").replace("\n", "⏎"))
