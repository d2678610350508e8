"""SQL patterns: LIKE, and regular expressions in Java's dialect.

Java's syntax is translated to Python's; constructs that Python does not support are rejected. Letters,
digits and word boundaries are ASCII, as in Java. RE2 matches every pattern that can be written in its syntax
(`linear_form`), in linear time. `regex` matches all other patterns, with a time limit.
"""

from __future__ import annotations

import re
import re._constants as c  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from slicemill.functions.values import ExpressionError

# CPU seconds for matching one text, if RE2 does not match the pattern.
MATCH_S = 1.0
# Limit for using RE2: number of instructions of the pattern, times text length.
MOST_STEPS = 3_000_000_000

_LINE_ENDS = "\n\r\u0085\u2028\u2029"
_AT_END = rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)"
# Java escapes that Python spells differently. Java's POSIX classes are ASCII.
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


@dataclass(frozen=True, slots=True)
class LikePattern:
    """LIKE pattern, split at its `%` into parts that match in order.

    Each part has a fixed length, so the first occurrence is always the best one and the search never
    backtracks.
    """

    parts: tuple[re.Pattern[str], ...]
    lengths: tuple[int, ...]

    def matches(self, text: str) -> bool:
        """Return True if the whole text matches."""
        first = self.parts[0].match(text)
        if first is None:
            return False
        if len(self.parts) == 1:
            return first.end() == len(text)
        place, end = first.end(), len(text) - self.lengths[-1]
        for part in self.parts[1:-1]:
            found = part.search(text, place)
            if found is None:
                return False
            place = found.end()
        return place <= end and self.parts[-1].match(text, end) is not None


