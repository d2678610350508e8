"""Kernels of decimal functions: arithmetic on columns of 64-bit integers.

Rows with more digits are left to the row function, which is plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.functions.kernel import Fallback, KernelResult
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Bools
from slicemill.kernels.kernel import kernel
from slicemill.types import MAX_DECIMAL_PRECISION, Kind, Type

NARROW = 18  # decimals of this precision always fit into 64 bits


def digits_of(array: pa.Array) -> tuple[NDArray[np.int64], Bools]:
    """Return the unscaled 64-bit integer of each decimal, and an overflow mask."""
    rows = len(array)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    words = np.frombuffer(buffer, np.int64, 2 * rows, 16 * array.offset).reshape(rows, 2)
    return words[:, 0], words[:, 1] != words[:, 0] >> 63


def from_unscaled(digits: NDArray[np.int64], type_: Type) -> pa.Array:
    words = np.empty((len(digits), 2), np.int64)
    words[:, 0] = digits
    words[:, 1] = digits >> 63
    return pa.Array.from_buffers(arrow_type(type_), len(digits), [None, pa.py_buffer(words)])


def exact(function: Callable[..., Any], result: Type) -> Callable[..., Any] | None:
    """Return an Arrow operation on decimals that never rounds.

    The kernel falls back to the row function if Arrow's result type is not `result`, or if Arrow overflows.
    """
    wanted = arrow_type(result)

    def compute(*operands: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        try:
            found = function(*operands)
        except pa.ArrowInvalid:
            raise Fallback from None
        if found.type != wanted:
            raise Fallback
        return found

    return compute


# -- arithmetic on unscaled 64-bit integers -----------------------------------------------------------------


def round_column(source: Type, result: Type, places: int) -> Callable[..., KernelResult] | None:
    """Return a kernel that rounds decimals to `places`, halves away from zero."""
    dropped = (source.scale or 0) - places
    if not 0 <= dropped <= NARROW or places != result.scale:
        return None
    power, limit = 10**dropped, 10 ** min(result.precision or 0, NARROW)

    def nearest(value: pa.Array, *_constants: Any) -> KernelResult:
        digits, wide = digits_of(value)
        size = np.abs(digits)
        whole = size // power
        whole += size - whole * power >= power - power // 2
        found = from_unscaled(np.where(digits < 0, -whole, whole), result)
        return KernelResult(found, fallback=wide | (whole >= limit) | (size < 0))

    return nearest


def whole_column(source: Type, result: Type, up: bool) -> Callable[..., KernelResult] | None:
    """Return a kernel for CEIL (`up`) or FLOOR of decimals."""
    if (source.scale or 0) > NARROW or result.scale:
        return None
    power, limit = 10 ** (source.scale or 0), 10 ** min(result.precision or 0, NARROW)

    def whole(value: pa.Array) -> KernelResult:
        digits, wide = digits_of(value)
        found = -(-digits // power) if up else digits // power
        return KernelResult(from_unscaled(found, result), fallback=wide | (np.abs(found) >= limit))

    return whole


def _align_scales(left: Type, right: Type) -> Callable[[pa.Array, pa.Array], tuple[Any, Any, Bools]] | None:
    """Return a function that aligns the scales of two columns.

    The function also returns a mask of rows that overflow, or whose divisor is 0.
    """
    scale = max(left.scale or 0, right.scale or 0)
    more = [scale - (type_.scale or 0) for type_ in (left, right)]
    if max(more) > NARROW:
        return None

    def align(a: pa.Array, b: pa.Array) -> tuple[Any, Any, Bools]:
        sides, bad = [], np.asarray(False)
        for value, places in zip((a, b), more, strict=True):
            digits, wide = _digits(value)
            bad = bad | wide | (np.abs(digits) >= 2**62 // 10**places) | (digits == _LEAST)
            sides.append(digits * 10**places)
        bad = bad | (sides[1] == 0)
        return sides[0], np.where(sides[1] == 0, 1, sides[1]), bad

    return align


_LEAST = -(2**63)


def _digits(value: pa.Array | pa.Scalar) -> tuple[NDArray[np.int64], Bools]:
    return digits_of(pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value)


def remainder_column(
    types: tuple[Type, ...], result: Type, positive: bool
) -> Callable[..., KernelResult] | None:
    """Return a kernel for MOD of decimals, or PMOD (`positive`)."""
    align = _align_scales(*types)
    if align is None or result.scale != max(type_.scale or 0 for type_ in types):
        return None

    limit = 10 ** min(result.precision or 0, NARROW)

    def remainder(a: pa.Array, b: pa.Array) -> KernelResult:
        left, right, bad = align(a, b)
        found = np.fmod(left, right)
        if positive:
            found = np.where(found < 0, np.fmod(found + right, right), found)
            bad = bad | (np.abs(found) >= limit)
        return KernelResult(from_unscaled(found, result), fallback=bad)

    return remainder


def div_column(types: tuple[Type, ...]) -> Callable[..., KernelResult] | None:
    """Return a kernel for DIV of decimals, which rounds towards zero."""
    align = _align_scales(*types)
    if align is None:
        return None

    def divide(a: pa.Array, b: pa.Array) -> KernelResult:
        left, right, bad = align(a, b)
        size = np.abs(left) // np.abs(right)
        return KernelResult(np.where((left < 0) == (right < 0), size, -size), fallback=bad)

    return divide


@kernel
def _quotients(
    left: NDArray[np.int64], right: NDArray[np.int64], places: int, limit: float, largest: float
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Divide decimals in 128 bits, rounding halves away from zero.

    Return left * 10**places / right, and a mask of rows for the row function. Divisors must be less than
    `largest`, quotients less than `limit`.
    """
    rows = len(left)
    found, bad = np.zeros((rows, 2), np.uint64), np.zeros(rows, np.bool_)
    ten = 10.0**places
    mask = np.uint64(0xFFFF_FFFF)
    shift = np.uint64(32)
    for i in range(rows):
        divisor = abs(right[i])
        size = abs(left[i])
        if divisor <= 0 or size < 0 or divisor >= largest or size * ten >= limit * divisor:
            bad[i] = True
            continue
        digits = 1
        factor = np.int64(10)
        while digits < 9 and divisor <= 900_000_000_000_000_000 // (factor * 10):
            digits += 1
            factor *= 10
        quotient = size // divisor
        rest = size - quotient * divisor
        low, high = np.uint64(quotient), np.uint64(0)
        left_over = places
        while left_over > 0:
            while left_over < digits:
                digits -= 1
                factor //= 10
            by = np.uint64(factor)
            part = rest * factor // divisor
            rest = rest * factor - part * divisor
            # The quotient so far times the factor, plus the next digits.
            bottom = (low & mask) * by + np.uint64(part)
            top = (low >> shift) * by + (bottom >> shift)
            low = (bottom & mask) | (top << shift)
            high = high * by + (top >> shift)
            left_over -= digits
        if rest >= divisor - rest:
            low += np.uint64(1)
            if low == 0:
                high += np.uint64(1)
        if (left[i] < 0) != (right[i] < 0):
            low, high = ~low + np.uint64(1), ~high
            if low == 0:
                high += np.uint64(1)
        found[i, 0], found[i, 1] = low, high
    return found, bad


