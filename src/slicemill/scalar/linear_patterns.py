"""Translation of regular expressions to RE2, which matches in linear time.

The syntax tree of Python's parser is written as RE2 syntax, node by node. Look-around, back references,
possessive and atomic groups have no linear form. The end of a text (`$` in Java, which also matches before a
last line end) is a look-ahead in Python. If nothing follows the look-ahead, RE2 may consume the line end
instead. An empty group before the line end then marks the end of the match:

    \\d+$     →     [0-9]+(?P<end1>)(?:\\x{d}\\x{a}|[\\x{a}\\x{d}…])?\\z
"""

from __future__ import annotations

import re
import re._constants as c  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GROUP, END = "group", "end"
# RE2 rejects larger counts.
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
    """Return a Python pattern in RE2's syntax.

    Raise NotLinearError if it has none.

    Python must compile the pattern with re.ASCII.

    `at_end` is the look-ahead for the end of a text. Group n is named `group<n>`; the groups that mark the
    ends of matches are named `end<n>`.

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
        """Return a sequence of nodes.

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
            # Engines differ in which repetition is the empty one, and so in the groups and ends of the match.
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
    """Return True unless `inside` is one repeated part without a group.

    An example of such a part is `(?:a*)`.
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