@lru_cache(maxsize=512)
def like_pattern(pattern: str, escape: str, ignore_case: bool) -> LikePattern:
    """Compile a LIKE pattern.

    >>> like_pattern("a%b_", "\\\\", False).matches("a, bc")
    True
    """
    if ignore_case:
        pattern = pattern.lower()
    parts: list[list[str]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            following = next(letters, None)
            if following is None or (following not in ("%", "_") and following != escape):
                raise ExpressionError(
                    f"in the pattern '{pattern}' the escape character stands before {following or 'nothing'};"
                    " it may stand before %, _ and itself"
                )
            parts[-1].append(re.escape(following))
        elif letter == "%":
            parts.append([])
        else:
            parts[-1].append("." if letter == "_" else re.escape(letter))
    compiled = tuple(re.compile("".join(part), re.DOTALL) for part in parts)
    return LikePattern(compiled, tuple(map(len, parts)))


class PatternMatch(NamedTuple):
    """Match of a pattern, with the spans of the match and groups.

    A group without a match has the span (-1, -1).
    """

    text: str
    spans: tuple[tuple[int, int], ...]

    def group(self, number: int) -> str | None:
        start, end = self.spans[number]
        return None if start < 0 else self.text[start:end]


class JavaPattern:
    """Java regular expression, matched by RE2 or with a time limit."""

    def __init__(self, pattern: str, translated: str) -> None:
        checked = re.compile(translated, re.ASCII)
        self.pattern = pattern
        self.groups = checked.groups
        self.names: Mapping[str, int] = checked.groupindex
        self._translated = translated
        self._linear = _linear(translated)
        self._limited: Any = None
        self._too_slow: str | None = None

    @property
    def is_linear(self) -> bool:
        """Return True if matching takes linear time."""
        return self._linear is not None

    def found_in(self, text: str) -> bool:
        """Return True if the pattern matches somewhere in a text."""
        if self._linear is not None and self._linear.takes(text):
            return self._linear.found_in(text)
        return self._search(text, 0) is not None

    def matches(self, text: str) -> Iterator[PatternMatch]:
        """Yield the matches from left to right, like Java's `find`.

        An empty match may directly follow another match.
        """
        if self._linear is not None and self._linear.takes(text):
            yield from self._linear.matches(text)
            return
        place = 0
        while place <= len(text) and (found := self._search(text, place)) is not None:
            start, end = found.span()
            yield PatternMatch(text, tuple(found.span(number) for number in range(self.groups + 1)))
            place = end + (start == end)

    def _search(self, text: str, place: int) -> Any:
        import regex

        if self._too_slow is not None:
            raise ExpressionError(self._too_slow)
        if self._limited is None:
            self._limited = regex.compile(self._translated, regex.ASCII | regex.VERSION0)
        try:
            return self._limited.search(text, place, timeout=MATCH_S)
        except TimeoutError:
            # Each later row could reach the time limit too, so this process stops using the pattern.
            self._too_slow = (
                f"'{self.pattern}' took more than {MATCH_S:g} s on one text of {len(text)} characters; "
                "rewrite it without look-around, back references and repetitions inside repetitions"
            )
            raise ExpressionError(self._too_slow) from None


class _LinearPattern:
    """Pattern matched by RE2.

    Byte spans of UTF-8 are converted to character spans.
    """

    def __init__(self, compiled: Any, groups: int) -> None:
        self._compiled = compiled
        self._size: int = compiled.programsize
        index = compiled.groupindex
        self._places = [0, *(index[f"{GROUP}{number}"] for number in range(1, groups + 1))]
        self._ends = [place for name, place in index.items() if name.startswith(END)]

    def takes(self, text: str) -> bool:
        """Return True if RE2 matches a text of this length within seconds."""
        return self._size * len(text) <= MOST_STEPS

    def found_in(self, text: str) -> bool:
        return self._compiled.search(text.encode()) is not None

    def matches(self, text: str) -> Iterator[PatternMatch]:
        encoded = text.encode()
        in_ascii = len(encoded) == len(text)
        place, before, characters = 0, 0, 0
        while place <= len(encoded) and (found := self._compiled.search(encoded, place)) is not None:
            spans = [found.span(number) for number in self._places]
            # Groups end where the look-ahead for the end of the text begins.
            end = max((found.start(number) for number in self._ends), default=-1)
            if end >= 0:
                spans = [(min(first, end), min(last, end)) for first, last in spans]
            start, last = spans[0]
            if in_ascii:
                yield PatternMatch(text, tuple(spans))
            else:
                characters += len(encoded[before:start].decode())
                before = start
                yield PatternMatch(
                    text,
                    tuple((_char_span(encoded, start, characters, span)) for span in spans),
                )
            place = last
            if start == last:  # continue after the next character
                place += 1
                while place < len(encoded) and encoded[place] & 0xC0 == 0x80:
                    place += 1


def _char_span(encoded: bytes, start: int, characters: int, span: tuple[int, int]) -> tuple[int, int]:
    """Convert a span of bytes to a span of characters.

    `characters` is the number of characters before the byte `start`.
    """
    if span[0] < 0:
        return span
    first = characters + len(encoded[start : span[0]].decode())
    return first, first + len(encoded[span[0] : span[1]].decode())


def _linear(translated: str) -> _LinearPattern | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        form = linear_form(translated, _AT_END)
        compiled = re2.compile(form, options)
    except (NotLinearError, re2.error):  # RE2 rejects patterns that need much memory
        return None
    return _LinearPattern(compiled, re.compile(translated, re.ASCII).groups)


@lru_cache(maxsize=512)
def java_pattern(pattern: str) -> JavaPattern:
    """Compile a regular expression of Java's dialect.

    >>> next(java_pattern(r"(?<year>\\d{4})\\z").matches("in 2026")).group(1)
    '2026'
    """
    try:
        return JavaPattern(pattern, _translate(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ExpressionError(f"'{pattern}' is no regular expression that is supported: {error}") from None


def _translate(pattern: str) -> str:
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
                letter = f"\\{letter}"  # Python warns about `&&`, `||` and `~~` in a class
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
    """Translate the escape at `place`; return the text and the next position."""
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


# Translation of regular expressions to RE2, which matches in linear time.
#
# The syntax tree of Python's parser is written as RE2 syntax, node by node. Look-around, back references,
# possessive and atomic groups have no linear form. The end of a text (`$` in Java, which also matches
# before a last line end) is a look-ahead in Python. If nothing follows the look-ahead, RE2 may consume the
# line end instead. An empty group before the line end then marks the end of the match:
#
#     \d+$     →     [0-9]+(?P<end1>)(?:\x{d}\x{a}|[\x{a}\x{d}…])?\z


GROUP, END = "group", "end"
# Maximum repetition count that RE2 accepts.
_MOST_REPEATS = 1000
_RANGES = {
    "CATEGORY_DIGIT": r"0-9",
    "CATEGORY_NOT_DIGIT": r"\x00-/:-\x{10ffff}",
    "CATEGORY_SPACE": r"\x09-\x0d\x20",
    "CATEGORY_NOT_SPACE": r"\x00-\x08\x0e-\x1f!-\x{10ffff}",
    "CATEGORY_WORD": r"0-9A-Z_a-z",
    "CATEGORY_NOT_WORD": r"\x00-/:-@\[-\^`{-\x{10ffff}",
}
_PLACES = {
    "AT_BEGINNING": r"\A",
    "AT_BEGINNING_STRING": r"\A",
    "AT_END_STRING": r"\z",
    "AT_BOUNDARY": r"\b",
}
_REPEATS = {(0, 1): "?", (0, None): "*", (1, None): "+"}


class NotLinearError(Exception):
    """Raised if RE2 has no equivalent of the pattern."""


def linear_form(pattern: str, at_end: str) -> str:
    """Return a Python pattern in RE2's syntax, or raise NotLinearError.

    Python must compile the pattern with re.ASCII. `at_end` is the look-ahead for the end of a text. Group n
    is named `group<n>`; the groups that mark the ends of matches are named `end<n>`.

    >>> linear_form("(a|b)+c", "(?=x)")
    '(?:(?P<group1>[\\\\x{61}\\\\x{62}]))+\\\\x{63}'
    """
    try:
        tree = parser.parse(pattern, re.ASCII)
        (wanted,) = parser.parse(at_end, re.ASCII).data
    except RecursionError:
        raise NotLinearError from None
    return _RE2Writer(repr(wanted)).sequence(tree, bool(tree.state.flags & re.IGNORECASE), last=True)


@dataclass(slots=True)
class _RE2Writer:
    at_end: str
    ends: int = 0

    def sequence(self, nodes: Any, ignore_case: bool, *, last: bool) -> str:
        """Return a sequence of nodes of the syntax tree in RE2's syntax.

        `last` means that the pattern ends after the sequence.
        """
        count = len(nodes)
        return "".join(
            self.node(node, ignore_case, last=last and place == count - 1) for place, node in enumerate(nodes)
        )

    def node(self, node: tuple[Any, Any], ignore_case: bool, *, last: bool) -> str:
        kind, value = node
        if kind is c.LITERAL or kind is c.NOT_LITERAL:
            return self._class([(c.LITERAL, value)], ignore_case, negated=kind is c.NOT_LITERAL)
        if kind is c.IN:
            negated = value[0][0] is c.NEGATE
            return self._class(value[1:] if negated else value, ignore_case, negated=negated)
        if kind is c.ANY:
            return r"[^\x{a}]"
        if kind is c.BRANCH:
            return f"(?:{'|'.join(self.sequence(one, ignore_case, last=last) for one in value[1])})"
        if kind is c.SUBPATTERN:
            number, added, removed, inside = value
            ignore_case = (ignore_case or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
            name = "?:" if number is None else f"?P<{GROUP}{number}>"
            return f"({name}{self.sequence(inside, ignore_case, last=last)})"
        if kind is c.MAX_REPEAT or kind is c.MIN_REPEAT:
            return self._repeated(value, ignore_case) + ("?" if kind is c.MIN_REPEAT else "")
        if kind is c.AT and str(value) in _PLACES:
            return _PLACES[str(value)]
        if last and repr(node) == self.at_end:
            self.ends += 1
            (_, inside) = value
            return f"(?P<{END}{self.ends}>){self.sequence(inside, False, last=False)}"
        raise NotLinearError

    def _repeated(self, value: tuple[int, Any, Any], ignore_case: bool) -> str:
        least, most, inside = value
        bounded = None if most is c.MAXREPEAT else most
        if max(least, bounded or 0) > _MOST_REPEATS:
            raise NotLinearError
        if (bounded is None or bounded > 1) and inside.getwidth()[0] == 0 and _has_choices(inside):
            # Engines differ in the groups and the end of a match if a repetition may be empty.
            raise NotLinearError
        # The operand may already be a repetition: `a+*` is not a valid pattern.
        text = f"(?:{self.sequence(inside, ignore_case, last=False)})"
        bounds = f"{{{least},{'' if bounded is None else bounded}}}"
        return text + _REPEATS.get((least, bounded), bounds)

    def _class(self, parts: Sequence[tuple[Any, Any]], ignore_case: bool, *, negated: bool) -> str:
        written = []
        for kind, value in parts:
            if kind is c.CATEGORY:
                written.append(_RANGES[str(value)])
                continue
            first, last = (value, value) if kind is c.LITERAL else value
            if first <= 0xDFFF and last >= 0xD800 and (first >= 0xD800 or last <= 0xDFFF):
                raise NotLinearError  # half a surrogate pair, which no text contains
            written.append(_range(first, last))
            if ignore_case:
                written += [_range(*other) for other in _other_case(first, last)]
        inside = "".join(written)
        if len(written) == 1 and not negated and "-" not in inside:
            return inside
        return f"[{'^' if negated else ''}{inside}]"


def _has_choices(inside: Any) -> bool:
    """Return True if a repeated pattern may match a text in more than one way.

    Return False for a single repetition without a group, such as `(?:a*)`.
    """
    return not (
        len(inside) == 1
        and inside[0][0] in (c.MAX_REPEAT, c.SUBPATTERN)
        and (inside[0][0] is c.MAX_REPEAT or inside[0][1][0] is None)
        and (inside[0][0] is c.SUBPATTERN or inside[0][1][2].getwidth()[0] > 0)
        and (inside[0][0] is c.MAX_REPEAT or not _has_choices(inside[0][1][3]))
    )


def _range(first: int, last: int) -> str:
    return rf"\x{{{first:x}}}" if first == last else rf"\x{{{first:x}}}-\x{{{last:x}}}"


def _other_case(first: int, last: int) -> list[tuple[int, int]]:
    """Return the same ASCII letters in the other case, as ranges."""
    found = []
    for least, most, shift in ((0x41, 0x5A, 32), (0x61, 0x7A, -32)):
        begin, end = max(first, least), min(last, most)
        if begin <= end:
            found.append((begin + shift, end + shift))
    return found
