"""Functions of dates and timestamps over whole columns, in UTC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slicemill.esl.types.schema import Kind
from slicemill.scalar.calendar_columns import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    beyond,
    civil_of,
    day_count,
    days_in_month,
    days_of,
    is_date,
    near_the_ends,
    plus_months,
)
from slicemill.scalar.functions.arithmetic_columns import times
from slicemill.scalar.kernel import Bound, Maker, Out, Strict, plain
from slicemill.scalar.vectors import Numbers

_UNIT_MONTHS = {"YEAR": 12, "YYYY": 12, "YY": 12, "QUARTER": 3, "MONTH": 1, "MM": 1, "MON": 1}
_UNIT_US = {
    "DAY": DAY_US,
    "DD": DAY_US,
    "HOUR": HOUR_US,
    "MINUTE": MINUTE_US,
    "SECOND": SECOND_US,
    "MILLISECOND": 1000,
    "MICROSECOND": 1,
}


def _of_date(function: Callable[[Numbers], Numbers]) -> Maker:
    """A field of a date, as INT."""
    return plain(lambda days: function(days.astype(np.int64)).astype(np.int32))


def _of_clock(unit_us: int, count: int) -> Maker:
    return plain(lambda us: (us // unit_us % count).astype(np.int32))


def _weekday(days: Numbers) -> Numbers:
    return (days + 3) % 7


def _day_of_year(days: Numbers) -> Numbers:
    one = np.asarray(1, np.int64)
    return days - days_of(civil_of(days).year, one, one) + 1


def _week_of_year(days: Numbers) -> Numbers:
    return (_day_of_year(days - _weekday(days) + 3) - 1) // 7 + 1


def _last_day(days: Numbers) -> Out:
    year, month, _ = civil_of(days)
    return day_count(days_of(year, month, days_in_month(year, month)))


def _start_of(unit: object) -> Callable[[Numbers], Numbers] | None:
    """From days to the first day of their unit, which is a week or longer."""
    if not isinstance(unit, str):
        return None
    if unit.upper() == "WEEK":
        return lambda days: days - _weekday(days)
    months = _UNIT_MONTHS.get(unit.upper())
    if months is None:
        return None

    def start(days: Numbers) -> Numbers:
        year, month, _ = civil_of(days)
        return days_of(year, (month - 1) // months * months + 1, np.asarray(1, np.int64))

    return start


def _trunc(bound: Bound) -> Strict | None:
    start = _start_of(bound.constant(1))
    return None if start is None else lambda days, _unit: day_count(start(days.astype(np.int64)))


def _date_trunc(bound: Bound) -> Strict | None:
    unit = bound.constant(0)
    size = _UNIT_US.get(unit.upper()) if isinstance(unit, str) else None
    if size is not None:
        return lambda _unit, us: Out(us // size * size, unsure=near_the_ends(us))
    start = _start_of(unit)
    if start is None:
        return None
    return lambda _unit, us: Out(start(us // DAY_US) * DAY_US, unsure=near_the_ends(us))


def _days_apart(end: Numbers, start: Numbers) -> Out:
    return day_count(end.astype(np.int64) - start)


def _days_later(sign: int) -> Maker:
    def later(days: Numbers, count: Numbers) -> Out:
        return day_count(days.astype(np.int64) + sign * count.astype(np.int64)).doubting(beyond(count))

    return plain(later)


def _add_months(days: Numbers, months: Numbers) -> Out:
    return plus_months(days, months.astype(np.int64))


def _make_date(year: Numbers, month: Numbers, day: Numbers) -> Out:
    fields = [field.astype(np.int64) for field in (year, month, day)]
    known = is_date(*fields) & (np.abs(fields[0]) < 5_000_000)
    return day_count(days_of(*fields)).doubting(~known)


def _timestamp_seconds(bound: Bound) -> Strict | None:
    if bound.types[0].kind not in (Kind.INT, Kind.BIGINT):
        return None
    return _scaled_by(SECOND_US)


def _scaled_by(unit_us: int) -> Strict:
    unit = np.asarray(unit_us, np.int64)
    return lambda number: times(number.astype(np.int64), unit)


def _as_64_bits(number: Numbers) -> Numbers:
    return number.astype(np.int64)


_day = _of_date(lambda days: civil_of(days).day)

TIME: dict[str, Maker] = {
    "add_months": plain(_add_months),
    "date_add": _days_later(1),
    "date_diff": plain(_days_apart),
    "date_sub": _days_later(-1),
    "date_trunc": _date_trunc,
    "datediff": plain(_days_apart),
    "day": _day,
    "dayofmonth": _day,
    "dayofweek": _of_date(lambda days: (days + 4) % 7 + 1),
    "dayofyear": _of_date(_day_of_year),
    "hour": _of_clock(HOUR_US, 24),
    "last_day": plain(_last_day),
    "make_date": plain(_make_date),
    "minute": _of_clock(MINUTE_US, 60),
    "month": _of_date(lambda days: civil_of(days).month),
    "quarter": _of_date(lambda days: (civil_of(days).month + 2) // 3),
    "second": _of_clock(SECOND_US, 60),
    "timestamp_micros": plain(_as_64_bits),
    "timestamp_millis": plain(_scaled_by(1000)),
    "timestamp_seconds": _timestamp_seconds,
    "trunc": _trunc,
    "unix_micros": plain(lambda us: us),
    "unix_millis": plain(lambda us: us // 1000),
    "unix_seconds": plain(lambda us: us // SECOND_US),
    "weekday": _of_date(_weekday),
    "weekofyear": _of_date(_week_of_year),
    "year": _of_date(lambda days: civil_of(days).year),
}
