"""Sums of doubles without rounding, so that sum and avg round once, as the reference does.

An accumulator is a number of 32-bit digits, each in an int64 so that carries can wait. Its lowest digit is
below the smallest double, so that a quotient still knows on which side of a half it lies. Two more cells
count infinities and NaNs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

DIGITS = 70
LOWEST = -1074 - 32  # the power of two of the lowest bit
_MASK = 0xFFFFFFFF
CELLS = DIGITS + 3
PLUS, MINUS, NAN = DIGITS, DIGITS + 1, DIGITS + 2


@njit(cache=True)
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


@njit(cache=True)
def add_whole(sums: Any, x: int) -> None:
    add(sums, float(x >> 32) * 4294967296.0)
    add(sums, float(x & _MASK))


@njit(cache=True)
def quotient(sums: Any, count: int) -> float:
    """The sum over `count` (at most 2**31), rounded once to the nearest double."""
    if sums[NAN] > 0 or (sums[PLUS] > 0 and sums[MINUS] > 0):
        return np.nan
    if sums[PLUS] > 0 or sums[MINUS] > 0:
        return np.inf if sums[PLUS] > 0 else -np.inf
    digits = sums[:DIGITS].copy()
    _carry(digits)
    sign = 1.0
    if digits[DIGITS - 1] < 0:
        sign = -1.0
        for i in range(DIGITS):
            digits[i] = -digits[i]
        _carry(digits)
    rest = np.int64(0)
    for i in range(DIGITS - 1, -1, -1):
        cell = (rest << 32) | digits[i]
        digits[i] = cell // count
        rest = cell - digits[i] * count
    return sign * _nearest(digits, rest != 0)


@njit(cache=True)
def _carry(digits: Any) -> None:
    for i in range(DIGITS - 1):
        digits[i + 1] += digits[i] >> 32
        digits[i] &= _MASK


@njit(cache=True)
def _nearest(digits: Any, more: bool) -> float:
    """The double nearest to a whole number of 2**LOWEST, and `more` if it is a little above."""
    top = DIGITS - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    length = 32 * top
    head = digits[top]
    while head > 0:
        length += 1
        head >>= 1
    low = max(length - 53, 32)
    whole = np.int64(0)
    for bit in range(length - 1, low - 1, -1):
        whole = (whole << 1) | ((digits[bit // 32] >> (bit % 32)) & 1)
    half = (digits[(low - 1) // 32] >> ((low - 1) % 32)) & 1
    if half:
        beyond = more or (digits[(low - 1) // 32] & ((1 << ((low - 1) % 32)) - 1)) != 0
        for i in range((low - 1) // 32):
            beyond = beyond or digits[i] != 0
        if beyond or whole & 1:
            whole += 1
    return math.ldexp(float(whole), low + LOWEST)
