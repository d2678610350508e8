"""CAST and the conversions nobody writes: INT to DOUBLE, DATE to TIMESTAMP and their like, as in ANSI Spark.

A value that does not fit is an error, never a wrong value. A CAST to VARCHAR(n) cuts, as SQL asks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.calendar import (
    BLANKS,
    DAY_US,
    SECOND_US,
    date_text,
    parse_date,
    parse_timestamp,
    timestamp_text,
)
from slicemill.scalar.values import (
    EXACT,
    ExpressionError,
    Function,
    bigint_checked,
    decimal_fit,
    int_checked,
    integer_check,
)

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_REAL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]?", re.ASCII)
_EXACT_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")  # digits of any script, as in Java
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_MOST_DIGITS = 40
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")


def converter(source: Type, target: Type) -> Callable[[object], object]:
    """Takes a value of `source` to `target`. NULL stays NULL, also where no other value converts."""
    function = _converter(source, target)
    return lambda value: None if value is None else function(value)


def _converter(source: Type, target: Type) -> Function:
    if source.kind is Kind.ANY:
        return lambda value: _converter(type_of_value(value), target)(value)
    if target.kind is Kind.DECIMAL:
        fit, as_exact = decimal_fit(target), _TO_DECIMAL.get(source.kind)
        if source.kind is Kind.DOUBLE:  # NULL for NaN and infinities, as in Spark
            return lambda value: fit(_double_to_exact(value)) if math.isfinite(value) else None
        if as_exact is not None:
            return lambda value: fit(as_exact(value))
    if target.kind is Kind.VARCHAR and target.length is not None:
        text, length = _converter(source, t.VARCHAR), target.length
        return lambda value: text(value)[:length]
    if source.kind is target.kind or Kind.NULL in (source.kind, target.kind) or target.kind is Kind.ANY:
        return _same
    function = _CONVERSIONS.get((source.kind, target.kind))
    if function is None:
        raise ExpressionError(f"{source} cannot become {target}")
    return function


def type_of_value(value: object) -> Type:
    """The type of a value whose argument was declared without one."""
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


# -- from text --------------------------------------------------------------------------------------------


def _unreadable(text: str, kind: Kind) -> ExpressionError:
    return ExpressionError(f"'{text}' is no {kind.value}; use TRY_CAST to get NULL for such texts")


def _text_to_whole(kind: Kind) -> Function:
    checked = integer_check(Type(kind))

    def parse(text: str) -> int:
        stripped = text.strip(BLANKS)
        if not _WHOLE.fullmatch(stripped):
            raise _unreadable(text, kind)
        digits = stripped.lstrip("+-0")
        # Python refuses to read thousands of digits; no integer type has that many.
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


# -- from numbers and times -------------------------------------------------------------------------------


def _double_to_whole(kind: Kind) -> Function:
    low, high = (-(2.0**31), 2.0**31 - 1) if kind is Kind.INT else (-(2.0**63), 2.0**63)
    largest = 2**31 - 1 if kind is Kind.INT else 2**63 - 1

    def truncate(value: float) -> int:
        # 2.0**63 itself passes and becomes the largest BIGINT: Java compares as doubles, and so does Spark.
        if math.isfinite(value) and math.floor(value) <= high and math.ceil(value) >= low:
            return min(int(value), largest)
        raise ExpressionError(f"{double_text(value)} does not fit into {kind.value}")

    return truncate


_double_to_int, _double_to_bigint = _double_to_whole(Kind.INT), _double_to_whole(Kind.BIGINT)


def _double_to_exact(value: float) -> Decimal:
    return Decimal(repr(value))  # the shortest text that reads back as the same double, as in Java


def _double_to_timestamp(value: float) -> object:
    return _double_to_bigint(value * SECOND_US)


def _seconds_to_timestamp(value: int) -> int:
    return bigint_checked(value * SECOND_US)


def _decimal_to_timestamp(value: Decimal) -> int:
    return bigint_checked(int(EXACT.multiply(value, Decimal(SECOND_US))))


def _timestamp_to_exact(value: int) -> Decimal:
    return Decimal(value).scaleb(-6, context=EXACT)


def double_text(value: float) -> str:
    """A double as Java prints it.

    >>> double_text(100.0), double_text(1e7), double_text(-0.00025), double_text(float("nan"))
    ('100.0', '1.0E7', '-2.5E-4', 'NaN')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    if len(digits) == 1:  # Java shows two digits at least, also of the smallest numbers, and the nearest ones
        _, digits, exponent = Decimal(f"{abs(value):.1e}").normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent  # digits before the point
    if value == 0:
        return f"{sign}0.0"
    if -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        fraction = text[point:] if point > 0 else "0" * -point + text
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{text[0]}.{text[1:] or '0'}E{point - 1}"


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


_TO_DECIMAL: dict[Kind, Function] = {
    Kind.DECIMAL: _same,
    Kind.INT: Decimal,
    Kind.BIGINT: Decimal,
    Kind.BOOLEAN: Decimal,
    Kind.VARCHAR: _text_to_exact,
    Kind.TIMESTAMP: _timestamp_to_exact,
}

_CONVERSIONS: dict[tuple[Kind, Kind], Function] = {
    (Kind.INT, Kind.BIGINT): _same,
    (Kind.INT, Kind.DOUBLE): float,
    (Kind.INT, Kind.BOOLEAN): bool,
    (Kind.INT, Kind.TIMESTAMP): _seconds_to_timestamp,
    (Kind.INT, Kind.VARCHAR): str,
    (Kind.BIGINT, Kind.INT): int_checked,
    (Kind.BIGINT, Kind.DOUBLE): float,
    (Kind.BIGINT, Kind.BOOLEAN): bool,
    (Kind.BIGINT, Kind.TIMESTAMP): _seconds_to_timestamp,
    (Kind.BIGINT, Kind.VARCHAR): str,
    (Kind.DECIMAL, Kind.INT): lambda value: int_checked(int(value)),
    (Kind.DECIMAL, Kind.BIGINT): lambda value: bigint_checked(int(value)),
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
    (Kind.VARCHAR, Kind.INT): _text_to_whole(Kind.INT),
    (Kind.VARCHAR, Kind.BIGINT): _text_to_whole(Kind.BIGINT),
    (Kind.VARCHAR, Kind.DOUBLE): _text_to_double,
    (Kind.VARCHAR, Kind.BOOLEAN): _text_to_boolean,
    (Kind.VARCHAR, Kind.BINARY): lambda value: value.encode(),
    (Kind.VARCHAR, Kind.DATE): parse_date,
    (Kind.VARCHAR, Kind.TIMESTAMP): parse_timestamp,
    (Kind.BINARY, Kind.VARCHAR): lambda value: value.decode(errors="replace"),
    (Kind.TIMESTAMP, Kind.DATE): lambda value: value // DAY_US,
    (Kind.TIMESTAMP, Kind.INT): lambda value: int_checked(value // SECOND_US),
    (Kind.TIMESTAMP, Kind.BIGINT): lambda value: value // SECOND_US,
    (Kind.TIMESTAMP, Kind.DOUBLE): lambda value: value / SECOND_US,
    (Kind.TIMESTAMP, Kind.VARCHAR): timestamp_text,
    (Kind.DATE, Kind.TIMESTAMP): lambda value: bigint_checked(value * DAY_US),
    (Kind.DATE, Kind.VARCHAR): date_text,
    (Kind.INTERVAL, Kind.VARCHAR): _interval_text,
    (Kind.MONTHS, Kind.VARCHAR): _months_text,
}
