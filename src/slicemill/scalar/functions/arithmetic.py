"""Arithmetic: operators on numbers, times and intervals, and rounding. Overflow is an error."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.calendar import DAY_US, plus_months
from slicemill.scalar.values import (
    EXACT,
    ExpressionError,
    Function,
    Scalar,
    Types,
    as_common,
    as_doubles,
    as_given,
    bigint_checked,
    decimal_fit,
    int_checked,
    integer_check,
    plain,
    wrapped,
)

# Spark divides decimals to so many places, half down, before it rounds to the scale of the result.
_QUOTIENT = Decimal(1).scaleb(-39)


def _operands(types: Types, result: Type) -> Types:
    """What the operands of + - * / % become: the result's type for plain numbers, exact beside a DECIMAL."""
    if result.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE):
        return (result,) * len(types)
    if result.kind is Kind.DECIMAL:
        return tuple(t.as_decimal(type_) for type_ in types)
    if result.kind in (Kind.TIMESTAMP, Kind.INTERVAL):
        return tuple(t.TIMESTAMP if type_.kind is Kind.DATE else type_ for type_ in types)
    return types


def _never(*_values: object) -> None:
    """A call that always has a NULL argument is never made."""


def _additive(sign: int) -> Callable[[Types, Type], Function]:
    on_doubles, on_decimals = (
        (operator.add, EXACT.add) if sign > 0 else (operator.sub, EXACT.subtract)
    )  # not a + sign * b: NaN and zero keep their sign bits this way

    def make(types: Types, result: Type) -> Function:
        if result.kind is Kind.NULL:
            return _never
        if result.kind is Kind.DOUBLE:
            return on_doubles
        if result.kind is Kind.DECIMAL:
            fit = decimal_fit(result)
            return lambda a, b: fit(on_decimals(a, b))
        if result.kind in (Kind.DATE, Kind.TIMESTAMP) and Kind.MONTHS in (types[0].kind, types[1].kind):
            shift = _date_plus_months if result.kind is Kind.DATE else _timestamp_plus_months
            if types[0].kind is Kind.MONTHS:
                return lambda months, time: shift(time, months)
            return lambda time, months: shift(time, sign * months)
        checked = int_checked if result.kind is Kind.DATE else integer_check(result)
        return lambda a, b: checked(a + sign * b)

    return make


def _date_plus_months(days: int, months: int) -> int:
    return int_checked(plus_months(days, months))


def _timestamp_plus_months(us: int, months: int) -> int:
    days, rest = divmod(us, DAY_US)
    return bigint_checked(plus_months(days, months) * DAY_US + rest)


def _multiply(types: Types, result: Type) -> Function:
    if result.kind is Kind.DOUBLE:
        return operator.mul
    if result.kind is Kind.DECIMAL:
        fit = decimal_fit(result)
        return lambda a, b: fit(EXACT.multiply(a, b))
    if result.kind is Kind.INTERVAL:
        scaled = _interval_scaled(operator.mul, EXACT.multiply)
        if types[0].kind is Kind.INTERVAL:
            return scaled
        return lambda factor, us: scaled(us, factor)
    checked = integer_check(result)
    return _never if result.kind is Kind.NULL else lambda a, b: checked(a * b)


def _divide(types: Types, result: Type) -> Function:
    del types
    if result.kind is Kind.INTERVAL:
        return _nonzero(_interval_scaled(operator.truediv, EXACT.divide))
    if result.kind is Kind.DOUBLE:
        return _nonzero(operator.truediv)
    fit = decimal_fit(result)
    return _nonzero(lambda a, b: fit(_quotient(a, b)))


def _quotient(a: Decimal, b: Decimal) -> Decimal:
    return EXACT.divide(a, b).quantize(_QUOTIENT, rounding=ROUND_HALF_DOWN, context=EXACT)


def _interval_scaled(on_doubles: Function, on_decimals: Function) -> Function:
    """An interval by a number, to the nearest microsecond, halves away from zero."""

    def scaled(us: int, factor: int | float | Decimal) -> int:
        if isinstance(factor, float):
            product = on_doubles(float(us), factor)
            if not math.isfinite(product):
                raise ExpressionError(f"an interval of {us} microseconds cannot be scaled by {factor}")
            exact = Decimal(product)
        else:
            exact = on_decimals(Decimal(us), Decimal(factor))
        return bigint_checked(int(exact.to_integral_value(ROUND_HALF_UP)))

    return scaled


def _nonzero(function: Function) -> Function:
    def checked(a: object, b: object) -> object:
        if b == 0:
            raise ExpressionError("division by zero; write nullif(divisor, 0) to get NULL instead")
        return function(a, b)

    return checked


def _whole_division(types: Types, result: Type) -> Function:
    del types, result
    return _nonzero(lambda a, b: bigint_checked(_truncated(a, b)))


def _truncated(a: int | float | Decimal, b: int | float | Decimal) -> int:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not math.isfinite(a) or math.isnan(b):
        raise ExpressionError(f"{a} DIV {b} is no whole number")
    return int(EXACT.divide_int(Decimal(a), Decimal(b)))


