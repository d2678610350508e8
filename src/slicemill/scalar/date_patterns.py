"""Date and time patterns of Spark (`date_format`, `to_timestamp`), in UTC and English.

An unsupported letter or width is an error. So every text that is written or read agrees with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from slicemill.scalar.calendar import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    civil_of,
    days_of,
    is_date,
    year_text,
)
from slicemill.scalar.values import ExpressionError

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|(.)", re.DOTALL)


class Moment(NamedTuple):
    year: int
    month: int
    day: int
    days: int
    hour: int
    minute: int
    second: int
    us: int


def formatted(us: int, pattern: str) -> str:
    """Format a timestamp.

    >>> formatted(0, "EEE d MMM yyyy, HH:mm")
    'Thu 1 Jan 1970, 00:00'
    """
    days, rest = divmod(us, DAY_US)
    moment = Moment(
        *civil_of(days),
        days,
        rest // HOUR_US,
        rest // MINUTE_US % 60,
        rest // SECOND_US % 60,
        rest % SECOND_US,
    )
    return "".join(part(moment) for part in writers(pattern))


_FINEST = {"s": SECOND_US, "m": MINUTE_US, **dict.fromkeys("Hha", HOUR_US)}


def finest_us(pattern: str) -> int:
    """Return the largest unit in microseconds that a pattern cannot distinguish.

    Two times in the same unit, counted from 1970, have the same text.

    >>> finest_us("HH:mm")
    60000000
    """
    writers(pattern)  # raises if the pattern is invalid
    sizes = [
        10 ** (6 - len(text)) if letter == "S" else _FINEST.get(letter, DAY_US)
        for letter, text in _tokens(pattern)
    ]
    return min(sizes, default=DAY_US)


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """Return (letter, text) of each field, and ("", text) for plain text."""
    found = []
    for match in _TOKEN.finditer(pattern):
        letter, quoted, other = match.groups()
        if letter:
            found.append((letter, match[0]))
        elif other:
            if other in "'{}#[]":
                raise ExpressionError(f"{other} is not supported in the date pattern '{pattern}'")
            found.append(("", other))
        else:
            found.append(("", quoted.replace("''", "'") or "'"))
    return found


def _unsupported(field: str, pattern: str) -> ExpressionError:
    return ExpressionError(
        f"'{field}' is not supported in the date pattern '{pattern}'; supported are "
        "y yy yyyy, M MM MMM MMMM, d dd, D DDD, E EEE EEEE, Q, a, H HH, h hh, m mm, s ss and S to SSSSSS"
    )


@lru_cache(maxsize=256)
def writers(pattern: str) -> list[Callable[[Moment], str]]:
    """Return functions that write the parts of a pattern."""
    return [_writer(letter, text, pattern) for letter, text in _tokens(pattern)]


def _writer(letter: str, text: str, pattern: str) -> Callable[[Moment], str]:
    width = len(text)
    if not letter:
        return lambda _moment: text
    if letter == "y" and width in (1, 2, 4):
        return {1: _year, 2: lambda m: f"{abs(m.year) % 100:02d}", 4: lambda m: year_text(m.year)}[width]
    if letter in "ML" and width in (3, 4):
        return lambda m: _MONTHS[m.month - 1][: 3 if width == 3 else None]
    if letter == "E" and width <= 4:
        return lambda m: _DAYS[(m.days + 3) % 7][: 3 if width < 4 else None]
    if letter == "a" and width == 1:
        return lambda m: "AM" if m.hour < 12 else "PM"
    if letter == "S" and width <= 6:
        return lambda m: f"{m.us:06d}"[:width]
    number = _NUMBERS.get(letter)
    if number is None or width not in number[1]:
        raise _unsupported(text, pattern)
    value = number[0]
    return lambda m: f"{value(m):0{width}d}"


def _year(moment: Moment) -> str:
    return str(moment.year)


_NUMBERS: dict[str, tuple[Callable[[Moment], int], tuple[int, ...]]] = {
    "M": (lambda m: m.month, (1, 2)),
    "L": (lambda m: m.month, (1, 2)),
    "d": (lambda m: m.day, (1, 2)),
    "D": (lambda m: m.days - days_of(m.year, 1, 1) + 1, (1, 3)),
    "Q": (lambda m: (m.month + 2) // 3, (1, 2)),
    "H": (lambda m: m.hour, (1, 2)),
    "h": (lambda m: (m.hour + 11) % 12 + 1, (1, 2)),
    "m": (lambda m: m.minute, (1, 2)),
    "s": (lambda m: m.second, (1, 2)),
}


# -- reading ----------------------------------------------------------------------------------------------

_SHORT_MONTHS = [month[:3].lower() for month in _MONTHS]


def parsed(text: str, pattern: str) -> int:
    """Parse a timestamp. Fields that the pattern omits default to 1970-01-01 00:00:00."""
    match = reader(pattern).fullmatch(text)
    if match is None:
        raise ExpressionError(f"'{text}' does not have the form {pattern}")
    fields = match.groupdict()
    year = int(fields.get("y") or 1970)
    if fields.get("yy"):
        year = 2000 + int(fields["yy"])
    month, day = int(fields.get("M") or 1), int(fields.get("d") or 1)
    if fields.get("MMM"):
        month = _SHORT_MONTHS.index(fields["MMM"][:3].lower()) + 1
    hour = int(fields.get("H") or 0)
    if fields.get("h"):
        hour = _half_day_hour(int(fields["h"]), fields.get("a"), text)
    minute, second = int(fields.get("m") or 0), int(fields.get("s") or 0)
    if not is_date(year, month, day) or hour > 23 or minute > 59 or second > 59:
        raise ExpressionError(f"there is no such date or time: '{text}'")
    fraction = int((fields.get("S") or "0").ljust(6, "0"))
    us = hour * HOUR_US + minute * MINUTE_US + second * SECOND_US + fraction
    return days_of(year, month, day) * DAY_US + us


def _half_day_hour(hour: int, half: str | None, text: str) -> int:
    if not 1 <= hour <= 12:
        raise ExpressionError(f"there is no such date or time: '{text}'")
    return hour % 12 + (12 if half and half.upper() == "PM" else 0)


@lru_cache(maxsize=256)
def reader(pattern: str) -> re.Pattern[str]:
    """Return the regular expression that reads times in a pattern."""
    parts = []
    for letter, text in _tokens(pattern):
        if not letter:
            parts.append(re.escape(text))
        elif text in _READABLE:
            parts.append(_READABLE[text])
        elif letter == "S" and len(text) <= 6:
            parts.append(rf"(?P<S>\d{{1,{len(text)}}})")
        else:
            raise _unsupported(text, pattern)
    try:
        return re.compile("".join(parts), re.ASCII | re.IGNORECASE)
    except re.error:
        raise ExpressionError(f"the date pattern '{pattern}' names a field twice") from None


_READABLE = {
    "yyyy": r"(?P<y>-?\d{4})",
    "y": r"(?P<y>-?\d{1,6})",
    "yy": r"(?P<yy>\d{2})",
    "M": r"(?P<M>\d{1,2})",
    "MM": r"(?P<M>\d{2})",
    "MMM": rf"(?P<MMM>{'|'.join(month[:3] for month in _MONTHS)})",
    "MMMM": rf"(?P<MMM>{'|'.join(_MONTHS)})",
    "d": r"(?P<d>\d{1,2})",
    "dd": r"(?P<d>\d{2})",
    "a": r"(?P<a>AM|PM)",
    **{letter: rf"(?P<{letter}>\d{{1,2}})" for letter in "Hhms"},
    **{letter * 2: rf"(?P<{letter}>\d{{2}})" for letter in "Hhms"},
}
