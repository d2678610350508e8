"""Rounding functions, and the sign of a number."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

import numpy as np

from slicemill.esl.types.expression import Call
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.decimals import rounded_column, whole_column
from slicemill.scalar.function import SAME, RowFunction, RowMaker, ScalarFunction, Types, as_doubles, plain
from slicemill.scalar.kernel import KernelCall, KernelMaker, Out, Strict, kernel
from slicemill.scalar.source import source_of_double
from slicemill.scalar.values import EXACT, ExpressionError, bigint_checked, decimal_fit, integer_check
from slicemill.scalar.vectors import Numbers

# -- ceil and floor: NaN becomes 0, as in Java -------------------------------------------------------------


def _whole_row(rounding: str) -> RowMaker:
    on_doubles = math.ceil if rounding == ROUND_CEILING else math.floor

    def of_double(value: float) -> int:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            raise ExpressionError("an infinite value has no nearest integer")
        return bigint_checked(on_doubles(value))

    def make(types: Types, result: Type) -> RowFunction:
        if types[0].kind is Kind.DOUBLE:
            return of_double
        if types[0].kind is Kind.DECIMAL:
            fit = decimal_fit(result)
            return lambda value: fit(value.to_integral_value(rounding))
        return lambda value: value

    return make


def _whole_column(function: Strict) -> KernelMaker:
    def make(call: KernelCall) -> Strict | None:
        if call.types[0].kind is Kind.DECIMAL:
            return whole_column(call.types[0], call.result, up=function is np.ceil)
        if call.types[0].kind is not Kind.DOUBLE:
            return lambda number: number.astype(np.int64)

        def whole(number: Numbers) -> Out:
            rounded = function(number)
            return Out(rounded.astype(np.int64), fallback=~(np.abs(rounded) < 2.0**63))

        return whole

    return make


def _whole(name: str, rounding: str, column: Strict) -> ScalarFunction:
    rounded = f"CAST({name}({{0}}) AS {{type}})"
    return ScalarFunction(
        row=_whole_row(rounding),
        column=_whole_column(column),
        source=source_of_double(
            f"0 if {{0}} != {{0}} else int(np.{name}({{0}}))",
            "{0} == {0} and not -9223372036854775808.0 <= {0} < 9223372036854775808.0",
        ),
        duckdb=lambda call: "CAST({0} AS {type})" if _is_integer(call) else rounded,
    )


def _is_integer(call: Call) -> bool:
    return call.arguments[0].type.kind in (Kind.INT, Kind.BIGINT)


# -- round: halves away from zero -------------------------------------------------------------------------

_EXACT_DOUBLE = 2.0**53
_LARGEST_POWER = 15  # powers of ten and their multiples are exact doubles up to here


def _round_row(types: Types, result: Type) -> RowFunction:
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
        return value  # all digits precede this decimal place
    if value.adjusted() + places < -150:
        return Decimal(0)  # all digits follow this decimal place
    return value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP, context=EXACT)


def _round_column(call: KernelCall) -> Strict | None:
    places = call.constant(1, default=0)
    if not isinstance(places, int) or not 0 <= places <= _LARGEST_POWER:
        return None
    if call.result.kind in (Kind.INT, Kind.BIGINT):
        return lambda number, *_places: number
    if call.result.kind is Kind.DECIMAL:
        return rounded_column(call.types[0], call.result, min(places, call.types[0].scale or 0))
    if call.result.kind is not Kind.DOUBLE:
        return None
    power = 10.0**places

    def nearest(number: Numbers, *_places: Numbers) -> Out:
        size = np.abs(number) * power
        whole = np.rint(size)
        rounded = np.copysign(whole / power, number)
        # Near a tie, the shortest text of the number decides; only the row form uses that text.
        tie = np.abs(size - np.trunc(size) - 0.5) < 1e-4
        return Out(rounded, fallback=tie | ~(size < _EXACT_DOUBLE / 1e4))

    return nearest


def _round_in_duckdb(call: Call) -> str | None:
    # Spark rounds the decimal text of a double, DuckDB its binary value; they differ for 1.005 to two places.
    return None if len(call.arguments) > 1 and call.type.kind is Kind.DOUBLE else SAME


# -- sign -------------------------------------------------------------------------------------------------


def _sign_row(value: float) -> float:
    return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)


def _sign_column(number: Numbers) -> Numbers:
    return np.where((number == 0) | np.isnan(number), number, np.copysign(1.0, number))


_ceil = _whole("ceil", ROUND_CEILING, np.ceil)

ROUNDING: dict[str, ScalarFunction] = {
    "ceil": _ceil,
    "ceiling": _ceil,
    "floor": _whole("floor", ROUND_FLOOR, np.floor),
    "round": ScalarFunction(row=_round_row, column=_round_column, duckdb=_round_in_duckdb),
    "sign": ScalarFunction(
        row=plain(_sign_row),
        takes=as_doubles,
        column=kernel(_sign_column),
        duckdb="CAST(sign({0}) AS DOUBLE)",
    ),
}
