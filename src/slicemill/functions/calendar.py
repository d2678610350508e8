"""Proleptic Gregorian calendar; parsing and formatting of dates and timestamps.

Python's datetime ends at the years 1 and 9999; a 64-bit timestamp does not. Algorithms: Howard Hinnant,
chrono-compatible low-level date algorithms. All times are UTC. The formulas accept Python integers and 64-bit
NumPy arrays, for all days that fit into 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, overload

from slicemill.functions.values import ExpressionError
from slicemill.time import UNITS_US

SECOND_US, MINUTE_US, HOUR_US, DAY_US = (UNITS_US[unit] for unit in ("SECOND", "MINUTE", "HOUR", "DAY"))

_DAYS_BEFORE_1970 = 719_468  # number of days from 0000-03-01 to 1970-01-01
_DAYS_IN_400_YEARS = 146_097

# Characters that Spark strips from a text before it parses a value.
BLANKS = "".join(map(chr, range(33))) + "\x7f"

_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIME = re.compile(
    r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?\s*([^\d\s].*)?)?)?", re.ASCII
)  # a time zone may follow only the seconds
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d\d)(\d\d)(\d\d)?|(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}))?)?)", re.ASCII
)
_UTC = ("", "Z", "UTC", "GMT", "UT")


class CivilDate(NamedTuple):
    year: Any
    month: Any
    day: Any


def is_leap(year: Any) -> Any:
    return (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))


def days_in_month(year: Any, month: Any) -> Any:
    """Return the number of days of a month from 1 to 12.

    The number is arbitrary for other months.
    """
    return 30 + ((month + (month >> 3)) & 1) - (month == 2) * (2 - is_leap(year))


@overload
def days_of(year: int, month: int, day: int) -> int: ...
@overload
def days_of(year: Any, month: Any, day: Any) -> Any: ...
def days_of(year: Any, month: Any, day: Any) -> Any:
    """Return the days since 1970-01-01.

    >>> days_of(1970, 1, 1), days_of(2000, 2, 29), days_of(-1, 1, 1)
    (0, 11016, -719893)
    """
    year = year - (month <= 2)
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _DAYS_IN_400_YEARS + day_of_era - _DAYS_BEFORE_1970


def civil_of(days: Any) -> CivilDate:
    """Return year, month and day, the inverse of `days_of`."""
    era, day_of_era = divmod(days + _DAYS_BEFORE_1970, _DAYS_IN_400_YEARS)
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leaps) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153  # months since March
    month = shifted + 3 - 12 * (shifted >= 10)
    year = year_of_era + era * 400 + (month <= 2)
    return CivilDate(year, month, day_of_year - (153 * shifted + 2) // 5 + 1)


def is_date(year: Any, month: Any, day: Any) -> Any:
    return (month >= 1) & (month <= 12) & (day >= 1) & (day <= days_in_month(year, month))


def plus_months(days: Any, months: Any) -> Any:
    """Add months to a day, clipped to the end of the month."""
    year, month, day = civil_of(days)
    years, index = divmod(month - 1 + months, 12)
    year, month = year + years, index + 1
    too_late = day - days_in_month(year, month)
    return days_of(year, month, day - too_late * (too_late > 0))


def weekday(days: Any) -> Any:
    """Return the weekday of a day, 0 for Monday (1970-01-01 was a Thursday)."""
    return (days + 3) % 7


def day_of_year(days: Any) -> Any:
    return days - days_of(civil_of(days).year, 1, 1) + 1


def week_of_year(days: Any) -> Any:
    """Return the ISO 8601 week number of a day.

    The week belongs to the year of its Thursday.
    """
    return (day_of_year(days - weekday(days) + 3) - 1) // 7 + 1


def last_day(days: Any) -> Any:
    """Return the last day of the month of a day."""
    year, month, _ = civil_of(days)
    return days_of(year, month, days_in_month(year, month))


# -- dates and timestamps from and to strings ---------------------------------------------------------------


def parse_date(text: str) -> int:
    """Parse `yyyy`, `yyyy-m` or `yyyy-m-d` to days.

    A time after a blank or T is ignored, as in Spark.
    """
    stripped = text.strip(BLANKS)
    match = _DATE.match(stripped)
    rest = stripped[match.end() :] if match else ""
    if match and (not rest or (match[3] and rest[0] in " T")):
        year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
        if is_date(year, month, day):
            return days_of(year, month, day)
    raise ExpressionError(f"'{text}' is not a date; write it as 2026-01-31, or use TRY_CAST to get NULL")


def parse_timestamp(text: str) -> int:
    """Parse a date with optional time and UTC offset to microseconds."""
    stripped = text.strip(BLANKS)
    match = _DATE.match(stripped)
    rest = stripped[match.end() :] if match else ""
    if match and is_date(int(match[1]), int(match[2] or 1), int(match[3] or 1)):
        day_us = days_of(int(match[1]), int(match[2] or 1), int(match[3] or 1)) * DAY_US
        if not rest:
            return day_us
        time = _TIME.fullmatch(rest[1:]) if match[3] and rest[0] in " T" else None
        if time and int(time[1]) < 24 and int(time[2] or 0) < 60 and int(time[3] or 0) < 60:
            fraction = int((time[4] or "")[:6].ljust(6, "0"))
            us = (
                int(time[1]) * HOUR_US
                + int(time[2] or 0) * MINUTE_US
                + int(time[3] or 0) * SECOND_US
                + fraction
            )
            return day_us + us - _offset_us(time[5] or "", text)
    raise ExpressionError(
        f"'{text}' is not a timestamp; write it as 2026-01-31 12:00:00, or use TRY_CAST to get NULL"
    )


def _offset_us(zone: str, text: str) -> int:
    if zone in _UTC:
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is None:
        raise ExpressionError(f"the time zone of '{text}' is not known; write an offset such as +02:00")
    hours, minutes, seconds = (
        int(part or 0) for part in (match.groups()[1:4] if match[2] else match.groups()[4:])
    )
    us = hours * HOUR_US + minutes * MINUTE_US + seconds * SECOND_US
    if us > 18 * HOUR_US or minutes > 59 or seconds > 59:
        raise ExpressionError(f"the offset of '{text}' is none: at most 18 hours, 59 minutes, 59 seconds")
    return -us if match[1] == "-" else us


def year_text(year: int) -> str:
    """Return a year with at least four digits.

    A year of more than four digits has a plus sign (ISO 8601).
    """
    if year < 0:
        return f"-{-year:04d}"
    return f"+{year}" if year > 9999 else f"{year:04d}"


def date_text(days: int) -> str:
    year, month, day = civil_of(days)
    return f"{year_text(year)}-{month:02d}-{day:02d}"


def timestamp_text(us: int) -> str:
    """Format microseconds since 1970 as a UTC timestamp.

    >>> timestamp_text(1_500_000), timestamp_text(-1)
    ('1970-01-01 00:00:01.5', '1969-12-31 23:59:59.999999')
    """
    days, rest = divmod(us, DAY_US)
    seconds, fraction = divmod(rest, SECOND_US)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{date_text(days)} {clock}{tail}"


# Date and time patterns of Spark (`date_format`, `to_timestamp`), in UTC and English.
#
# An unsupported pattern letter or width is an error. So all formatted and parsed strings agree with Spark.


_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|(.)", re.DOTALL)


class TimestampFields(NamedTuple):
    year: int
    month: int
    day: int
    days: int
    hour: int
    minute: int
    second: int
    us: int


def format_timestamp(us: int, pattern: str) -> str:
    """Format a timestamp with a pattern of Spark.

    >>> format_timestamp(0, "EEE d MMM yyyy, HH:mm")
    'Thu 1 Jan 1970, 00:00'
    """
    days, rest = divmod(us, DAY_US)
    moment = TimestampFields(
        *civil_of(days),
        days,
        rest // HOUR_US,
        rest // MINUTE_US % 60,
        rest // SECOND_US % 60,
        rest % SECOND_US,
    )
    return "".join(part(moment) for part in pattern_writers(pattern))


_FINEST = {"s": SECOND_US, "m": MINUTE_US, **dict.fromkeys("Hha", HOUR_US)}


def finest_us(pattern: str) -> int:
    """Return the resolution of a timestamp pattern in microseconds.

    All times in one interval of this length, counted from 1970, are formatted alike.

    >>> finest_us("HH:mm")
    60000000
    """
    pattern_writers(pattern)  # raises if the pattern is invalid
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


def _pattern_error(field: str, pattern: str) -> ExpressionError:
    return ExpressionError(
        f"'{field}' is not supported in the date pattern '{pattern}'; supported are "
        "y yy yyyy, M MM MMM MMMM, d dd, D DDD, E EEE EEEE, Q, a, H HH, h hh, m mm, s ss and S to SSSSSS"
    )


@lru_cache(maxsize=256)
def pattern_writers(pattern: str) -> list[Callable[[TimestampFields], str]]:
    """Return functions that format the fields of a pattern, in order."""
    return [_writer(letter, text, pattern) for letter, text in _tokens(pattern)]


def _writer(letter: str, text: str, pattern: str) -> Callable[[TimestampFields], str]:
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
        raise _pattern_error(text, pattern)
    value = number[0]
    return lambda m: f"{value(m):0{width}d}"


def _year(moment: TimestampFields) -> str:
    return str(moment.year)


_NUMBERS: dict[str, tuple[Callable[[TimestampFields], int], tuple[int, ...]]] = {
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


# -- parsing of timestamps with a pattern -------------------------------------------------------------------

_SHORT_MONTHS = [month[:3].lower() for month in _MONTHS]


def parse_with_pattern(text: str, pattern: str) -> int:
    """Parse a timestamp. Fields that the pattern omits default to 1970-01-01 00:00:00."""
    match = pattern_regex(pattern).fullmatch(text)
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
def pattern_regex(pattern: str) -> re.Pattern[str]:
    """Return the regular expression that parses times in a pattern's format."""
    parts = []
    for letter, text in _tokens(pattern):
        if not letter:
            parts.append(re.escape(text))
        elif text in _READABLE:
            parts.append(_READABLE[text])
        elif letter == "S" and len(text) <= 6:
            parts.append(rf"(?P<S>\d{{1,{len(text)}}})")
        else:
            raise _pattern_error(text, pattern)
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
