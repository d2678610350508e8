"""Real functions.

Where Python raises, the functions return NaN or infinity, as in Java.

Columns equal rows bit by bit. Arrow's kernels call the same C library functions as Python does, whereas
NumPy's own differ in the last bit. Arguments on which Java and C disagree are left to the row form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.scalar.function import SAME, ScalarFunction, Sql, as_doubles, plain
from slicemill.scalar.kernel import KernelCall, Out, Strict, kernel
from slicemill.scalar.source import SourceMaker, source_of_double
from slicemill.scalar.vectors import Numbers, numbers


def _total(function: Callable[[float], float]) -> Callable[[float], float]:
    """Extend a partial Python function as IEEE 754 does."""

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
        column=kernel(lambda number: Out(_on_doubles(column, number), null=number <= 0)),
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
        return lambda number: Out(_on_doubles(pc.ln, number), null=number <= 0)

    def to_base(base: Numbers, number: Numbers) -> Out:
        found = _on_doubles(pc.ln, number) / _on_doubles(pc.ln, base)
        odd = (base == 1) | np.isinf(base) | np.isinf(number)
        return Out(found, null=(base <= 0) | (number <= 0), fallback=odd)

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


def _power_column(base: Numbers, exponent: Numbers) -> Out:
    found = _on_doubles(pc.power, base, exponent)
    return Out(found, fallback=~np.isfinite(found) | ~np.isfinite(exponent) | (base == 0))


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
