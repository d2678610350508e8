"""Periods of valid time [begin, end) and their relations (L7).

Exactly one of Allen's thirteen relations holds between two periods. The last three relations of the table are
combinations of Allen's relations and may hold in addition. A column of periods is an (n, 2) array of begins
and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from slicemill.functions.arithmetic import minus
from slicemill.functions.function import ScalarFunction, plain
from slicemill.functions.kernel import KernelCall, KernelResult, Strict, kernel
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import Numbers
from slicemill.types import Kind

# ruff: noqa: ARG005 (every relation is a formula over a, b, c, d)


Period: TypeAlias = tuple[int, ...]  # (begin, end), or (begin, end, flag for a period that is still open)

# Relations of x = [a, b) to y = [c, d), for numbers and for columns.
_RELATIONS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "before": lambda a, b, c, d: b < c,
    "after": lambda a, b, c, d: d < a,
    "meets": lambda a, b, c, d: b == c,
    "met by": lambda a, b, c, d: d == a,
    "overlaps": lambda a, b, c, d: (a < c) & (c < b) & (b < d),
    "overlapped by": lambda a, b, c, d: (c < a) & (a < d) & (d < b),
    "starts": lambda a, b, c, d: (a == c) & (b < d),
    "started by": lambda a, b, c, d: (a == c) & (d < b),
    "during": lambda a, b, c, d: (c < a) & (b < d),
    "contains": lambda a, b, c, d: (a < c) & (d < b),
    "finishes": lambda a, b, c, d: (b == d) & (c < a),
    "finished by": lambda a, b, c, d: (b == d) & (a < c),
    "equals": lambda a, b, c, d: (a == c) & (b == d),
    "intersects": lambda a, b, c, d: (a < d) & (c < b),
    "precedes": lambda a, b, c, d: b <= c,
    "covers": lambda a, b, c, d: (a <= c) & (d <= b),
}


def _relation(holds: Callable[[Any, Any, Any, Any], Any]) -> ScalarFunction:
    return ScalarFunction(
        row=plain(lambda x, y: holds(x[0], x[1], y[0], y[1])),
        column=kernel(lambda x, y: holds(x[..., 0], x[..., 1], y[..., 0], y[..., 1])),
    )


def _period_row(begin: int, end: int) -> Period:
    if begin >= end:
        raise ExpressionError(f"a period begins before it ends; {begin} is not before {end} (microseconds)")
    return begin, end


def _period_column(begin: Numbers, end: Numbers) -> KernelResult:
    return KernelResult(np.stack(np.broadcast_arrays(begin, end), axis=-1), fallback=begin >= end)


# -- lengths of periods in units of time, rounded towards zero ----------------------------------------------


def _whole_units_row(length: Period | int, unit_us: int) -> int:
    us = length[1] - length[0] if isinstance(length, tuple) else length
    return us // unit_us if us >= 0 else -(-us // unit_us)


def _whole_units_column(call: KernelCall) -> Strict:
    def units(us: Numbers, unit: Numbers) -> Numbers:
        return us // unit + ((us < 0) & (us % unit != 0))

    def of_period(period: Numbers, unit: Numbers) -> KernelResult:
        length = minus(period[..., 1], period[..., 0])
        return KernelResult(units(length.data, unit), fallback=length.fallback)

    return of_period if call.types[0].kind is Kind.PERIOD else units


RELATIONS: dict[str, ScalarFunction] = {name: _relation(holds) for name, holds in _RELATIONS.items()}

PERIODS: dict[str, ScalarFunction] = {
    "begin": ScalarFunction(
        row=plain(lambda period: period[0]), column=kernel(lambda period: period[..., 0])
    ),
    "end": ScalarFunction(row=plain(lambda period: period[1]), column=kernel(lambda period: period[..., 1])),
    "period": ScalarFunction(row=plain(_period_row), column=kernel(_period_column)),
    "whole_units": ScalarFunction(
        row=plain(_whole_units_row),
        column=_whole_units_column,
        duckdb="(epoch_us({0}) // epoch_us({1}))",
    ),
}
