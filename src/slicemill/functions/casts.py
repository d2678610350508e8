"""CAST and implicit conversions, as in Spark's ANSI mode.

A value that does not fit is an error, except that a CAST to VARCHAR(n) truncates, as in standard SQL.
Kernels convert columns of strings and numbers in common formats. The row function, which is plain Python,
converts all other values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill import types as t
from slicemill.functions.arithmetic import narrow_to_32_bits, times
from slicemill.functions.calendar import (
    BLANKS,
    DAY_US,
    SECOND_US,
    date_text,
    parse_date,
    parse_timestamp,
    timestamp_text,
)
from slicemill.functions.decimals import NARROW, digits_of, from_unscaled, round_column, texts_column
from slicemill.functions.function import RowFunction
from slicemill.functions.kernel import Fallback, Kernel, KernelResult, Strict
from slicemill.functions.source import Snippet, SnippetMaker
from slicemill.functions.values import (
    EXACT,
    ExpressionError,
    check_bigint,
    check_int,
    decimal_fit,
    double_text,
    integer_check,
)
from slicemill.functions.vectors import Numbers, arrow_type, dtype_of, numbers
from slicemill.kernels.arrays import Bools
from slicemill.types import Kind, Type

_MOST_DIGITS = 40
_EXACT_DOUBLE = 2**53  # largest integer up to which all integers are exact as doubles


def converter(source: Type, target: Type) -> Callable[[object], object]:
    """Return a function that converts a value from `source` to `target`.

    NULL stays NULL, even if no other value can be converted.
    """
    function = _converter(source, target)
    return lambda value: None if value is None else function(value)


def _converter(source: Type, target: Type) -> RowFunction:
    if source.kind is Kind.ANY:
        return lambda value: _converter(type_of_value(value), target)(value)
    if target.kind is Kind.DECIMAL:
        fit, as_exact = decimal_fit(target), _TO_DECIMAL.get(source.kind)
        if source.kind is Kind.DOUBLE:  # NaN and infinities become NULL, as in Spark
            return lambda value: fit(_double_to_exact(value)) if math.isfinite(value) else None
        if as_exact is not None:
            return lambda value: fit(as_exact(value))
    if target.kind is Kind.VARCHAR and target.length is not None:
        text, length = _converter(source, t.VARCHAR), target.length
        return lambda value: text(value)[:length]
    if source.kind is target.kind or Kind.NULL in (source.kind, target.kind) or target.kind is Kind.ANY:
        return _same
    function = _ROWS.get((source.kind, target.kind))
    if function is None:
        raise ExpressionError(f"{source} cannot become {target}")
    return function


def cast_kernel(source: Type, target: Type) -> Kernel | None:
    """Return the kernel of a conversion between types.

    Return None if only the row function exists.
    """
    function = _column(source, target)
    return None if function is None else Kernel(function, patches=True)


def _column(source: Type, target: Type) -> Strict | None:
    if target.kind is Kind.VARCHAR and target.length is not None:
        if source.kind is not Kind.VARCHAR:
            return None
        length = target.length
        return lambda text: pc.utf8_slice_codeunits(text, 0, length)
    if target.kind is Kind.DECIMAL:
        return _to_decimal_column(source, target)
    if source.kind is target.kind:
        return lambda value: value
    if source.kind is Kind.DECIMAL:
        return _from_decimal_column(source, target.kind)
    return _COLUMNS.get((source.kind, target.kind))


def cast_source(source: Type, target: Type) -> SnippetMaker | None:
    """Return Python source text that converts a value in compiled aggregates.

    Return None if only the row function exists.
    """
    integers = (Kind.INT, Kind.BIGINT)
    if source.kind is target.kind and source.kind not in (Kind.DECIMAL, Kind.VARCHAR):
        return Snippet
    if source.kind is Kind.VARCHAR is target.kind and (
        target.length is None or (source.length is not None and source.length <= target.length)
    ):
        return Snippet
    if (source.kind, target.kind) == (Kind.INT, Kind.BIGINT):
        return Snippet
    if source.kind in (*integers, Kind.BOOLEAN) and target.kind is Kind.DOUBLE:
        return lambda a: Snippet(f"float({a})")
    if source.kind is Kind.BOOLEAN and target.kind in integers:
        return lambda a: Snippet(f"int({a})")
    if (source.kind, target.kind) == (Kind.BIGINT, Kind.INT):
        return lambda a: Snippet(a, f"not ops.MIN_INT <= {a} <= ops.MAX_INT")
    if source.kind is Kind.DOUBLE and target.kind in integers:
        text, bad = _TRUNCATED[target.kind]
        return lambda a: Snippet(text.format(a), bad.format(a), before=True, twice=True)
    if (source.kind, target.kind) == (Kind.DATE, Kind.TIMESTAMP):
        return lambda a: Snippet(f"({a} * {DAY_US})")
    return None


# Python source text that converts a double to an integer, and the source text of its error condition. 2.0**63
# becomes the largest BIGINT, as in the row function.
_TRUNCATED = {
    Kind.INT: ("int({0})", "not -2147483649.0 < {0} < 2147483648.0"),
    Kind.BIGINT: (
        "int({0}) if {0} < 9223372036854775808.0 else ops.MAX_BIGINT",
        "not -9223372036854775808.0 <= {0} <= 9223372036854775808.0",
    ),
}


def type_of_value(value: object) -> Type:
    """Return the SQL type of a Python value passed for a parameter of type ANY."""
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        return t.decimal(max(value.adjusted() + 1, 1) + scale, scale)
    return _PYTHON_TYPES[type(value)]


_PYTHON_TYPES: dict[type, Type] = {
    bool: t.BOOLEAN,
    int: t.BIGINT,
    float: t.DOUBLE,
    str: t.VARCHAR,
    bytes: t.BINARY,
    tuple: t.PERIOD,
    type(None): t.NULL,
}


def _same(value: object) -> object:
    return value


# -- conversion from strings ---------------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_REAL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]?", re.ASCII)
_EXACT_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")  # digits of any script, as in Java
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")


def _unreadable(text: str, kind: Kind) -> ExpressionError:
    return ExpressionError(f"'{text}' is no {kind.value}; use TRY_CAST to get NULL for such strings")


def _text_to_integer(kind: Kind) -> RowFunction:
    checked = integer_check(Type(kind))

    def parse(text: str) -> int:
        stripped = text.strip(BLANKS)
        if not _INTEGER.fullmatch(stripped):
            raise _unreadable(text, kind)
        digits = stripped.lstrip("+-0")
        # Python refuses to parse thousands of digits; no integer type has that many.
        if len(digits) > _MOST_DIGITS:
            raise ExpressionError(f"a number of {len(digits)} digits does not fit into {kind.value}")
        return checked(-int(digits or 0) if stripped.startswith("-") else int(digits or 0))

    return parse


def _text_to_double(text: str) -> float:
    stripped = text.strip(BLANKS)
    match = _REAL.fullmatch(stripped)
    if match:
        return float(match[1])
    special = _SPECIAL.get(stripped.lower())
    if special is None:
        raise _unreadable(text, Kind.DOUBLE)
    return special


def _text_to_exact(text: str) -> Decimal:
    stripped = text.strip(BLANKS)
    if not _EXACT_NUMBER.fullmatch(stripped):
        raise _unreadable(text, Kind.DECIMAL)
    try:
        return Decimal(stripped)
    except InvalidOperation:
        raise _unreadable(text, Kind.DECIMAL) from None


def _text_to_boolean(text: str) -> bool:
    word = text.strip(BLANKS).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise _unreadable(text, Kind.BOOLEAN)


# Common formats of strings, for which Arrow and the row function return the same value.
_USUAL_INT = r"\A-?[0-9]{1,9}\z"
_USUAL_BIGINT = r"\A-?[0-9]{1,18}\z"
_USUAL_DOUBLE = r"\A-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,3})?\z"
_USUAL_DATE = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_USUAL_TIMESTAMP = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\z"


def _parse_column(pattern: str, target: pa.DataType) -> Strict:
    """Return a kernel that parses strings in a common format with Arrow.

    The row function parses all other strings.
    """

    def parse(text: pa.Array) -> KernelResult:
        usual = pc.match_substring_regex(text, pattern)
        known = pc.all(usual).as_py() is not False
        try:
            found = pc.cast(text if known else pc.if_else(usual, text, None), target)
        except pa.ArrowInvalid:
            raise Fallback from None  # an invalid value, such as February 30
        return KernelResult(numbers(found), fallback=None if known else ~numbers(usual))

    return parse


# -- conversion from numbers and times --------------------------------------------------------------------


def _double_to_integer(kind: Kind) -> RowFunction:
    low, high = (-(2.0**31), 2.0**31 - 1) if kind is Kind.INT else (-(2.0**63), 2.0**63)
    largest = 2**31 - 1 if kind is Kind.INT else 2**63 - 1

    def truncate(value: float) -> int:
        # 2.0**63 is accepted and becomes the largest BIGINT: Java and Spark compare as doubles.
        if math.isfinite(value) and math.floor(value) <= high and math.ceil(value) >= low:
            return min(int(value), largest)
        raise ExpressionError(f"{double_text(value)} does not fit into {kind.value}")

    return truncate


_double_to_int, _double_to_bigint = _double_to_integer(Kind.INT), _double_to_integer(Kind.BIGINT)


def _double_to_exact(value: float) -> Decimal:
    return Decimal(repr(value))  # the shortest text that parses to the same double, as in Java


def _double_to_timestamp(value: float) -> object:
    return _double_to_bigint(value * SECOND_US)


def _seconds_to_timestamp(value: int) -> int:
    return check_bigint(value * SECOND_US)


def _decimal_to_timestamp(value: Decimal) -> int:
    return check_bigint(int(EXACT.multiply(value, Decimal(SECOND_US))))


def _timestamp_to_exact(value: int) -> Decimal:
    return Decimal(value).scaleb(-6, context=EXACT)


def _as_column(kind: Kind) -> Strict:
    dtype = dtype_of(Type(kind))
    return lambda value: value.astype(dtype)


def _not_zero_column(value: Numbers) -> Bools:
    return np.asarray(value != 0)


def _scale_column(unit: int) -> Strict:
    factor = np.asarray(unit, np.int64)
    return lambda value: times(value.astype(np.int64), factor)


def _truncate_column(limit: float, dtype: type[np.generic]) -> Strict:
    """Return a kernel that truncates doubles, and marks values beyond the limit."""
    return lambda value: KernelResult(value.astype(dtype), fallback=~(np.abs(value) < limit))


def _double_to_timestamp_column(value: Numbers) -> KernelResult:
    us = value * SECOND_US
    return KernelResult(us.astype(np.int64), fallback=~(np.abs(us) < 2.0**63))


def _timestamp_to_double_column(us: Numbers) -> KernelResult:
    return KernelResult(us / SECOND_US, fallback=(us > _EXACT_DOUBLE) | (us < -_EXACT_DOUBLE))


def _seconds_column(us: Numbers) -> Numbers:
    return us // SECOND_US


# -- conversion to strings -----------------------------------------------------------------------------------


def _interval_text(us: int) -> str:
    sign, us = ("-", -us) if us < 0 else ("", us)
    days, rest = divmod(us, DAY_US)
    seconds, fraction = divmod(rest, SECOND_US)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"INTERVAL '{sign}{days} {clock}{tail}' DAY TO SECOND"


def _months_text(months: int) -> str:
    sign = "-" if months < 0 else ""
    return f"INTERVAL '{sign}{abs(months) // 12}-{abs(months) % 12}' YEAR TO MONTH"


def _texts_column(value: Numbers) -> pa.Array:
    return pc.cast(pa.array(value), pa.string())


# First and last day of the years 1 to 9999, which are written with four digits.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def _date_texts_column(days: Numbers) -> KernelResult:
    usual = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    known = pa.array(np.where(usual, days, 0).astype(np.int32), pa.date32())
    return KernelResult(pc.cast(known, pa.string()), fallback=~usual)


def _timestamp_texts_column(us: Numbers) -> KernelResult:
    usual = (us >= _FIRST_DAY * DAY_US) & (us < (_LAST_DAY + 1) * DAY_US)
    texts = pc.cast(pa.array(np.where(usual, us, 0), pa.timestamp("us")), pa.string())
    # Arrow always writes six decimal places.
    return KernelResult(pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), "."), fallback=~usual)


# -- conversion of decimals -------------------------------------------------------------------------------


def _to_decimal_column(source: Type, target: Type) -> Strict | None:
    assert target.precision is not None and target.scale is not None
    if source.kind is Kind.DECIMAL:
        assert source.scale is not None
        if target.scale < source.scale:
            return round_column(source, target, target.scale)
        return _rescale_column(arrow_type(target))
    if source.kind not in (Kind.INT, Kind.BIGINT, Kind.BOOLEAN) or target.scale > NARROW:
        return None
    power = np.asarray(10**target.scale, np.int64)
    whole_digits = min(target.precision - target.scale, NARROW)
    limit = 10**whole_digits

    def from_whole(value: Numbers) -> KernelResult:
        wide = value.astype(np.int64)
        out = times(wide, power).except_for((wide >= limit) | (wide <= -limit))
        return out._replace(data=from_unscaled(out.data, target))

    return from_whole


def _rescale_column(target: pa.DataType) -> Strict:
    def rescale(value: pa.Array) -> pa.Array:
        try:
            return pc.cast(value, target)
        except pa.ArrowInvalid:
            raise Fallback from None

    return rescale


def _from_decimal_column(source: Type, kind: Kind) -> Strict | None:
    assert source.scale is not None
    if kind is Kind.VARCHAR:
        return texts_column(source)
    if source.scale > NARROW:
        return None
    power = 10**source.scale

    def to_double(value: pa.Array) -> KernelResult:
        digits, wide = digits_of(value)
        # Both operands are exact, so that the quotient is rounded once.
        return KernelResult(
            digits / float(power), fallback=wide | (digits > _EXACT_DOUBLE) | (digits < -_EXACT_DOUBLE)
        )

    def to_boolean(value: pa.Array) -> Bools:
        digits, wide = digits_of(value)
        return np.asarray((digits != 0) | wide)

    def to_bigint(value: pa.Array) -> KernelResult:
        digits, wide = digits_of(value)
        floor = digits // power
        return KernelResult(floor + ((digits < 0) & (floor * power != digits)), fallback=wide)

    def to_int(value: pa.Array) -> KernelResult:
        whole = to_bigint(value)
        return narrow_to_32_bits(whole.data, whole.fallback)

    conversions: dict[Kind, Callable[[pa.Array], Any]] = {
        Kind.DOUBLE: to_double,
        Kind.BOOLEAN: to_boolean,
        Kind.BIGINT: to_bigint,
        Kind.INT: to_int,
    }
    return conversions.get(kind)


# -- conversions by source and target type ------------------------------------------------------------------

_TO_DECIMAL: dict[Kind, RowFunction] = {
    Kind.DECIMAL: _same,
    Kind.INT: Decimal,
    Kind.BIGINT: Decimal,
    Kind.BOOLEAN: Decimal,
    Kind.VARCHAR: _text_to_exact,
    Kind.TIMESTAMP: _timestamp_to_exact,
}

_ROWS: dict[tuple[Kind, Kind], RowFunction] = {
    (Kind.INT, Kind.BIGINT): _same,
    (Kind.INT, Kind.DOUBLE): float,
    (Kind.INT, Kind.BOOLEAN): bool,
    (Kind.INT, Kind.TIMESTAMP): _seconds_to_timestamp,
    (Kind.INT, Kind.VARCHAR): str,
    (Kind.BIGINT, Kind.INT): check_int,
    (Kind.BIGINT, Kind.DOUBLE): float,
    (Kind.BIGINT, Kind.BOOLEAN): bool,
    (Kind.BIGINT, Kind.TIMESTAMP): _seconds_to_timestamp,
    (Kind.BIGINT, Kind.VARCHAR): str,
    (Kind.DECIMAL, Kind.INT): lambda value: check_int(int(value)),
    (Kind.DECIMAL, Kind.BIGINT): lambda value: check_bigint(int(value)),
    (Kind.DECIMAL, Kind.DOUBLE): float,
    (Kind.DECIMAL, Kind.BOOLEAN): bool,
    (Kind.DECIMAL, Kind.TIMESTAMP): _decimal_to_timestamp,
    (Kind.DECIMAL, Kind.VARCHAR): lambda value: f"{value:f}",
    (Kind.DOUBLE, Kind.INT): _double_to_int,
    (Kind.DOUBLE, Kind.BIGINT): _double_to_bigint,
    (Kind.DOUBLE, Kind.BOOLEAN): bool,
    (Kind.DOUBLE, Kind.TIMESTAMP): _double_to_timestamp,
    (Kind.DOUBLE, Kind.VARCHAR): double_text,
    (Kind.BOOLEAN, Kind.INT): int,
    (Kind.BOOLEAN, Kind.BIGINT): int,
    (Kind.BOOLEAN, Kind.DOUBLE): float,
    (Kind.BOOLEAN, Kind.VARCHAR): lambda value: "true" if value else "false",
    (Kind.VARCHAR, Kind.INT): _text_to_integer(Kind.INT),
    (Kind.VARCHAR, Kind.BIGINT): _text_to_integer(Kind.BIGINT),
    (Kind.VARCHAR, Kind.DOUBLE): _text_to_double,
    (Kind.VARCHAR, Kind.BOOLEAN): _text_to_boolean,
    (Kind.VARCHAR, Kind.BINARY): lambda value: value.encode(),
    (Kind.VARCHAR, Kind.DATE): parse_date,
    (Kind.VARCHAR, Kind.TIMESTAMP): parse_timestamp,
    (Kind.BINARY, Kind.VARCHAR): lambda value: value.decode(errors="replace"),
    (Kind.TIMESTAMP, Kind.DATE): lambda value: value // DAY_US,
    (Kind.TIMESTAMP, Kind.INT): lambda value: check_int(value // SECOND_US),
    (Kind.TIMESTAMP, Kind.BIGINT): lambda value: value // SECOND_US,
    (Kind.TIMESTAMP, Kind.DOUBLE): lambda value: value / SECOND_US,
    (Kind.TIMESTAMP, Kind.VARCHAR): timestamp_text,
    (Kind.DATE, Kind.TIMESTAMP): lambda value: check_bigint(value * DAY_US),
    (Kind.DATE, Kind.VARCHAR): date_text,
    (Kind.INTERVAL, Kind.VARCHAR): _interval_text,
    (Kind.MONTHS, Kind.VARCHAR): _months_text,
}

_COLUMNS: dict[tuple[Kind, Kind], Strict] = {
    (Kind.INT, Kind.BIGINT): _as_column(Kind.BIGINT),
    (Kind.INT, Kind.DOUBLE): _as_column(Kind.DOUBLE),
    (Kind.INT, Kind.BOOLEAN): _not_zero_column,
    (Kind.INT, Kind.TIMESTAMP): _scale_column(SECOND_US),
    (Kind.INT, Kind.VARCHAR): _texts_column,
    (Kind.BIGINT, Kind.INT): narrow_to_32_bits,
    (Kind.BIGINT, Kind.DOUBLE): _as_column(Kind.DOUBLE),
    (Kind.BIGINT, Kind.BOOLEAN): _not_zero_column,
    (Kind.BIGINT, Kind.TIMESTAMP): _scale_column(SECOND_US),
    (Kind.BIGINT, Kind.VARCHAR): _texts_column,
    (Kind.DOUBLE, Kind.INT): _truncate_column(2.0**31 - 1, np.int32),
    (Kind.DOUBLE, Kind.BIGINT): _truncate_column(2.0**63, np.int64),
    (Kind.DOUBLE, Kind.BOOLEAN): _not_zero_column,
    (Kind.DOUBLE, Kind.TIMESTAMP): _double_to_timestamp_column,
    (Kind.BOOLEAN, Kind.INT): _as_column(Kind.INT),
    (Kind.BOOLEAN, Kind.BIGINT): _as_column(Kind.BIGINT),
    (Kind.BOOLEAN, Kind.DOUBLE): _as_column(Kind.DOUBLE),
    (Kind.BOOLEAN, Kind.VARCHAR): _texts_column,
    (Kind.VARCHAR, Kind.INT): _parse_column(_USUAL_INT, pa.int32()),
    (Kind.VARCHAR, Kind.BIGINT): _parse_column(_USUAL_BIGINT, pa.int64()),
    (Kind.VARCHAR, Kind.DOUBLE): _parse_column(_USUAL_DOUBLE, pa.float64()),
    (Kind.VARCHAR, Kind.DATE): _parse_column(_USUAL_DATE, pa.date32()),
    (Kind.VARCHAR, Kind.TIMESTAMP): _parse_column(_USUAL_TIMESTAMP, pa.timestamp("us")),
    (Kind.TIMESTAMP, Kind.DATE): lambda us: (us // DAY_US).astype(np.int32),
    (Kind.TIMESTAMP, Kind.INT): lambda us: narrow_to_32_bits(_seconds_column(us)),
    (Kind.TIMESTAMP, Kind.BIGINT): _seconds_column,
    (Kind.TIMESTAMP, Kind.DOUBLE): _timestamp_to_double_column,
    (Kind.TIMESTAMP, Kind.VARCHAR): _timestamp_texts_column,
    (Kind.DATE, Kind.TIMESTAMP): _scale_column(DAY_US),
    (Kind.DATE, Kind.VARCHAR): _date_texts_column,
}
