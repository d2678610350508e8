"""Functions of dates and timestamps, in UTC."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.calendar import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    civil_of,
    days_in_month,
    days_of,
    is_date,
    parse_date,
    parse_timestamp,
    plus_months,
)
from slicemill.scalar.date_patterns import formatted, parsed
from slicemill.scalar.values import (
    EXACT,
    ExpressionError,
    Function,
    Scalar,
    Types,
    as_dates,
    as_given,
    as_timestamps,
    bigint_checked,
    int_checked,
    plain,
    unscaled,
)

_UNIT_MONTHS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 12),
    "QUARTER": 3,
    **dict.fromkeys(("MONTH", "MM", "MON"), 1),
}
_UNIT_US = {
    "DAY": DAY_US,
    "DD": DAY_US,
    "HOUR": HOUR_US,
    "MINUTE": MINUTE_US,
    "SECOND": SECOND_US,
    "MILLISECOND": 1000,
    "MICROSECOND": 1,
}
_DEFAULT_FORMAT = "yyyy-MM-dd HH:mm:ss"


def weekday(days: int) -> int:
    """0 is Monday: 1970-01-01 was a Thursday."""
    return (days + 3) % 7


def day_of_year(days: int) -> int:
    return days - days_of(civil_of(days).year, 1, 1) + 1


def week_of_year(days: int) -> int:
    """ISO 8601: the week belongs to the year of its Thursday."""
    return (day_of_year(days - weekday(days) + 3) - 1) // 7 + 1


def _last_day(days: int) -> int:
    year, month, _ = civil_of(days)
    return days_of(year, month, days_in_month(year, month))


def _date_trunc(unit: str, us: int) -> int | None:
    """NULL for a unit that is none, as in Spark."""
    upper = unit.upper()
    if upper in _UNIT_US:
        return us // _UNIT_US[upper] * _UNIT_US[upper]
    start = _trunc(us // DAY_US, upper)
    return None if start is None else start * DAY_US


def _trunc(days: int, unit: str) -> int | None:
    upper = unit.upper()
    if upper == "WEEK":
        return days - weekday(days)
    months = _UNIT_MONTHS.get(upper)
    if months is None:
        return None
    year, month, _ = civil_of(days)
    return days_of(year, (month - 1) // months * months + 1, 1)


def _make_date(year: int, month: int, day: int) -> int:
    if not is_date(year, month, day):
        raise ExpressionError(f"there is no date {year}-{month}-{day}")
    return int_checked(days_of(year, month, day))


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: Decimal) -> int:
    second_us = unscaled(second, 6)
    # The 60th second is the next minute's first, but has no fraction.
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second_us <= 60 * SECOND_US):
        raise ExpressionError(f"there is no time {hour}:{minute}:{second}")
    day_us = _make_date(year, month, day) * DAY_US
    return bigint_checked(day_us + hour * HOUR_US + minute * MINUTE_US + second_us)


def _timestamp_fields(types: Types, result: Type) -> Types:
    del types, result
    return (t.INT,) * 5 + (t.decimal(16, 6),)


def _timestamp_seconds(types: Types, result: Type) -> Function:
    del result
    if types[0].kind is Kind.DOUBLE:
        return _double_seconds
    if types[0].kind is Kind.DECIMAL:
        return _exact_seconds
    return lambda value: bigint_checked(value * SECOND_US)


def _double_seconds(value: float) -> int | None:
    us = value * SECOND_US
    return bigint_checked(int(us)) if math.isfinite(us) else None


def _exact_seconds(value: Decimal) -> int:
    us = value.scaleb(6, context=EXACT)
    if us != us.to_integral_value():
        raise ExpressionError(f"{value} seconds are no whole number of microseconds; round it")
    return bigint_checked(int(us))


def _to_date(text: str, pattern: str | None = None) -> int:
    return parse_date(text) if pattern is None else parsed(text, pattern) // DAY_US


def _to_timestamp(text: str, pattern: str | None = None) -> int:
    return parse_timestamp(text) if pattern is None else parsed(text, pattern)


def _from_unixtime(seconds: int, pattern: str = _DEFAULT_FORMAT) -> str:
    return formatted(bigint_checked(seconds * SECOND_US), pattern)


def _of_date(function: Callable[[int], int]) -> Scalar:
    return plain(function, as_dates)


def _of_clock(unit_us: int, count: int) -> Scalar:
    return plain(lambda us: us // unit_us % count, as_timestamps)


_day = _of_date(lambda days: civil_of(days).day)
_date_diff = plain(lambda end, start: end - start, as_dates)

TIME: dict[str, Scalar] = {
    "add_months": plain(lambda days, months: int_checked(plus_months(days, months)), as_dates),
    "date_add": plain(lambda days, count: int_checked(days + count), as_dates),
    "date_diff": _date_diff,
    "date_format": plain(formatted, as_timestamps),
    "date_sub": plain(lambda days, count: int_checked(days - count), as_dates),
    "date_trunc": plain(_date_trunc, as_timestamps),
    "datediff": _date_diff,
    "day": _day,
    "dayofmonth": _day,
    "dayofweek": _of_date(lambda days: (days + 4) % 7 + 1),
    "dayofyear": _of_date(day_of_year),
    "from_unixtime": plain(_from_unixtime),
    "hour": _of_clock(HOUR_US, 24),
    "last_day": _of_date(_last_day),
    "make_date": plain(_make_date),
    "make_timestamp": plain(_make_timestamp, _timestamp_fields),
    "minute": _of_clock(MINUTE_US, 60),
    "month": _of_date(lambda days: civil_of(days).month),
    "quarter": _of_date(lambda days: (civil_of(days).month + 2) // 3),
    "second": _of_clock(SECOND_US, 60),
    "timestamp_micros": plain(lambda value: value),
    "timestamp_millis": plain(lambda value: bigint_checked(value * 1000)),
    "timestamp_seconds": Scalar(_timestamp_seconds, as_given),
    "to_date": plain(_to_date),
    "to_timestamp": plain(_to_timestamp),
    "trunc": plain(_trunc, as_dates),
    "unix_micros": plain(lambda us: us),
    "unix_millis": plain(lambda us: us // 1000),
    "unix_seconds": plain(lambda us: us // SECOND_US),
    "weekday": _of_date(weekday),
    "weekofyear": _of_date(week_of_year),
    "year": _of_date(lambda days: civil_of(days).year),
}
