"""Compiled loops that sort results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from slicemill.machine_code.kernel import kernel
from slicemill.operators.join.arrays import Places, Times, places_in, places_out
from slicemill.operators.join.loops import loop

_RUN = 16  # up to this length insertion is faster than merging

_numbers_in = types.Array(types.int64, 2, "C", readonly=True)


@kernel(inline="always")
def _after(numbers: Any, one: Any, other: Any) -> Any:
    for side in range(numbers.shape[0]):
        if numbers[side, one] != numbers[side, other]:
            return numbers[side, one] > numbers[side, other]
    return False


@kernel
def _sort(order: Any, other: Any, numbers: Any, start: Any, end: Any) -> None:
    """Sort order[start:end] by the rows of `numbers`, first row first."""
    sorted_ = True
    for place in range(start + 1, end):
        if _after(numbers, order[place - 1], order[place]):
            sorted_ = False
            break
    if sorted_:
        return
    for low in range(start, end, _RUN):
        for place in range(low + 1, min(low + _RUN, end)):
            row = order[place]
            before = place - 1
            while before >= low and _after(numbers, order[before], row):
                order[before + 1] = order[before]
                before -= 1
            order[before + 1] = row
    width = _RUN
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            left, right = low, middle
            for place in range(low, high):
                if right == high or (left < middle and not _after(numbers, order[left], order[right])):
                    other[place] = order[left]
                    left += 1
                else:
                    other[place] = order[right]
                    right += 1
        for place in range(start, end):
            order[place] = other[place]
        width *= 2


@loop(types.void(places_in, types.int64, _numbers_in, places_out))
def order_by_cause(causes: Places, total: int, numbers: Times, order: Places) -> None:
    """Sort results by cause, and results of one cause by all row numbers.

    `total` is the number of causes. `numbers` has one array row per stream, with the row numbers of that
    stream.
    """
    ends = np.zeros(total + 1, np.int64)
    for cause in causes:
        ends[cause + 1] += 1
    for cause in range(total):
        ends[cause + 1] += ends[cause]
    for place in range(len(causes)):
        cause = causes[place]
        order[ends[cause]] = place
        ends[cause] += 1
    other = np.empty(len(causes), np.int32)
    start = np.int64(0)
    for cause in range(total):
        if ends[cause] - start > 1:
            _sort(order, other, numbers, start, ends[cause])
        start = ends[cause]
