"""Patterns of SQL as regular expressions of Python: LIKE, and Java's dialect.

What differs in spelling is translated, what Python cannot do is refused, and letters, digits and word borders
are those of ASCII, as in Java.
"""

from __future__ import annotations

import re
from functools import lru_cache

from slicemill.scalar.values import ExpressionError

_LINE_ENDS = "\n\r\u0085\u2028\u2029"
_AT_END = rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)"
# Java's escapes that Python spells otherwise. POSIX classes are those of ASCII in Java.
_ESCAPES = {
    "z": r"\Z",
    "Z": _AT_END,
    "h": r"[ \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]",
    "e": "\x1b",
}
_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r" \t\n\x0b\f\r",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
}
_KNOWN_ESCAPES = frozenset("dDwWsSbBAtnrfa0123456789xu")


@lru_cache(maxsize=512)
def like_pattern(pattern: str, escape: str, ignore_case: bool) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression for the whole text."""
    if ignore_case:
        pattern = pattern.lower()
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            following = next(letters, None)
            if following is None or (following not in ("%", "_") and following != escape):
                raise ExpressionError(
                    f"in the pattern '{pattern}' the escape character stands before {following or 'nothing'};"
                    " it may stand before %, _ and itself"
                )
            parts.append(re.escape(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return re.compile("".join(parts), re.DOTALL)


@lru_cache(maxsize=512)
def java_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression of Java's dialect.

    >>> java_pattern(r"(?<year>\\d{4})\\z").pattern
    '(?P<year>\\\\d{4})\\\\Z'
    """
    try:
        return re.compile(_translated(pattern), re.ASCII)
    except (re.error, OverflowError) as error:
        raise ExpressionError(f"'{pattern}' is no regular expression that is supported: {error}") from None


def _translated(pattern: str) -> str:
    out: list[str] = []
    place, in_class = 0, False
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\":
            text, place = _escape(pattern, place + 1, in_class)
            out.append(text)
            continue
        if in_class:
            if letter == "[" or pattern.startswith("&&", place):
                raise ExpressionError(f"'{pattern}' combines character classes, which is not supported")
            in_class = letter != "]" or out[-1] in ("[", "[^")
            if letter in "&|~":
                letter = f"\\{letter}"  # Python warns that it may give pairs of them a meaning
        elif letter == "[":
            in_class = True
            letter = "[^" if pattern.startswith("[^", place) else "["
            out.append(letter)
            place += len(letter)
            continue
        elif letter == ".":
            letter = f"[^{_LINE_ENDS}]"
        elif letter == "$":
            letter = _AT_END
        elif pattern.startswith("(?", place):
            text, place = _group(pattern, place)
            out.append(text)
            continue
        out.append(letter)
        place += 1
    return "".join(out)


def _group(pattern: str, place: int) -> tuple[str, int]:
    if re.match(r"\(\?<[A-Za-z]", pattern[place:]):
        return "(?P<", place + 3
    if re.match(r"\(\?(?:[:=!>]|<[=!]|i\)|i:)", pattern[place:]):
        return "(?", place + 2
    raise ExpressionError(f"'{pattern}' has a group or flag that is not supported; of the flags only (?i) is")


def _escape(pattern: str, place: int, in_class: bool) -> tuple[str, int]:
    """The translation of the escape whose letter is at `place`, and where to go on."""
    letter = pattern[place : place + 1]
    if letter == "Q":
        end = pattern.find("\\E", place)
        quoted = pattern[place + 1 : end if end >= 0 else None]
        return re.escape(quoted), end + 2 if end >= 0 else len(pattern)
    if letter in ("p", "P"):
        named = re.match(r"\{(\w+)\}", pattern[place + 1 :])
        inside = _CLASSES.get(named[1]) if named else None
        if named and inside and not (letter == "P" and in_class):
            text = inside if in_class else f"[{'^' if letter == 'P' else ''}{inside}]"
            return text, place + 1 + named.end()
        raise ExpressionError(f"'{pattern}' uses a character class that is not supported")
    if letter == "k":
        named = re.match(r"<(\w+)>", pattern[place + 1 :])
        if named:
            return f"(?P={named[1]})", place + 1 + named.end()
    if letter in _ESCAPES and not in_class:
        return _ESCAPES[letter], place + 1
    if not letter or (letter.isalnum() and letter not in _KNOWN_ESCAPES):
        raise ExpressionError(f"'{pattern}' has the escape \\{letter}, which is not supported")
    return f"\\{letter}", place + 1
