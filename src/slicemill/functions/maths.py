"""Mathematical functions, rounding and bit operations.

Where Python raises, the functions return NaN or infinity, as in Java.

Kernels return the same bits as the row functions: Arrow and Python call the same C library functions, whereas
NumPy's own functions differ in the last bit. The row function (plain Python, one row at a time) evaluates
arguments for which Java and C disagree.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill import types as t
from slicemill.catalog.expressions import Call
from slicemill.functions.arithmetic import in_64_bits
from slicemill.functions.decimals import round_column, whole_column
from slicemill.functions.function import (
    SAME,
    RowFunction,
    RowMaker,
    ScalarFunction,
    Sql,
    Types,
    as_common,
    as_doubles,
    plain,
)
from slicemill.functions.kernel import KernelCall, KernelMaker, KernelResult, Strict, kernel
from slicemill.functions.source import Snippet, SnippetMaker, SourceMaker, kinds_of, source_of_double
from slicemill.functions.values import (
    EXACT,
    ExpressionError,
    check_bigint,
    decimal_fit,
    integer_check,
    wrap_integer,
)
from slicemill.functions.vectors import Numbers, numbers
from slicemill.types import Kind, Type


def _total(function: Callable[[float], float]) -> Callable[[float], float]:
    """Return a function that returns NaN or infinity instead of raising (IEEE 754)."""

    def total(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return total


def _on_doubles(function: Callable[..., Any], *arguments: Numbers) -> Numbers:
    """Apply an Arrow function to NumPy numbers."""
    found = function(*(pa.scalar(float(a)) if np.ndim(a) == 0 else pa.array(a) for a in arguments))
    return np.float64(found.as_py()) if isinstance(found, pa.Scalar) else numbers(found)


def _as_in_c(function: Callable[..., Any]) -> Strict:
    return lambda number: _on_doubles(function, number)


def _real(
    row: Callable[[float], float],
    column: Strict | None = None,
    source: SourceMaker | None = None,
    duckdb: Sql | None = SAME,
) -> ScalarFunction:
    return ScalarFunction(
        row=plain(row),
        takes=as_doubles,
        column=None if column is None else kernel(column),
        source=source,
        duckdb=duckdb,
    )


def _sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _atan2_row(y: float, x: float) -> float:
    return math.atan2(y + 0.0, x + 0.0)  # no negative zeros, as in Spark


def _atan2_column(y: Numbers, x: Numbers) -> Numbers:
    return _on_doubles(pc.atan2, y + 0.0, x + 0.0)


# -- logarithms: NULL outside the domain, as in Spark and Hive ----------------------------------------------


def _logarithm(row: Callable[[float], float], column: Callable[..., Any], name: str) -> ScalarFunction:
    return ScalarFunction(
        row=plain(lambda value: None if value <= 0 else row(value)),
        takes=as_doubles,
        column=kernel(lambda number: KernelResult(_on_doubles(column, number), null=number <= 0)),
        duckdb=f"CASE WHEN {{0}} > 0 THEN {name}({{0}}) END",
    )


def _log_row(base: float, value: float | None = None) -> float | None:
    """Return the natural logarithm, or the logarithm to a base."""
    if value is None:
        return None if base <= 0 else math.log(base)
    if base <= 0 or value <= 0:
        return None
    if base == 1:
        above = math.log(value)
        return math.nan if above == 0 or math.isnan(above) else math.copysign(math.inf, above)
    if math.isinf(base) and math.isinf(value):
        return math.nan
    return math.log(value) / math.log(base)


def _log_column(call: KernelCall) -> Strict:
    if len(call.types) == 1:
        return lambda number: KernelResult(_on_doubles(pc.ln, number), null=number <= 0)

    def to_base(base: Numbers, number: Numbers) -> KernelResult:
        found = _on_doubles(pc.ln, number) / _on_doubles(pc.ln, base)
        odd = (base == 1) | np.isinf(base) | np.isinf(number)
        return KernelResult(found, null=(base <= 0) | (number <= 0), fallback=odd)

    return to_base


# -- powers -----------------------------------------------------------------------------------------------


def _power_row(base: float, exponent: float) -> float:
    # Java differs from C if the exponent is NaN, or if |base| is 1 and the exponent is infinite.
    if math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def _power_column(base: Numbers, exponent: Numbers) -> KernelResult:
    found = _on_doubles(pc.power, base, exponent)
    return KernelResult(found, fallback=~np.isfinite(found) | ~np.isfinite(exponent) | (base == 0))


_power = ScalarFunction(row=plain(_power_row), takes=as_doubles, column=kernel(_power_column), duckdb=SAME)

MATHS: dict[str, ScalarFunction] = {
    "acos": _real(_total(math.acos), _as_in_c(pc.acos)),
    "asin": _real(_total(math.asin), _as_in_c(pc.asin)),
    "atan": _real(_total(math.atan), _as_in_c(pc.atan)),
    "atan2": ScalarFunction(
        row=plain(_atan2_row),
        takes=as_doubles,
        column=kernel(_atan2_column),
        duckdb="atan2({0} + 0, {1} + 0)",
    ),
    "cbrt": _real(_total(math.cbrt)),
    "cos": _real(_total(math.cos), _as_in_c(pc.cos)),
    "cosh": _real(_total(math.cosh)),
    "degrees": _real(_total(math.degrees), lambda number: number * (180.0 / np.pi)),
    "exp": _real(_total(math.exp), _as_in_c(pc.exp)),
    "ln": _logarithm(math.log, pc.ln, "ln"),
    "log": ScalarFunction(
        row=plain(_log_row),
        takes=as_doubles,
        column=_log_column,
        duckdb=(
            "CASE WHEN {0} > 0 THEN ln({0}) END",
            "CASE WHEN {0} > 0 AND {1} > 0 THEN log({0}, {1}) END",
        ),
    ),
    "log10": _logarithm(math.log10, pc.log10, "log10"),
    "log2": _logarithm(math.log2, pc.log2, "log2"),
    "pow": _power,
    "power": _power,
    "radians": _real(_total(math.radians), lambda number: number * (np.pi / 180.0)),
    "sin": _real(_total(math.sin), _as_in_c(pc.sin)),
    "sinh": _real(_sinh),
    "sqrt": _real(_total(math.sqrt), np.sqrt, source_of_double("np.sqrt({0}) if {0} >= 0.0 else np.nan")),
    "tan": _real(_total(math.tan), _as_in_c(pc.tan)),
    "tanh": _real(_total(math.tanh)),
}


# Rounding functions, and the sign of a number


# -- ceil and floor: NaN becomes 0, as in Java -------------------------------------------------------------


def _whole_row(rounding: str) -> RowMaker:
    on_doubles = math.ceil if rounding == ROUND_CEILING else math.floor

    def of_double(value: float) -> int:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            raise ExpressionError("an infinite value has no nearest integer")
        return check_bigint(on_doubles(value))

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

        def whole(number: Numbers) -> KernelResult:
            rounded = function(number)
            return KernelResult(rounded.astype(np.int64), fallback=~(np.abs(rounded) < 2.0**63))

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
_LARGEST_POWER = 15  # exponent of ten up to which multiples of its powers are exact doubles


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
        return value  # the value has no digits after the rounded decimal place
    if value.adjusted() + places < -150:
        return Decimal(0)  # the value is far below one unit of the rounded decimal place
    return value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP, context=EXACT)


def _round_column(call: KernelCall) -> Strict | None:
    places = call.constant(1, default=0)
    if not isinstance(places, int) or not 0 <= places <= _LARGEST_POWER:
        return None
    if call.result.kind in (Kind.INT, Kind.BIGINT):
        return lambda number, *_indices: number
    if call.result.kind is Kind.DECIMAL:
        return round_column(call.types[0], call.result, min(places, call.types[0].scale or 0))
    if call.result.kind is not Kind.DOUBLE:
        return None
    power = 10.0**places

    def nearest(number: Numbers, *_indices: Numbers) -> KernelResult:
        size = np.abs(number) * power
        whole = np.rint(size)
        rounded = np.copysign(whole / power, number)
        # Near a tie, rounding depends on the shortest text of the number, which only the row function
        # computes.
        tie = np.abs(size - np.trunc(size) - 0.5) < 1e-4
        return KernelResult(rounded, fallback=tie | ~(size < _EXACT_DOUBLE / 1e4))

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


# Bit operations on integers


def _bits_source(sign: str) -> SourceMaker:
    def make(types: Types, _result: Type, _machine: bool) -> SnippetMaker | None:
        if not kinds_of(types) <= {Kind.INT, Kind.BIGINT}:
            return None
        return lambda a, b: Snippet(f"({a} {sign} {b})")

    return make


def _width(type_: Type) -> int:
    return 32 if type_.kind is Kind.INT else 64


def _shift_operands(_types: Types, result: Type) -> Types:
    return (result, t.INT)


def _shift_left_row(_types: Types, result: Type) -> RowFunction:
    bits = _width(result)
    return lambda value, by: wrap_integer(value << (by % bits), bits)


def _shift_right_row(_types: Types, result: Type) -> RowFunction:
    bits = _width(result)
    return lambda value, by: value >> (by % bits)


def _shift_column(function: Strict) -> KernelMaker:
    def make(call: KernelCall) -> Strict:
        mask = _width(call.result) - 1
        return lambda number, by: function(number, (by & mask).astype(number.dtype))

    return make


def _bit_count_row(value: int) -> int:
    return (value & 0xFFFF_FFFF_FFFF_FFFF).bit_count()


def _bit_count_column(number: Numbers) -> Numbers:
    return np.bitwise_count(in_64_bits(number).view(np.uint64)).astype(np.int32)


BITS: dict[str, ScalarFunction] = {
    "&": ScalarFunction(
        row=plain(operator.and_),
        takes=as_common,
        column=kernel(np.bitwise_and),
        source=_bits_source("&"),
        duckdb=SAME,
    ),
    "|": ScalarFunction(
        row=plain(operator.or_),
        takes=as_common,
        column=kernel(np.bitwise_or),
        source=_bits_source("|"),
        duckdb=SAME,
    ),
    "^": ScalarFunction(
        row=plain(operator.xor),
        takes=as_common,
        column=kernel(np.bitwise_xor),
        source=_bits_source("^"),
        duckdb="xor({0}, {1})",
    ),
    "~": ScalarFunction(row=plain(operator.invert), column=kernel(np.invert), duckdb=SAME),
    "shiftleft": ScalarFunction(
        row=_shift_left_row, takes=_shift_operands, column=_shift_column(np.left_shift)
    ),
    "shiftright": ScalarFunction(
        row=_shift_right_row,
        takes=_shift_operands,
        column=_shift_column(np.right_shift),
        duckdb=lambda call: f"({{0}} >> ({{1}} & {_width(call.type) - 1}))",
    ),
    "bit_count": ScalarFunction(
        row=plain(_bit_count_row),
        column=kernel(_bit_count_column),
        duckdb="bit_count(CAST({0} AS BIGINT))",
    ),
}
