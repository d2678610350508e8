"""What generated code calls: room in pools of rows, and arithmetic whose result may be no number of its type.

A pool holds the rows of one table for all partitions, each partition's in a block: `at` is where the block
begins, `n` how many rows are in it, `room` how many it can take. The oldest row leaves by moving `at` on.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import njit

MIN_INT, MAX_INT = -(2**31), 2**31 - 1
MIN_BIGINT, MAX_BIGINT = np.int64(-(2**63)), np.int64(2**63 - 1)


@njit(cache=True)
def more_room(pool: Any, top: Any, at: Any, n: Any, room: Any, p: int) -> Any:
    """A pool in which partition p has room for as many rows again.

    Where the pool is used up, the blocks of all partitions move to a new one, closely packed: that costs as
    much as the rows that were added since the last time, so a row is moved a few times in its life.
    """
    wanted = 2 * n[p] + 4
    if top[0] + wanted > len(pool):
        packed = wanted
        for j in range(len(at)):
            if n[j] > 0:
                packed += 2 * n[j] + 4
        new = np.zeros(packed + packed // 2, pool.dtype)  # flags for NULL are only set where one can be
        end = 0
        for j in range(len(at)):
            if n[j] > 0:
                for i in range(n[j]):
                    new[end + i] = pool[at[j] + i]
                at[j], room[j] = end, 2 * n[j] + 4
                end += room[j]
            else:
                at[j], room[j] = 0, 0
        top[0] = end
        if room[p] > n[p]:
            return new
        pool = new
    for i in range(n[p]):
        pool[top[0] + i] = pool[at[p] + i]
    at[p], room[p] = top[0], wanted
    top[0] += wanted
    return pool


@njit(cache=True)
def longer(array: Any) -> Any:
    """The array with room for as much again."""
    new = np.empty(2 * len(array) + 16, array.dtype)
    new[: len(array)] = array
    return new


@njit(cache=True)
def product_overflows(a: Any, b: Any) -> Any:
    """Whether a * b has no 64 bits."""
    if a == 0 or b == 0:
        return False
    if a == MIN_BIGINT or b == MIN_BIGINT:
        return not (a == 1 or b == 1)
    return abs(a) > MAX_BIGINT // abs(b)


@njit(cache=True)
def whole_quotient(a: Any, b: Any) -> Any:
    """Rounded towards zero; b is not 0, and not -1 where a is the smallest number."""
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


@njit(cache=True)
def whole_remainder(a: Any, b: Any) -> Any:
    """With the sign of a; b is not 0."""
    if b == -1 or b == 1:
        return np.int64(0)
    return np.int64(a - whole_quotient(a, b) * b)


@njit(cache=True)
def double_remainder(a: float, b: float) -> float:
    return np.nan if np.isinf(a) or np.isnan(a) or np.isnan(b) else np.fmod(a, b)


@njit(cache=True)
def sorted_by(order: Any, keys: Any) -> Any:
    """An order of rows, further sorted by a key; rows with equal keys stay as they were."""
    return order[np.argsort(keys[order], kind="mergesort")]


# For generated code that runs as Python: the rows of its pools may hold any object.
plain = SimpleNamespace(
    **{name: value for name, value in globals().items() if not name.startswith("_")}
    | {"more_room": more_room.py_func, "longer": longer.py_func}
)
