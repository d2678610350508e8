"""Stable sort for compiled loops.

The order is that of `np.argsort`, which takes seven times as long to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slicemill.machine_code.kernel import kernel

_RUN = 16  # rows up to which insertion is faster than merging


@kernel
def sort_by(order: Any, keys: Any, start: int, end: int) -> None:
    """Sort order[start:end] by keys[order[…]], stable and with NaN last."""
    for low in range(start, end, _RUN):
        for place in range(low + 1, min(low + _RUN, end)):
            row = order[place]
            key = keys[row]
            before = place - 1
            while before >= low and _after(keys[order[before]], key):
                order[before + 1] = order[before]
                before -= 1
            order[before + 1] = row
    width = _RUN
    if end - start <= width:
        return
    other = np.empty(end - start, order.dtype)
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            left, right = low, middle
            for place in range(low, high):
                if right == high or (left < middle and not _after(keys[order[left]], keys[order[right]])):
                    other[place - start] = order[left]
                    left += 1
                else:
                    other[place - start] = order[right]
                    right += 1
        for place in range(start, end):
            order[place] = other[place - start]
        width *= 2


@kernel(inline="always")
def _after(a: Any, b: Any) -> Any:
    """Return True if a sorts after b.

    NaN, which does not equal itself, sorts last.
    """
    return a > b or (a != a and b == b)
