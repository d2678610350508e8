"""Arithmetic over whole columns. Where a result does not fit, the row is left to the reference.

Whole numbers wrap in NumPy; each kernel finds the rows that did, or might have.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.compute as pc

from slicemill.esl.types.schema import Kind
from slicemill.scalar.calendar_columns import plus_months, timestamp_plus_months
from slicemill.scalar.decimals import exact
from slicemill.scalar.kernel import Bound, Kernel, Maker, Out, Strict, plain
from slicemill.scalar.vectors import Mask, Numbers

_NARROW = (Kind.INT, Kind.MONTHS, Kind.DATE)
_WIDE = (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL)
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_BIGINT_MIN = -(2**63)
# Below 2**63 by more than a product of two rounded doubles can be off.
_SAFE_PRODUCT = 9.22e18
Checked = Callable[[Numbers, Numbers], Out]
_PYTHON: dict[Any, Callable[[int, int], int]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
}


def narrowed(wide: Numbers, unsure: Mask | None = None) -> Out:
    """64 bits to 32."""
    narrow = wide.astype(np.int32)
    beyond = narrow != wide
    return Out(narrow, unsure=beyond if unsure is None else beyond | unsure)


def _in_64_bits(number: Numbers) -> Numbers:
    return number.astype(np.int64, copy=False)


def plus(a: Numbers, b: Numbers) -> Out:
    total = a + b
    return Out(total, unsure=((a ^ total) & (b ^ total)) < 0)


def minus(a: Numbers, b: Numbers) -> Out:
    total = a - b
    return Out(total, unsure=((a ^ b) & (a ^ total)) < 0)


def times(a: Numbers, b: Numbers) -> Out:
    if _within(np.multiply, a, b, np.int64):
        return Out(a * b)
    # An estimate in doubles: some products that just fit are left to the reference, too.
    return Out(a * b, unsure=np.abs(a.astype(np.float64) * b) >= _SAFE_PRODUCT)


def _within(operation: Callable[..., Any], a: Numbers, b: Numbers, dtype: type[np.generic]) -> bool:
    """Whether no result can leave the type, by the least and largest operands: cheaper than tests."""
    if not np.size(a) or not np.size(b):
        return True
    ends = [[int(np.min(side)), int(np.max(side))] for side in (a, b)]
    corners = [_PYTHON[operation](x, y) for x in ends[0] for y in ends[1]]
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    return bool(limits.min <= min(corners) and max(corners) <= limits.max)


def _whole(kind: Kind, operation: Callable[..., Any], checked: Checked) -> Strict | None:
    """Sums, differences and products: without a test where the operands are small, else with one."""
    if kind not in _NARROW + _WIDE:
        return None
    dtype = np.int32 if kind in _NARROW else np.int64

    def compute(a: Numbers, b: Numbers) -> Numbers | Out:
        if _within(operation, a, b, dtype):
            return operation(a, b, dtype=dtype, casting="unsafe")
        out = checked(_in_64_bits(a), _in_64_bits(b))
        return out if kind in _WIDE else narrowed(out.data, out.unsure)

    return compute


def _additive(sign: int) -> Maker:
    on_doubles, on_decimals = (np.add, pc.add) if sign > 0 else (np.subtract, pc.subtract)

    def make(bound: Bound) -> Kernel | Strict | None:
        kind = bound.result.kind
        if kind is Kind.DOUBLE:
            return on_doubles
        if kind is Kind.DECIMAL:
            return exact(on_decimals, bound.result)
        if kind in (Kind.DATE, Kind.TIMESTAMP) and Kind.MONTHS in (bound.types[0].kind, bound.types[1].kind):
            shift = plus_months if kind is Kind.DATE else timestamp_plus_months
            if bound.types[0].kind is Kind.MONTHS:
                return lambda months, time: shift(time, _in_64_bits(months))
            return lambda time, months: shift(time, sign * _in_64_bits(months))
        return _whole(kind, np.add, plus) if sign > 0 else _whole(kind, np.subtract, minus)

    return make


def _multiply(bound: Bound) -> Strict | None:
    kind = bound.result.kind
    if kind is Kind.DOUBLE:
        return np.multiply
    if kind is Kind.DECIMAL:
        return exact(pc.multiply, bound.result)
    if kind is Kind.INTERVAL:
        swapped = bound.types[0].kind is not Kind.INTERVAL
        factor = bound.types[0 if swapped else 1].kind
        if factor is Kind.DOUBLE:
            return lambda a, b: nearest_whole(a.astype(np.float64) * b)
        if factor is Kind.DECIMAL:
            return None
    return _whole(kind, np.multiply, times)


def nearest_whole(number: Numbers) -> Out:
    """Doubles to 64 bits, halves away from zero."""
    whole = np.trunc(number)
    whole = whole + np.where(np.abs(number - whole) >= 0.5, np.sign(number), 0.0)
    return Out(whole.astype(np.int64), unsure=~(np.abs(whole) < 2.0**63))


def _divide(bound: Bound) -> Strict | None:
    kind = bound.result.kind
    if kind is Kind.DOUBLE:
        return lambda a, b: Out(np.divide(a, b), unsure=b == 0)
    if kind is not Kind.INTERVAL or bound.types[1].kind is Kind.DECIMAL:
        return None
    if bound.types[1].kind is Kind.DOUBLE:

        def by_double(us: Numbers, divisor: Numbers) -> Out:
            return nearest_whole(us.astype(np.float64) / divisor).doubting(divisor == 0)

        return by_double
    return _interval_by_whole


def _interval_by_whole(us: Numbers, divisor: Numbers) -> Out:
    """To the nearest microsecond, halves away from zero."""
    by = _in_64_bits(divisor)
    size, parts = np.abs(us), np.abs(by)
    quotient, rest = np.divmod(size, parts)
    quotient = quotient + (rest >= parts - rest)
    signed = np.where((us < 0) == (by < 0), quotient, -quotient)
    return Out(signed, unsure=(by == 0) | (us == _BIGINT_MIN) | (by == _BIGINT_MIN))


def _whole_division(bound: Bound) -> Strict | None:
    if any(type_.kind not in (Kind.INT, Kind.BIGINT) for type_ in bound.types):
        return None

    def divide(a: Numbers, b: Numbers) -> Out:
        a, b = _in_64_bits(a), _in_64_bits(b)
        unsure = (b == 0) | ((a == _BIGINT_MIN) & (b == -1))
        floor = np.floor_divide(a, b)
        # Towards zero: one more where the floor is below a quotient that is not whole.
        return Out(floor + ((floor < 0) & (floor * b != a)), unsure=unsure)

    return divide


def _remainder(bound: Bound) -> Strict | None:
    if bound.result.kind is Kind.DECIMAL:
        return None
    return lambda a, b: Out(np.fmod(a, b), unsure=b == 0)


def _positive_remainder(bound: Bound) -> Strict | None:
    if bound.result.kind is Kind.DECIMAL:
        return None

    def positive(a: Numbers, b: Numbers) -> Out:
        first = np.fmod(a, b)
        return Out(np.where(first < 0, np.fmod(first + b, b), first), unsure=b == 0)

    return positive


def _unary(on_numbers: Strict, on_decimals: Callable[..., Any]) -> Maker:
    """For - and abs: the least whole number has no counterpart."""

    def make(bound: Bound) -> Strict | None:
        kind = bound.result.kind
        if kind is Kind.DECIMAL:
            return exact(on_decimals, bound.result)
        if kind is Kind.DOUBLE:
            return on_numbers
        if kind not in _NARROW + _WIDE:
            return None
        least = _INT_MIN if kind in _NARROW else _BIGINT_MIN
        return lambda number: Out(on_numbers(number), unsure=number == least)

    return make


def _shift(function: Strict) -> Maker:
    def make(bound: Bound) -> Strict:
        width = 31 if bound.result.kind is Kind.INT else 63
        return lambda number, by: function(number, (by & width).astype(number.dtype))

    return make


def _bit_count(number: Numbers) -> Numbers:
    return np.bitwise_count(_in_64_bits(number).view(np.uint64)).astype(np.int32)


ARITHMETIC: dict[str, Maker] = {
    "+": _additive(1),
    "-": _additive(-1),
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "div": _whole_division,
    "pmod": _positive_remainder,
    "&": plain(np.bitwise_and),
    "|": plain(np.bitwise_or),
    "^": plain(np.bitwise_xor),
    "~": plain(np.invert),
    "negative": _unary(np.negative, pc.negate),
    "abs": _unary(np.abs, pc.abs),
    "shiftleft": _shift(np.left_shift),
    "shiftright": _shift(np.right_shift),
    "bit_count": plain(_bit_count),
}
