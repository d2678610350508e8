"""Text in SVG drawings: width, line breaks and XML escapes."""

from __future__ import annotations

import re
import unicodedata
from xml.sax.saxutils import escape

MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"

# Widths in em. The viewer chooses the font, so assume DejaVu Sans, the widest of the common fonts.
_MONO_EM = 0.602
_CLASSES = {
    "ijl|'": 0.28,
    " .,:;!Ift": 0.36,
    'r()[]{}/\\-"': 0.42,
    "cksvxyz_?*": 0.56,
    "mw%@MW": 0.95,
    "<>=+~^": 0.84,
    "ABCEFKLPRSTVXYZ&": 0.69,
    "DGHNOQU": 0.78,
}
_SANS_EM = {char: width for chars, width in _CLASSES.items() for char in chars}
_BOLD = 1.1

# A line may break at a space, but not within a string constant.
_PIECES = re.compile(r"(?:'(?:[^']|'')*'|\S)+")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml(text: str) -> str:
    """Escape text for XML content and double-quoted attributes; replace invalid characters.

    >>> xml('a < "b" & \\x1b')
    'a &lt; &quot;b&quot; &amp; \\ufffd'
    """
    return escape(_NOT_XML.sub("\ufffd", text), {'"': "&quot;"})


def text_width(text: str, size: float, mono: bool = False, bold: bool = False) -> float:
    """Return the estimated width of a line, rather too wide."""
    em = sum(_em(char, mono) for char in text)
    return em * size * (_BOLD if bold and not mono else 1.0)


def _em(char: str, mono: bool) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return _MONO_EM if mono else _SANS_EM.get(char, 0.65)


def wrapped(text: str, size: float, width: float, lines: int, mono: bool = False) -> list[str]:
    """Break text into at most `lines` lines; an ellipsis marks omitted text.

    >>> wrapped("price > 1000 AND sellerID = 'x y'", 10, 120, 3, mono=True)
    ['price > 1000 AND', "sellerID = 'x y'"]
    >>> wrapped("a_name_that_is_much_too_long", 10, 60, 1, mono=True)
    ['a_name_t…']
    """

    def fits(line: str) -> bool:
        return text_width(line, size, mono) <= width

    made: list[str] = []
    for piece in _PIECES.findall(text):
        if made and fits(f"{made[-1]} {piece}"):
            made[-1] = f"{made[-1]} {piece}"
            continue
        while not fits(piece):
            cut = max((i for i in range(1, len(piece)) if fits(piece[:i])), default=1)
            made.append(piece[:cut])
            piece = piece[cut:]
        made.append(piece)
    if len(made) <= lines:
        return made
    last = made[lines - 1]
    while last and not fits(f"{last}…"):
        last = last[:-1]
    return [*made[: lines - 1], f"{last.rstrip(' ,(')}…"]
