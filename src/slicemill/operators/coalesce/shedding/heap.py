"""Compiled heap of candidates, ordered by cost, then by tie.

Each push has an entry number. Only the latest entry of a fragment is valid.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

TIE, ENTRY, FRAGMENT, SLOT = range(4)


@kernel
def _less(costs: Floats, heap: Ints, left: int, right: int) -> bool:
    if costs[left] != costs[right]:
        return bool(costs[left] < costs[right])
    return bool(heap[left, TIE] < heap[right, TIE])


@kernel
def _swap(costs: Floats, heap: Ints, left: int, right: int) -> None:
    costs[left], costs[right] = costs[right], costs[left]
    for column in range(4):
        heap[left, column], heap[right, column] = heap[right, column], heap[left, column]


@kernel
def sift_down(costs: Floats, heap: Ints, count: int, place: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= count:
            return
        if child + 1 < count and _less(costs, heap, child + 1, child):
            child += 1
        if not _less(costs, heap, child, place):
            return
        _swap(costs, heap, child, place)
        place = child


@kernel
def push(
    costs: Floats, heap: Ints, count: int, cost: float, tie: int, entry: int, fragment: int, slot: int
) -> int:
    """Add an entry. Return the new number of entries."""
    costs[count] = cost
    heap[count, TIE], heap[count, ENTRY], heap[count, FRAGMENT], heap[count, SLOT] = (
        tie,
        entry,
        fragment,
        slot,
    )
    place = count
    while place > 0 and _less(costs, heap, place, (place - 1) // 2):
        _swap(costs, heap, place, (place - 1) // 2)
        place = (place - 1) // 2
    return count + 1


@kernel
def pop(costs: Floats, heap: Ints, count: int) -> int:
    """Remove the first entry. Return the new number of entries."""
    _swap(costs, heap, 0, count - 1)
    sift_down(costs, heap, count - 1, 0)
    return count - 1


@kernel
def tidy(costs: Floats, heap: Ints, count: int, valid: Ints) -> int:
    """Remove entries that are not the latest of their fragment."""
    kept = 0
    for place in range(count):
        if valid[heap[place, FRAGMENT]] == heap[place, ENTRY]:
            costs[kept] = costs[place]
            heap[kept] = heap[place]
            kept += 1
    for place in range(kept // 2 - 1, -1, -1):
        sift_down(costs, heap, kept, place)
    return kept
