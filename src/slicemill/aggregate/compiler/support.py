"""Runtime support of generated code: pool allocation and checked arithmetic.

A pool has the rows of one table for all partitions, each in a block of `room` rows that starts at `begin`.
Its `n` rows start at `at`; removing the oldest row increments `at`. In a ring, `at` counts from `begin`, and
the block's last row is followed by its first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slicemill.columns.sorting import sort_by
from slicemill.machine_code.kernel import helper, kernel

MIN_INT, MAX_INT = -(2**31), 2**31 - 1
MIN_BIGINT, MAX_BIGINT = np.int64(-(2**63)), np.int64(2**63 - 1)


@helper
def more_room(pool: Any, top: Any, begin: Any, at: Any, n: Any, room: Any, p: int) -> Any:
    """Return the pool with free space after the rows of partition p.

    Rows move to the front of their block if they fill at most half of it, else to a block of twice the size.
    If the pool is full, all blocks are compacted into a new pool. In each case as many rows have been added
    as are copied, so a row is copied only a few times.
    """
    if 2 * n[p] > room[p] or room[p] == 0:
        wanted = 2 * n[p] + 4
        if top[0] + wanted > len(pool):
            return _packed(pool, top, begin, at, n, room, p)
        begin[p], room[p] = top[0], wanted
        top[0] += wanted
    for i in range(n[p]):
        pool[begin[p] + i] = pool[at[p] + i]
    at[p] = begin[p]
    return pool


@helper
def _packed(pool: Any, top: Any, begin: Any, at: Any, n: Any, room: Any, p: int) -> Any:
    wanted = 0
    for j in range(len(at)):
        if n[j] > 0 or j == p:
            wanted += 2 * n[j] + 4
    new = np.zeros(wanted + wanted // 2, pool.dtype)
    top[0] = 0
    for j in range(len(at)):
        size = 2 * n[j] + 4 if n[j] > 0 or j == p else 0
        for i in range(n[j]):
            new[top[0] + i] = pool[at[j] + i]
        begin[j], at[j], room[j] = top[0], top[0], size
        top[0] += size
    return new


@helper
def ring_room(pool: Any, top: Any, begin: Any, at: Any, n: Any, room: Any, p: int, most: int) -> Any:
    """Like `more_room`, for rings of at most `most` rows.

    A block of that size never grows.
    """
    wanted = min(2 * n[p] + 4, most)
    first, last, new = p, p + 1, pool
    if top[0] + wanted > len(pool):
        first, last = 0, len(at)
        for j in range(len(at)):
            wanted += min(2 * n[j] + 4, most) if n[j] > 0 else 0
        new = np.zeros(wanted + wanted // 2, pool.dtype)
        top[0] = 0
    for j in range(first, last):
        size = min(2 * n[j] + 4, most) if n[j] > 0 or j == p else 0
        for i in range(n[j]):
            place = at[j] + i
            new[top[0] + i] = pool[begin[j] + (place if place < room[j] else place - room[j])]
        begin[j], at[j], room[j] = top[0], 0, size
        top[0] += size
    return new


@helper
def longer(array: Any) -> Any:
    """Return the array, extended to twice its length."""
    new = np.empty(2 * len(array) + 16, array.dtype)
    # A loop, because Numba takes eight times as long to compile a slice assignment.
    for i in range(len(array)):
        new[i] = array[i]
    return new


@kernel
def count_from(numbers: Any, first: int) -> None:
    for i in range(len(numbers)):
        numbers[i] = first + i


@kernel
def product_overflows(a: Any, b: Any) -> Any:
    """Return True if a * b overflows 64 bits."""
    if a == 0 or b == 0:
        return False
    if a == MIN_BIGINT or b == MIN_BIGINT:
        return not (a == 1 or b == 1)
    return abs(a) > MAX_BIGINT // abs(b)


@kernel
def whole_quotient(a: Any, b: Any) -> Any:
    """Divide, rounding towards zero.

    `b` must not be 0, and not -1 if `a` is the smallest integer.
    """
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


@kernel
def whole_remainder(a: Any, b: Any) -> Any:
    """Return the remainder with the sign of a.

    `b` must not be 0.
    """
    if b == -1 or b == 1:
        return np.int64(0)
    return np.int64(a - whole_quotient(a, b) * b)


@kernel
def double_remainder(a: float, b: float) -> float:
    return np.nan if np.isinf(a) or np.isnan(a) or np.isnan(b) else np.fmod(a, b)


@kernel
def sorted_by(order: Any, keys: Any) -> Any:
    """Sort rows by a further key; the sort is stable."""
    new = order.copy()
    sort_by(new, keys, 0, len(new))
    return new
