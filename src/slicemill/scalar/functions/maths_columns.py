"""Rounding and functions of real numbers over whole columns.

Results are equal to the reference's bit by bit: the functions are those of the C library, which Arrow calls
as Python does (NumPy has its own, which differ in the last bit), and arguments on which Java and C disagree
are left to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.esl.types.schema import Kind
from slicemill.scalar.kernel import Bound, Maker, Out, Strict, plain
from slicemill.scalar.vectors import Numbers, numbers

_EXACT_DOUBLE = 2.0**53
_LARGEST_POWER = 15  # places up to which a power of ten and its multiples are exact doubles


def on_doubles(function: Callable[..., Any], *arguments: Numbers) -> Numbers:
    """One of Arrow's functions on NumPy's numbers."""
    found = function(*(pa.scalar(float(a)) if np.ndim(a) == 0 else pa.array(a) for a in arguments))
    return np.float64(found.as_py()) if isinstance(found, pa.Scalar) else numbers(found)


def _as_in_c(function: Callable[..., Any]) -> Maker:
    return plain(lambda number: on_doubles(function, number))


def _logarithm(function: Callable[..., Any]) -> Maker:
    """NULL for what has no logarithm."""
    return plain(lambda number: Out(on_doubles(function, number), null=number <= 0))


def _log(bound: Bound) -> Strict | None:
    if len(bound.types) == 1:
        return lambda number: Out(on_doubles(pc.ln, number), null=number <= 0)

    def to_base(base: Numbers, number: Numbers) -> Out:
        found = on_doubles(pc.ln, number) / on_doubles(pc.ln, base)
        odd = (base == 1) | np.isinf(base) | np.isinf(number)
        return Out(found, null=(base <= 0) | (number <= 0), unsure=odd)

    return to_base


def _power(base: Numbers, exponent: Numbers) -> Out:
    found = on_doubles(pc.power, base, exponent)
    return Out(found, unsure=~np.isfinite(found) | ~np.isfinite(exponent) | (base == 0))


def _ceil_or_floor(function: Strict) -> Maker:
    def make(bound: Bound) -> Strict | None:
        if bound.types[0].kind is Kind.DECIMAL:
            return None
        if bound.types[0].kind is not Kind.DOUBLE:
            return lambda number: number.astype(np.int64)

        def whole(number: Numbers) -> Out:
            rounded = function(number)
            return Out(rounded.astype(np.int64), unsure=~(np.abs(rounded) < 2.0**63))

        return whole

    return make


def _round(bound: Bound) -> Strict | None:
    places = bound.constant(1, default=0)
    if not isinstance(places, int) or not 0 <= places <= _LARGEST_POWER:
        return None
    if bound.result.kind in (Kind.INT, Kind.BIGINT):
        return lambda number, *_places: number
    if bound.result.kind is not Kind.DOUBLE:
        return None
    power = 10.0**places

    def nearest(number: Numbers, *_places: Numbers) -> Out:
        size = np.abs(number) * power
        whole = np.rint(size)
        rounded = np.copysign(whole / power, number)
        # Near a tie the shortest text of the number decides, which the reference reads.
        tie = np.abs(size - np.trunc(size) - 0.5) < 1e-4
        return Out(rounded, unsure=tie | ~(size < _EXACT_DOUBLE / 1e4))

    return nearest


def _sign(number: Numbers) -> Numbers:
    return np.where((number == 0) | np.isnan(number), number, np.copysign(1.0, number))


def _atan2(y: Numbers, x: Numbers) -> Numbers:
    return on_doubles(pc.atan2, y + 0.0, x + 0.0)


def _scaled(factor: float) -> Maker:
    return plain(lambda number: number * factor)


MATH: dict[str, Maker] = {
    "acos": _as_in_c(pc.acos),
    "asin": _as_in_c(pc.asin),
    "atan": _as_in_c(pc.atan),
    "atan2": plain(_atan2),
    "ceil": _ceil_or_floor(np.ceil),
    "ceiling": _ceil_or_floor(np.ceil),
    "cos": _as_in_c(pc.cos),
    "degrees": _scaled(180.0 / np.pi),
    "exp": _as_in_c(pc.exp),
    "floor": _ceil_or_floor(np.floor),
    "ln": _logarithm(pc.ln),
    "log": _log,
    "log10": _logarithm(pc.log10),
    "log2": _logarithm(pc.log2),
    "pow": plain(_power),
    "power": plain(_power),
    "radians": _scaled(np.pi / 180.0),
    "round": _round,
    "sign": plain(_sign),
    "sin": _as_in_c(pc.sin),
    "sqrt": plain(np.sqrt),
    "tan": _as_in_c(pc.tan),
}