def _remainder(types: Types, result: Type) -> Function:
    del types
    if result.kind is Kind.DOUBLE:
        return _nonzero(_double_remainder)
    if result.kind is Kind.DECIMAL:
        fit = decimal_fit(result)
        return _nonzero(lambda a, b: fit(EXACT.remainder(a, b)))
    return _nonzero(_whole_remainder)


def _whole_remainder(a: int, b: int) -> int:
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _double_remainder(a: float, b: float) -> float:
    return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)


def _positive_remainder(types: Types, result: Type) -> Function:
    remainder = _remainder(types, result)
    bits = 32 if result.kind is Kind.INT else 64

    def positive(a: Any, b: Any) -> object:
        first = remainder(a, b)
        if not first < 0:
            return first
        if isinstance(first, Decimal):
            return remainder(EXACT.add(first, b), b)
        moved = first + b
        return remainder(wrapped(moved, bits) if isinstance(moved, int) else moved, b)

    return positive


def _integers(function: Callable[[int, int], int]) -> Scalar:
    return plain(function, as_common)


def _shift(types: Types, result: Type) -> Types:
    del types
    return (result, t.INT)


def _shift_left(types: Types, result: Type) -> Function:
    del types
    bits = 32 if result.kind is Kind.INT else 64
    return lambda value, by: wrapped(value << (by % bits), bits)


def _shift_right(types: Types, result: Type) -> Function:
    del types
    bits = 32 if result.kind is Kind.INT else 64
    return lambda value, by: value >> (by % bits)


def _unary(function: Function, on_decimals: Function) -> Callable[[Types, Type], Function]:
    """For - and abs: the result must fit into the operand's type."""

    def make(types: Types, result: Type) -> Function:
        del types
        if result.kind is Kind.DOUBLE:
            return function
        if result.kind is Kind.DECIMAL:
            return on_decimals  # Python's own operators round to 28 digits
        checked = integer_check(result)
        return lambda value: checked(function(value))

    return make


def _whole(rounding: str) -> Callable[[Types, Type], Function]:
    """For ceil and floor. NaN gives 0, as in Java."""
    on_doubles = math.ceil if rounding == ROUND_CEILING else math.floor

    def of_double(value: float) -> int:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            raise ExpressionError("an infinite value has no nearest whole number")
        return bigint_checked(on_doubles(value))

    def make(types: Types, result: Type) -> Function:
        if types[0].kind is Kind.DOUBLE:
            return of_double
        if types[0].kind is Kind.DECIMAL:
            fit = decimal_fit(result)
            return lambda value: fit(value.to_integral_value(rounding))
        return lambda value: value

    return make


def _round(types: Types, result: Type) -> Function:
    if result.kind is Kind.DOUBLE:
        return _round_double
    if result.kind is Kind.DECIMAL:
        fit = decimal_fit(result)
        scale = types[0].scale or 0
        return lambda value, places=0: fit(_half_up(value, min(places, scale)))
    checked = integer_check(result)
    return lambda value, places=0: value if places >= 0 else checked(int(_half_up(Decimal(value), places)))


def _round_double(value: float, places: int = 0) -> float:
    if not math.isfinite(value) or places > 330:
        return value
    return float(_half_up(Decimal(repr(value)), max(places, -330)))


def _half_up(value: Decimal, places: int) -> Decimal:
    if value.adjusted() + places > 150:
        return value  # it has no digit so far behind the point
    if value.adjusted() + places < -150:
        return Decimal(0)  # nor one so far before it
    return value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP, context=EXACT)


def _bit_count(value: int) -> int:
    return (value & 0xFFFF_FFFF_FFFF_FFFF).bit_count()


def _sign(value: float) -> float:
    return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)


ARITHMETIC: dict[str, Scalar] = {
    "+": Scalar(_additive(1), _operands),
    "-": Scalar(_additive(-1), _operands),
    "*": Scalar(_multiply, _operands),
    "/": Scalar(_divide, _operands),
    "%": Scalar(_remainder, _operands),
    "div": Scalar(_whole_division, as_given),
    "pmod": Scalar(_positive_remainder, _operands),
    "&": _integers(operator.and_),
    "|": _integers(operator.or_),
    "^": _integers(operator.xor),
    "~": plain(operator.invert),
    "negative": Scalar(_unary(operator.neg, EXACT.minus), as_given),
    "abs": Scalar(_unary(abs, EXACT.abs), as_given),
    "shiftleft": Scalar(_shift_left, _shift),
    "shiftright": Scalar(_shift_right, _shift),
    "ceil": Scalar(_whole(ROUND_CEILING), as_given),
    "ceiling": Scalar(_whole(ROUND_CEILING), as_given),
    "floor": Scalar(_whole(ROUND_FLOOR), as_given),
    "round": Scalar(_round, as_given),
    "bit_count": plain(_bit_count),
    "sign": plain(_sign, as_doubles),
}
