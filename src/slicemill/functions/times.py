"""Date and time functions in UTC.

Row functions and kernels use the same formulas of `functions.calendar`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill import types as t
from slicemill.catalog.expressions import Call, Cast, Expr, Literal
from slicemill.functions.arithmetic import dates_plus_months, in_64_bits, narrow_to_32_bits, times, too_many
from slicemill.functions.calendar import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    civil_of,
    day_of_year,
    days_of,
    finest_us,
    format_timestamp,
    is_date,
    last_day,
    parse_date,
    parse_timestamp,
    parse_with_pattern,
    plus_months,
    week_of_year,
    weekday,
)
from slicemill.functions.function import (
    SAME,
    Abbreviation,
    RowFunction,
    ScalarFunction,
    Sql,
    Types,
    as_dates,
    as_timestamps,
    plain,
)
from slicemill.functions.kernel import KernelCall, KernelResult, Strict, kernel
from slicemill.functions.values import EXACT, ExpressionError, check_bigint, check_int, decimal_digits
from slicemill.functions.vectors import Data, Numbers
from slicemill.kernels.arrays import Bools
from slicemill.time import UNITS_US
from slicemill.types import Kind, Type

# -- fields of dates and timestamps -----------------------------------------------------------------------


def _date_field(field: Callable[[Any], Any], duckdb: Sql) -> ScalarFunction:
    """Return a scalar function that extracts a date field, such as YEAR, as INT."""
    return ScalarFunction(
        row=plain(field),
        takes=as_dates,
        column=kernel(lambda days: field(in_64_bits(days)).astype(np.int32)),
        duckdb=duckdb,
    )


def _clock_field(unit_us: int, count: int, duckdb: Sql) -> ScalarFunction:
    return ScalarFunction(
        row=plain(lambda us: us // unit_us % count),
        takes=as_timestamps,
        column=kernel(lambda us: (us // unit_us % count).astype(np.int32)),
        duckdb=duckdb,
    )


# -- truncation to units of time --------------------------------------------------------------------------

_UNIT_MONTHS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 12),
    "QUARTER": 3,
    **dict.fromkeys(("MONTH", "MM", "MON"), 1),
}
_UNIT_US = {
    "DD": DAY_US,
    **{unit: UNITS_US[unit] for unit in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")},
}
# Timestamps in this range can be moved to the start of any unit without overflow.
_LEAST_US, _LARGEST_US = -(2**63) + 1000 * DAY_US, 2**63 - 1 - 1000 * DAY_US


def _first_day(unit: object) -> Callable[[Any], Any] | None:
    """Return a function that truncates a day to a unit, such as MONTH.

    Return None if the unit is shorter than a week.
    """
    name = unit.upper() if isinstance(unit, str) else ""
    if name == "WEEK":
        return lambda days: days - weekday(days)
    months = _UNIT_MONTHS.get(name)
    if months is None:
        return None

    def first(days: Any) -> Any:
        year, month, _ = civil_of(days)
        return days_of(year, (month - 1) // months * months + 1, 1)

    return first


def _trunc_row(days: int, unit: str) -> int | None:
    """Truncate a day to the first day of a unit, such as MONTH.

    Return NULL for an invalid unit, as in Spark.
    """
    first = _first_day(unit)
    return None if first is None else int(first(days))


def _trunc_column(call: KernelCall) -> Strict | None:
    first = _first_day(call.constant(1))
    return None if first is None else lambda days, _unit: narrow_to_32_bits(first(in_64_bits(days)))


def _date_trunc_row(unit: str, us: int) -> int | None:
    size = _UNIT_US.get(unit.upper())
    if size is not None:
        return us // size * size
    days = _trunc_row(us // DAY_US, unit)
    return None if days is None else days * DAY_US


def _date_trunc_column(call: KernelCall) -> Strict | None:
    unit = call.constant(0)
    size = _UNIT_US.get(unit.upper()) if isinstance(unit, str) else None
    if size is not None:
        return lambda _unit, us: KernelResult(us // size * size, fallback=_near_the_ends(us))
    first = _first_day(unit)
    if first is None:
        return None
    return lambda _unit, us: KernelResult(first(us // DAY_US) * DAY_US, fallback=_near_the_ends(us))


# Units that DuckDB knows by the same name.
_WEEKS_OR_LONGER = {"YEAR", "QUARTER", "MONTH", "WEEK"}
_SHORTER = {"DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}


def _names_one_of(unit: Expr, units: set[str]) -> bool:
    return isinstance(unit, Literal) and str(unit.value).upper() in units


def _trunc_in_duckdb(call: Call) -> str | None:
    known = _names_one_of(call.arguments[1], _WEEKS_OR_LONGER)
    return "CAST(date_trunc({1}, {0}) AS DATE)" if known else None


def _date_trunc_in_duckdb(call: Call) -> str | None:
    known = _names_one_of(call.arguments[0], _WEEKS_OR_LONGER | _SHORTER)
    return "CAST(date_trunc({0}, {1}) AS TIMESTAMP)" if known else None


def _near_the_ends(us: Numbers) -> Bools:
    """Return a mask of timestamps that may overflow 64 bits when truncated."""
    return np.asarray((us < _LEAST_US) | (us > _LARGEST_US))


# -- sums and differences of dates ------------------------------------------------------------------------


def _days_later(sign: int) -> ScalarFunction:
    def row(days: int, count: int) -> int:
        return check_int(days + sign * count)

    def column(days: Numbers, count: Numbers) -> KernelResult:
        return narrow_to_32_bits(in_64_bits(days) + sign * in_64_bits(count)).except_for(too_many(count))

    operator = "+" if sign > 0 else "-"
    return ScalarFunction(
        row=plain(row),
        takes=as_dates,
        column=kernel(column),
        duckdb=f"(CAST({{0}} AS DATE) {operator} CAST({{1}} AS INTEGER))",
    )


def _add_months_row(days: int, months: int) -> int:
    return check_int(plus_months(days, months))


def _add_months_column(days: Numbers, months: Numbers) -> KernelResult:
    return dates_plus_months(days, in_64_bits(months))


def _days_apart_column(end: Numbers, start: Numbers) -> KernelResult:
    return narrow_to_32_bits(in_64_bits(end) - start)


# -- dates and timestamps from fields and numbers ---------------------------------------------------------


def _make_date_row(year: int, month: int, day: int) -> int:
    if not is_date(year, month, day):
        raise ExpressionError(f"there is no date {year}-{month}-{day}")
    return check_int(days_of(year, month, day))


def _make_date_column(year: Numbers, month: Numbers, day: Numbers) -> KernelResult:
    fields = [in_64_bits(field) for field in (year, month, day)]
    known = is_date(*fields) & (np.abs(fields[0]) < 5_000_000)
    return narrow_to_32_bits(days_of(*fields)).except_for(~known)


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: Decimal) -> int:
    second_us = decimal_digits(second, 6)
    # Second 60 means the first second of the next minute, and has no fraction.
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second_us <= 60 * SECOND_US):
        raise ExpressionError(f"there is no time {hour}:{minute}:{second}")
    day_us = _make_date_row(year, month, day) * DAY_US
    return check_bigint(day_us + hour * HOUR_US + minute * MINUTE_US + second_us)


def _timestamp_fields(_types: Types, _result: Type) -> Types:
    return (t.INT,) * 5 + (t.decimal(16, 6),)


def _timestamp_seconds_row(types: Types, _result: Type) -> RowFunction:
    if types[0].kind is Kind.DOUBLE:
        return _double_seconds
    if types[0].kind is Kind.DECIMAL:
        return _exact_seconds
    return lambda value: check_bigint(value * SECOND_US)


def _double_seconds(value: float) -> int | None:
    us = value * SECOND_US
    return check_bigint(int(us)) if math.isfinite(us) else None


def _exact_seconds(value: Decimal) -> int:
    us = value.scaleb(6, context=EXACT)
    if us != us.to_integral_value():
        raise ExpressionError(f"{value} seconds are no integer number of microseconds; round it")
    return check_bigint(int(us))


def _timestamp_seconds_column(call: KernelCall) -> Strict | None:
    return _scale_column(SECOND_US) if call.types[0].kind in (Kind.INT, Kind.BIGINT) else None


def _seconds_in_duckdb(call: Call) -> str:
    if call.arguments[0].type.kind in (Kind.INT, Kind.BIGINT):
        return "make_timestamp(CAST({0} AS BIGINT) * 1000000)"
    return "make_timestamp(CAST(trunc({0} * 1000000) AS BIGINT))"


def _scale_column(unit_us: int) -> Strict:
    unit = np.asarray(unit_us, np.int64)
    return lambda number: times(in_64_bits(number), unit)


# -- dates and timestamps from and to strings ---------------------------------------------------------------


def _to_date(text: str, pattern: str | None = None) -> int:
    return parse_date(text) if pattern is None else parse_with_pattern(text, pattern) // DAY_US


def _to_timestamp(text: str, pattern: str | None = None) -> int:
    return parse_timestamp(text) if pattern is None else parse_with_pattern(text, pattern)


def _from_unixtime(seconds: int, pattern: str = "yyyy-MM-dd HH:mm:ss") -> str:
    return format_timestamp(check_bigint(seconds * SECOND_US), pattern)


def _date_format_column(call: KernelCall) -> Strict | None:
    """Return a kernel of `date_format` that formats each distinct time once.

    Times are first truncated to the resolution of the pattern, such as minutes. Many times of a column are
    then equal.
    """
    pattern = call.constant(1)
    if not isinstance(pattern, str):
        return None
    try:
        size = finest_us(pattern)
    except ExpressionError:
        return None

    def written(us: Numbers, _pattern: Data) -> pa.Array | pa.Scalar:
        if not us.ndim:
            return pa.scalar(format_timestamp(int(us), pattern))
        units = pa.array(us // size).dictionary_encode()
        texts = [format_timestamp(unit * size, pattern) for unit in units.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(units.indices)

    return written


def _units_since_1970(unit_us: int, duckdb: str) -> ScalarFunction:
    return ScalarFunction(
        row=plain(lambda us: us // unit_us), column=kernel(lambda us: us // unit_us), duckdb=duckdb
    )


_day = _date_field(lambda days: civil_of(days).day, SAME)
_days_apart = ScalarFunction(
    row=plain(lambda end, start: end - start),
    takes=as_dates,
    column=kernel(_days_apart_column),
    duckdb="CAST(CAST({0} AS DATE) - CAST({1} AS DATE) AS INTEGER)",
)


def _unix_timestamp(call: Call) -> Call:
    """Expand UNIX_TIMESTAMP of a time or a string to seconds since 1970.

    Fractions are truncated, as in Spark.
    """
    moment, *pattern = call.arguments
    if moment.type.kind is Kind.DATE:
        moment = Cast(moment, t.TIMESTAMP)
    elif moment.type.kind is not Kind.TIMESTAMP:
        form = pattern[0] if pattern else Literal("yyyy-MM-dd HH:mm:ss", t.VARCHAR)
        moment = Call("to_timestamp", (moment, form), t.TIMESTAMP)
    micros = Call("unix_micros", (moment,), t.BIGINT)
    return Call("div", (micros, Literal(SECOND_US, t.BIGINT)), t.BIGINT)


TIME_ABBREVIATIONS: dict[str, Abbreviation] = {"unix_timestamp": Abbreviation(_unix_timestamp)}

TIMES: dict[str, ScalarFunction] = {
    "add_months": ScalarFunction(
        row=plain(_add_months_row),
        takes=as_dates,
        column=kernel(_add_months_column),
        duckdb="CAST({0} + to_months(CAST({1} AS INTEGER)) AS DATE)",
    ),
    "date_add": _days_later(1),
    "date_diff": _days_apart,
    "date_format": ScalarFunction(
        row=plain(format_timestamp), takes=as_timestamps, column=_date_format_column
    ),
    "date_sub": _days_later(-1),
    "date_trunc": ScalarFunction(
        row=plain(_date_trunc_row),
        takes=as_timestamps,
        column=_date_trunc_column,
        duckdb=_date_trunc_in_duckdb,
    ),
    "datediff": _days_apart,
    "day": _day,
    "dayofmonth": _day,
    "dayofweek": _date_field(lambda days: (days + 4) % 7 + 1, "(dayofweek({0}) + 1)"),
    "dayofyear": _date_field(day_of_year, SAME),
    "from_unixtime": ScalarFunction(row=plain(_from_unixtime)),
    "hour": _clock_field(HOUR_US, 24, SAME),
    "last_day": ScalarFunction(
        row=plain(last_day),
        takes=as_dates,
        column=kernel(lambda days: narrow_to_32_bits(last_day(in_64_bits(days)))),
        duckdb=SAME,
    ),
    "make_date": ScalarFunction(row=plain(_make_date_row), column=kernel(_make_date_column), duckdb=SAME),
    "make_timestamp": ScalarFunction(row=plain(_make_timestamp), takes=_timestamp_fields),
    "minute": _clock_field(MINUTE_US, 60, SAME),
    "month": _date_field(lambda days: civil_of(days).month, SAME),
    "quarter": _date_field(lambda days: (civil_of(days).month + 2) // 3, SAME),
    "second": _clock_field(SECOND_US, 60, "CAST(second({0}) AS INTEGER)"),
    "timestamp_micros": ScalarFunction(
        row=plain(lambda value: value), column=kernel(in_64_bits), duckdb="make_timestamp({0})"
    ),
    "timestamp_millis": ScalarFunction(
        row=plain(lambda value: check_bigint(value * 1000)),
        column=kernel(_scale_column(1000)),
        duckdb="make_timestamp({0} * 1000)",
    ),
    "timestamp_seconds": ScalarFunction(
        row=_timestamp_seconds_row,
        column=_timestamp_seconds_column,
        duckdb=_seconds_in_duckdb,
    ),
    "to_date": ScalarFunction(row=plain(_to_date), duckdb="CAST({0} AS DATE)"),
    "to_timestamp": ScalarFunction(row=plain(_to_timestamp), duckdb="CAST({0} AS TIMESTAMP)"),
    "trunc": ScalarFunction(
        row=plain(_trunc_row),
        takes=as_dates,
        column=_trunc_column,
        duckdb=_trunc_in_duckdb,
    ),
    "unix_micros": _units_since_1970(1, "epoch_us({0})"),
    "unix_millis": _units_since_1970(1000, "CAST(floor(epoch_us({0}) / 1000) AS BIGINT)"),
    "unix_seconds": _units_since_1970(SECOND_US, "CAST(floor(epoch_us({0}) / 1000000) AS BIGINT)"),
    "weekday": _date_field(weekday, "(isodow({0}) - 1)"),
    "weekofyear": _date_field(week_of_year, SAME),
    "year": _date_field(lambda days: civil_of(days).year, SAME),
}
