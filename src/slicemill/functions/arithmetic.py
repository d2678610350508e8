"""Arithmetic on numbers, times and intervals. Overflow is an error.

NumPy integers wrap around on overflow. Each kernel flags the rows that overflowed or may have overflowed.
The row function, which is plain Python, then evaluates these rows and raises the error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow.compute as pc

from slicemill import types as t
from slicemill.catalog.expressions import Call
from slicemill.functions import calendar
from slicemill.functions.calendar import DAY_US
from slicemill.functions.decimals import div_column, exact, quotient_column, remainder_column
from slicemill.functions.function import SAME, Abbreviation, RowFunction, RowMaker, ScalarFunction, Types
from slicemill.functions.kernel import KernelCall, KernelMaker, KernelResult, Strict
from slicemill.functions.source import Snippet, SnippetMaker, SourceMaker, kinds_of
from slicemill.functions.values import (
    BIGINT_MIN,
    EXACT,
    INT_MIN,
    INTS_32,
    INTS_64,
    ExpressionError,
    check_bigint,
    check_int,
    decimal_fit,
    integer_check,
    wrap_integer,
)
from slicemill.functions.vectors import Numbers
from slicemill.kernels.arrays import Bools
from slicemill.types import Kind, Type

_INTEGERS = {Kind.INT, Kind.BIGINT}
_TIMES = (Kind.TIMESTAMP, Kind.DATE)
_BEYOND_INT = "not ops.MIN_INT <= RESULT <= ops.MAX_INT"


def _operands(types: Types, result: Type) -> Types:
    """Return the types to which + - * / % convert their operands.

    Plain numbers are converted to the result's type. If one operand is a DECIMAL, both become decimals.
    """
    if result.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE):
        return (result,) * len(types)
    if result.kind is Kind.DECIMAL:
        return tuple(t.as_decimal(type_) for type_ in types)
    if result.kind in (Kind.TIMESTAMP, Kind.INTERVAL):
        return tuple(t.TIMESTAMP if type_.kind is Kind.DATE else type_ for type_ in types)
    return types


def _div_operands(types: Types, _result: Type) -> Types:
    """Convert both operands of DIV to decimals if one is a decimal."""
    if Kind.DECIMAL in kinds_of(types) and Kind.NULL not in kinds_of(types):
        return tuple(t.as_decimal(type_) for type_ in types)
    return types


def _never(*_values: object) -> None:
    """Stand for the row function of a call with an argument that is always NULL."""


# -- overflow in integer columns ----------------------------------------------------------------------------

# Largest product that is tested in doubles: below 2**63 by more than the rounding error.
_SAFE_PRODUCT = 9.22e18
_EXACT_INTEGER: dict[Any, Callable[[int, int], int]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
}


def narrow_to_32_bits(wide: Numbers, fallback: Bools | None = None) -> KernelResult:
    """Convert 64-bit integers to 32 bits, and mark the rows that overflow."""
    narrow = wide.astype(np.int32)
    beyond = narrow != wide
    return KernelResult(narrow, fallback=beyond if fallback is None else beyond | fallback)


def in_64_bits(number: Numbers) -> Numbers:
    return number.astype(np.int64, copy=False)


def plus(a: Numbers, b: Numbers) -> KernelResult:
    total = a + b
    return KernelResult(total, fallback=((a ^ total) & (b ^ total)) < 0)


def minus(a: Numbers, b: Numbers) -> KernelResult:
    total = a - b
    return KernelResult(total, fallback=((a ^ b) & (a ^ total)) < 0)


def times(a: Numbers, b: Numbers) -> KernelResult:
    if _within(np.multiply, a, b, np.int64):
        return KernelResult(a * b)
    # The estimate in doubles also flags some products that just fit.
    return KernelResult(a * b, fallback=np.abs(a.astype(np.float64) * b) >= _SAFE_PRODUCT)


def _within(operation: Callable[..., Any], a: Numbers, b: Numbers, dtype: type[np.generic]) -> bool:
    """Return True if minima and maxima show that no result overflows.

    This is cheaper than a test of each row.
    """
    if not np.size(a) or not np.size(b):
        return True
    ends = [[int(np.min(side)), int(np.max(side))] for side in (a, b)]
    corners = [_EXACT_INTEGER[operation](x, y) for x in ends[0] for y in ends[1]]
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    return bool(limits.min <= min(corners) and max(corners) <= limits.max)


def _integers(
    kind: Kind, operation: Callable[..., Any], checked: Callable[..., KernelResult]
) -> Strict | None:
    """Return a kernel for sums, differences and products of integers.

    If the operands are small, the kernel skips the overflow tests.
    """
    if kind not in INTS_32 + INTS_64:
        return None
    dtype = np.int32 if kind in INTS_32 else np.int64

    def compute(a: Numbers, b: Numbers) -> Numbers | KernelResult:
        if _within(operation, a, b, dtype):
            return operation(a, b, dtype=dtype, casting="unsafe")
        out = checked(in_64_bits(a), in_64_bits(b))
        return out if kind in INTS_64 else narrow_to_32_bits(out.data, out.fallback)

    return compute


# -- sums and differences ---------------------------------------------------------------------------------


def _sum_row(sign: int) -> RowMaker:
    on_doubles, on_decimals = (
        (operator.add, EXACT.add) if sign > 0 else (operator.sub, EXACT.subtract)
    )  # a + sign * b would change the sign bits of NaN and zero

    def make(types: Types, result: Type) -> RowFunction:
        if result.kind is Kind.NULL:
            return _never
        if result.kind is Kind.DOUBLE:
            return on_doubles
        if result.kind is Kind.DECIMAL:
            fit = decimal_fit(result)
            return lambda a, b: fit(on_decimals(a, b))
        if result.kind in _TIMES and Kind.MONTHS in (types[0].kind, types[1].kind):
            shift = _date_plus_months if result.kind is Kind.DATE else _timestamp_plus_months
            if types[0].kind is Kind.MONTHS:
                return lambda months, time: shift(time, months)
            return lambda time, months: shift(time, sign * months)
        checked = check_int if result.kind is Kind.DATE else integer_check(result)
        return lambda a, b: checked(a + sign * b)

    return make


def _date_plus_months(days: int, months: int) -> int:
    return check_int(calendar.plus_months(days, months))


def _timestamp_plus_months(us: int, months: int) -> int:
    days, rest = divmod(us, DAY_US)
    return check_bigint(calendar.plus_months(days, months) * DAY_US + rest)


def _sum_column(sign: int) -> KernelMaker:
    on_doubles, on_decimals = (np.add, pc.add) if sign > 0 else (np.subtract, pc.subtract)

    def make(call: KernelCall) -> Strict | None:
        kind = call.result.kind
        if kind is Kind.DOUBLE:
            return on_doubles
        if kind is Kind.DECIMAL:
            return exact(on_decimals, call.result)
        if kind in _TIMES and Kind.MONTHS in (call.types[0].kind, call.types[1].kind):
            shift = dates_plus_months if kind is Kind.DATE else _timestamps_plus_months
            if call.types[0].kind is Kind.MONTHS:
                return lambda months, time: shift(time, in_64_bits(months))
            return lambda time, months: shift(time, sign * in_64_bits(months))
        return _integers(kind, np.add, plus) if sign > 0 else _integers(kind, np.subtract, minus)

    return make


_MANY = 2**40
_LARGEST_DAY = (2**63 - 1) // DAY_US - 1000


def too_many(count: Numbers) -> Bools:
    """Return a mask of day or month counts too large for `calendar`."""
    return np.asarray((count > _MANY) | (count < -_MANY))


def dates_plus_months(days: Numbers, months: Numbers) -> KernelResult:
    moved = calendar.plus_months(in_64_bits(days), months)
    return narrow_to_32_bits(moved).except_for(too_many(months))


def _timestamps_plus_months(us: Numbers, months: Numbers) -> KernelResult:
    days, rest = np.divmod(us, DAY_US)
    moved = calendar.plus_months(days, months)
    in_range = np.abs(moved) < _LARGEST_DAY
    return KernelResult(moved * DAY_US + rest, fallback=~in_range | too_many(months))


def _sum_source(sign: str) -> SourceMaker:
    def make(types: Types, result: Type, machine: bool) -> SnippetMaker | None:
        if result.kind is Kind.DOUBLE:
            return lambda a, b: Snippet(f"({a} {sign} {b})")
        if not kinds_of(types) <= {*INTS_32, *INTS_64} or Kind.MONTHS in kinds_of(types):
            return None
        if result.kind in INTS_32:
            return lambda a, b: Snippet(f"{a} {sign} {b}", _BEYOND_INT)
        other = "({b} ^ RESULT)" if sign == "+" else "({a} ^ {b})"
        overflow = f"(({{a}} ^ RESULT) & {other}) < 0"
        if not machine:  # Python integers do not wrap round
            overflow += " or not ops.MIN_BIGINT <= RESULT <= ops.MAX_BIGINT"
        return lambda a, b: Snippet(f"{a} {sign} {b}", overflow.format(a=a, b=b), twice=True)

    return make


def _sum_in_duckdb(call: Call) -> str:
    kinds = [argument.type.kind for argument in call.arguments]
    if call.function == "-" and all(kind in _TIMES for kind in kinds):
        return "(CAST({0} AS TIMESTAMP) - CAST({1} AS TIMESTAMP))"
    if call.type.kind is Kind.DATE and Kind.MONTHS in kinds:
        return f"CAST({{0}} {call.function} {{1}} AS DATE)"
    return SAME


# -- products and quotients -------------------------------------------------------------------------------


def _multiply_row(types: Types, result: Type) -> RowFunction:
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


def _multiply_column(call: KernelCall) -> Strict | None:
    kind = call.result.kind
    if kind is Kind.DOUBLE:
        return np.multiply
    if kind is Kind.DECIMAL:
        return exact(pc.multiply, call.result)
    if kind is Kind.INTERVAL:
        swapped = call.types[0].kind is not Kind.INTERVAL
        factor = call.types[0 if swapped else 1].kind
        if factor is Kind.DOUBLE:
            return lambda a, b: _nearest_integer(a.astype(np.float64) * b)
        if factor is Kind.DECIMAL:
            return None
    return _integers(kind, np.multiply, times)


def _multiply_source(types: Types, result: Type, _machine: bool) -> SnippetMaker | None:
    if result.kind is Kind.DOUBLE:
        return lambda a, b: Snippet(f"({a} * {b})")
    if not kinds_of(types) <= _INTEGERS:
        return None
    if result.kind is Kind.INT:
        return lambda a, b: Snippet(f"{a} * {b}", _BEYOND_INT)
    return lambda a, b: Snippet(f"{a} * {b}", f"ops.product_overflows({a}, {b})", before=True, twice=True)


def _divide_row(_types: Types, result: Type) -> RowFunction:
    if result.kind is Kind.INTERVAL:
        return _nonzero(_interval_scaled(operator.truediv, EXACT.divide))
    if result.kind is Kind.DOUBLE:
        return _nonzero(operator.truediv)
    fit = decimal_fit(result)
    return _nonzero(lambda a, b: fit(_quotient(a, b)))


# Spark divides decimals with 39 decimal places, rounded half down, before it rounds to the result's scale.
_QUOTIENT = Decimal(1).scaleb(-39)


def _quotient(a: Decimal, b: Decimal) -> Decimal:
    return EXACT.divide(a, b).quantize(_QUOTIENT, rounding=ROUND_HALF_DOWN, context=EXACT)


def _interval_scaled(on_doubles: RowFunction, on_decimals: RowFunction) -> RowFunction:
    """Return a function that multiplies or divides intervals by numbers.

    The result is rounded to the nearest microsecond, halves away from zero."""

    def scaled(us: int, factor: int | float | Decimal) -> int:
        if isinstance(factor, float):
            product = on_doubles(float(us), factor)
            if not math.isfinite(product):
                raise ExpressionError(f"an interval of {us} microseconds cannot be scaled by {factor}")
            exactly = Decimal(product)
        else:
            exactly = on_decimals(Decimal(us), Decimal(factor))
        return check_bigint(int(exactly.to_integral_value(ROUND_HALF_UP)))

    return scaled


def _nonzero(function: RowFunction) -> RowFunction:
    def checked(a: object, b: object) -> object:
        if b == 0:
            raise ExpressionError("division by zero; write nullif(divisor, 0) to get NULL instead")
        return function(a, b)

    return checked


def _divide_column(call: KernelCall) -> Strict | None:
    kind = call.result.kind
    if kind is Kind.DOUBLE:
        return lambda a, b: KernelResult(np.divide(a, b), fallback=b == 0)
    if kind is Kind.DECIMAL:
        return quotient_column(call.types, call.result)
    if kind is not Kind.INTERVAL or call.types[1].kind is Kind.DECIMAL:
        return None
    if call.types[1].kind is Kind.DOUBLE:

        def by_double(us: Numbers, divisor: Numbers) -> KernelResult:
            return _nearest_integer(us.astype(np.float64) / divisor).except_for(divisor == 0)

        return by_double
    return _interval_by_integer


def _nearest_integer(number: Numbers) -> KernelResult:
    """Round doubles to 64-bit integers, halves away from zero."""
    whole = np.trunc(number)
    whole = whole + np.where(np.abs(number - whole) >= 0.5, np.sign(number), 0.0)
    return KernelResult(whole.astype(np.int64), fallback=~(np.abs(whole) < 2.0**63))


def _interval_by_integer(us: Numbers, divisor: Numbers) -> KernelResult:
    """Divide to the nearest microsecond, halves away from zero."""
    by = in_64_bits(divisor)
    size, parts = np.abs(us), np.abs(by)
    quotient, rest = np.divmod(size, parts)
    quotient = quotient + (rest >= parts - rest)
    signed = np.where((us < 0) == (by < 0), quotient, -quotient)
    return KernelResult(signed, fallback=(by == 0) | (us == BIGINT_MIN) | (by == BIGINT_MIN))


def _divide_source(_types: Types, result: Type, _machine: bool) -> SnippetMaker | None:
    if result.kind is not Kind.DOUBLE:
        return None
    return lambda a, b: Snippet(f"{a} / {b}", f"{b} == 0.0", before=True, twice=True)


def _divide_in_duckdb(call: Call) -> str:
    return "CAST({0} / {1} AS {type})" if call.type.kind is Kind.DECIMAL else SAME


# -- DIV --------------------------------------------------------------------------------------------------


def _div_row(_types: Types, _result: Type) -> RowFunction:
    return _nonzero(lambda a, b: check_bigint(_divide_truncating(a, b)))


def _divide_truncating(a: int | float | Decimal, b: int | float | Decimal) -> int:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not math.isfinite(a) or math.isnan(b):
        raise ExpressionError(f"{a} DIV {b} is no integer")
    return int(EXACT.divide_int(Decimal(a), Decimal(b)))


def _div_column(call: KernelCall) -> Strict | None:
    if kinds_of(call.types) == {Kind.DECIMAL}:
        return div_column(call.types)
    if not kinds_of(call.types) <= _INTEGERS:
        return None

    def divide(a: Numbers, b: Numbers) -> KernelResult:
        a, b = in_64_bits(a), in_64_bits(b)
        fallback = (b == 0) | ((a == BIGINT_MIN) & (b == -1))
        floor = np.floor_divide(a, b)
        # Round towards zero: add one to a negative floor of a fractional quotient.
        return KernelResult(floor + ((floor < 0) & (floor * b != a)), fallback=fallback)

    return divide


def _div_source(types: Types, _result: Type, _machine: bool) -> SnippetMaker | None:
    if not kinds_of(types) <= _INTEGERS:
        return None
    return lambda a, b: Snippet(
        f"ops.whole_quotient({a}, {b})",
        f"{b} == 0 or ({b} == -1 and {a} == ops.MIN_BIGINT)",
        before=True,
        twice=True,
    )


def _div_in_duckdb(call: Call) -> str:
    integers = kinds_of(tuple(argument.type for argument in call.arguments)) <= _INTEGERS
    return f"CAST({'{0} // {1}' if integers else 'trunc({0} / {1})'} AS BIGINT)"


# -- remainders -------------------------------------------------------------------------------------------


def _remainder_row(_types: Types, result: Type) -> RowFunction:
    if result.kind is Kind.DOUBLE:
        return _nonzero(_double_remainder)
    if result.kind is Kind.DECIMAL:
        fit = decimal_fit(result)
        return _nonzero(lambda a, b: fit(EXACT.remainder(a, b)))
    return _nonzero(lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1))


def _double_remainder(a: float, b: float) -> float:
    return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)


def _remainder_column(call: KernelCall) -> Strict | None:
    if call.result.kind is Kind.DECIMAL:
        return remainder_column(call.types, call.result, positive=False)
    return lambda a, b: KernelResult(np.fmod(a, b), fallback=b == 0)


def _remainder_source(types: Types, result: Type, _machine: bool) -> SnippetMaker | None:
    if result.kind is Kind.DOUBLE:
        return lambda a, b: Snippet(f"ops.double_remainder({a}, {b})", f"{b} == 0.0", before=True, twice=True)
    if not kinds_of(types) <= _INTEGERS:
        return None
    return lambda a, b: Snippet(f"ops.whole_remainder({a}, {b})", f"{b} == 0", before=True, twice=True)


def _pmod_row(types: Types, result: Type) -> RowFunction:
    remainder = _remainder_row(types, result)
    bits = 32 if result.kind is Kind.INT else 64

    def positive(a: Any, b: Any) -> object:
        first = remainder(a, b)
        if not first < 0:
            return first
        if isinstance(first, Decimal):
            return remainder(EXACT.add(first, b), b)
        moved = first + b
        return remainder(wrap_integer(moved, bits) if isinstance(moved, int) else moved, b)

    return positive


def _pmod_column(call: KernelCall) -> Strict | None:
    if call.result.kind is Kind.DECIMAL:
        return remainder_column(call.types, call.result, positive=True)

    def positive(a: Numbers, b: Numbers) -> KernelResult:
        first = np.fmod(a, b)
        return KernelResult(np.where(first < 0, np.fmod(first + b, b), first), fallback=b == 0)

    return positive


# -- signs ------------------------------------------------------------------------------------------------


def _sign_row(function: RowFunction, on_decimals: RowFunction) -> RowMaker:
    """Return the row function of negation or abs, with an overflow check."""

    def make(_types: Types, result: Type) -> RowFunction:
        if result.kind is Kind.DOUBLE:
            return function
        if result.kind is Kind.DECIMAL:
            return on_decimals  # operators of Decimal round to 28 digits
        checked = integer_check(result)
        return lambda value: checked(function(value))

    return make


def _sign_column(on_numbers: Strict, on_decimals: Callable[..., Any]) -> KernelMaker:
    """Return the kernel of negation or abs, in which the least integer overflows."""

    def make(call: KernelCall) -> Strict | None:
        kind = call.result.kind
        if kind is Kind.DECIMAL:
            return exact(on_decimals, call.result)
        if kind is Kind.DOUBLE:
            return on_numbers
        if kind not in INTS_32 + INTS_64:
            return None
        least = INT_MIN if kind in INTS_32 else BIGINT_MIN
        return lambda number: KernelResult(on_numbers(number), fallback=number == least)

    return make


def _sign_source(text: str) -> SourceMaker:
    def make(_types: Types, result: Type, _machine: bool) -> SnippetMaker | None:
        if result.kind is Kind.DOUBLE:
            return lambda a: Snippet(f"({text.format(a)})")
        if result.kind in INTS_32:
            return lambda a: Snippet(text.format(a), "RESULT > ops.MAX_INT")
        if result.kind in INTS_64:
            return lambda a: Snippet(text.format(a), f"{a} == ops.MIN_BIGINT", before=True, twice=True)
        return None

    return make


def _mod(call: Call) -> Call:
    return Call("%", call.arguments, call.type)


ARITHMETIC_ABBREVIATIONS: dict[str, Abbreviation] = {"mod": Abbreviation(_mod, duckdb="({0} % {1})")}

ARITHMETIC: dict[str, ScalarFunction] = {
    "+": ScalarFunction(
        row=_sum_row(1),
        takes=_operands,
        column=_sum_column(1),
        source=_sum_source("+"),
        duckdb=_sum_in_duckdb,
    ),
    "-": ScalarFunction(
        row=_sum_row(-1),
        takes=_operands,
        column=_sum_column(-1),
        source=_sum_source("-"),
        duckdb=_sum_in_duckdb,
    ),
    "*": ScalarFunction(
        row=_multiply_row, takes=_operands, column=_multiply_column, source=_multiply_source, duckdb=SAME
    ),
    "/": ScalarFunction(
        row=_divide_row,
        takes=_operands,
        right_first=True,
        column=_divide_column,
        source=_divide_source,
        duckdb=_divide_in_duckdb,
    ),
    "div": ScalarFunction(
        row=_div_row,
        takes=_div_operands,
        right_first=True,
        column=_div_column,
        source=_div_source,
        duckdb=_div_in_duckdb,
    ),
    "%": ScalarFunction(
        row=_remainder_row,
        takes=_operands,
        right_first=True,
        column=_remainder_column,
        source=_remainder_source,
        duckdb=SAME,
    ),
    "pmod": ScalarFunction(
        row=_pmod_row,
        takes=_operands,
        right_first=True,
        column=_pmod_column,
        duckdb="CASE WHEN {0} % {1} < 0 THEN ({0} % {1} + {1}) % {1} ELSE {0} % {1} END",
    ),
    "negative": ScalarFunction(
        row=_sign_row(operator.neg, EXACT.minus),
        column=_sign_column(np.negative, pc.negate),
        source=_sign_source("-{}"),
        duckdb=SAME,
    ),
    "abs": ScalarFunction(
        row=_sign_row(abs, EXACT.abs),
        column=_sign_column(np.abs, pc.abs),
        source=_sign_source("abs({})"),
        duckdb=SAME,
    ),
}
