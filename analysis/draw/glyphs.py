"""Text for paper: every character that the bundled fonts can draw, and the others in escaped form."""

import unicodedata
from functools import cache
from importlib.resources import files
from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font, LoadFlags

_BUNDLED = "SourceSansPro-Regular.ttf"
_SHIPPED = ("DejaVuSans.ttf", "STIXGeneral.ttf")
_NEVER_DRAWN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories without a shape of their own: controls, formats, surrogates, private and unassigned ones."""


@cache
def register_fonts() -> None:
    """Make the bundled font known to matplotlib, once per process."""
    font_manager.fontManager.addfont(_bundled())


def _bundled() -> Path:
    return Path(str(files("assets"))) / "fonts" / _BUNDLED


@cache
def _fonts() -> tuple[FT2Font, ...]:
    """The faces in the order in which matplotlib falls back from one to the next."""
    shipped = Path(mpl.get_data_path()) / "fonts" / "ttf"
    return tuple(FT2Font(str(path)) for path in (_bundled(), *(shipped / name for name in _SHIPPED)))


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


def width_pt(text: str, size: float) -> float:
    """Width of the longest line of printable text at a font size, both in points."""
    return max((sum(_advance(c) for c in line) for line in text.split("\n")), default=0.0) * size


@cache
def _advance(character: str) -> float:
    """Width of a character over the font size."""
    for font in _fonts():
        if font.get_char_index(ord(character)):
            glyph = font.load_char(ord(character), flags=LoadFlags.NO_SCALE)
            return float(glyph.horiAdvance) / font.units_per_EM
    return 0.6


def fitted(text: str, room_pt: float, size: float) -> str:
    """The text cut to a width, ending in … where it was; "" where not even two characters fit."""
    if width_pt(text, size) <= room_pt:
        return text
    for length in range(len(text) - 1, 0, -1):
        cut = text[:length] + "…"
        if width_pt(cut, size) <= room_pt:
            return cut
    return ""