def quotient_column(types: tuple[Type, ...], result: Type) -> Callable[..., KernelResult] | None:
    """Return a kernel for quotients of decimals.

    The row function rounds twice, first to 39 places. The kernel rounds once. The results are equal if the
    divisor has few digits, because then no quotient is close enough to a tie.
    """
    scale = result.scale or 0
    places = scale - (types[0].scale or 0) + (types[1].scale or 0)
    if not 0 <= places <= MAX_DECIMAL_PRECISION:
        return None
    largest = 10.0 ** min(MAX_DECIMAL_PRECISION - scale, NARROW - 1)
    limit = 10.0 ** min(result.precision or 0, MAX_DECIMAL_PRECISION - 1) * (1 - 1e-9)

    def divide(a: pa.Array, b: pa.Array) -> KernelResult:
        (left, wide), (right, wide_too) = _digits(a), _digits(b)
        rows = max(len(left), len(right))
        found, bad = _quotients(
            np.ascontiguousarray(np.broadcast_to(left, rows)),
            np.ascontiguousarray(np.broadcast_to(right, rows)),
            places,
            limit,
            largest,
        )
        data = pa.Array.from_buffers(arrow_type(result), rows, [None, pa.py_buffer(found)])
        return KernelResult(data, fallback=bad | wide | wide_too)

    return divide


def texts_column(source: Type) -> Callable[[pa.Array], pa.Array] | None:
    """Return a kernel that formats decimals, or None if Arrow would write exponents.

    Arrow writes small decimals of many places in exponent notation.
    """
    if source.kind is not Kind.DECIMAL or (source.scale or 0) > _PLAIN_PLACES:
        return None
    return lambda value: value.cast(pa.string())


_PLAIN_PLACES = 6
