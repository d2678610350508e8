"""Exact accumulator of doubles for compiled code.

It is an integer of 32-bit `limbs` that covers the range from the smallest to beyond the greatest double. Each
limb is an int64, so that carries are propagated only when the sum is read. Three more cells count infinities
and NaNs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slicemill.aggregate.exact import limbs
from slicemill.machine_code.kernel import kernel

DIGITS = 68
LOWEST = -1074  # the power of two of the lowest bit
_MASK = 0xFFFFFFFF
CELLS = DIGITS + 3
PLUS, MINUS, NAN = DIGITS, DIGITS + 1, DIGITS + 2


@kernel
def add(sums: Any, x: float) -> None:
    if not np.isfinite(x):
        sums[NAN if x != x else PLUS if x > 0 else MINUS] += 1
        return
    if x == 0.0:
        return
    fraction, exponent = math.frexp(abs(x))
    low = exponent - 53
    if low < -1074:  # a subnormal number has fewer bits
        fraction, low = math.ldexp(fraction, exponent + 1074 - 53), -1074
    whole = np.int64(math.ldexp(fraction, 53))
    place, shift = divmod(low - LOWEST, 32)
    first = np.uint64(whole & _MASK) << np.uint64(shift)
    second = np.int64(whole >> 32) << shift
    sign = 1 if x > 0 else -1
    sums[place] += sign * np.int64(first & np.uint64(_MASK))
    sums[place + 1] += sign * (np.int64(first >> np.uint64(32)) + (second & _MASK))
    sums[place + 2] += sign * (second >> 32)


@kernel
def add_integer(sums: Any, x: int) -> None:
    add(sums, float(x >> 32) * 4294967296.0)
    add(sums, float(x & _MASK))


@kernel
def quotient(sums: Any, count: int) -> float:
    """Return the sum over `count` (at most 2**32), rounded once."""
    if sums[NAN] > 0 or (sums[PLUS] > 0 and sums[MINUS] > 0):
        return np.nan
    if sums[PLUS] > 0 or sums[MINUS] > 0:
        return np.inf if sums[PLUS] > 0 else -np.inf
    number = np.empty(DIGITS, np.uint32)
    carry = np.int64(0)
    for i in range(DIGITS):
        carry += sums[i]
        number[i] = carry & _MASK
        carry >>= 32
    if carry < 0:
        limbs.negate(number)
    value = limbs.rounded(number, count, 1, 1, LOWEST, np.empty(DIGITS + limbs.SPARE, np.uint32))
    return -value if carry < 0 else value
