"""min, max, min_by, max_by, first, last and priority_sample: which row of a window is the one.

The candidates of a window are kept in a queue, each beaten by the one before it, so that the first one wins
(C17): a new row drives out those that it beats, and the first leaves when the window has passed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from slicemill.aggregate.columns import History, Mask, Places, Rows, Windows, known, whole_numbers
from slicemill.aggregate.count import priorities
from slicemill.scalar.vectors import numbers


@njit(cache=True)
def _winners(ranks: Places, takes_part: Mask, starts: Places, ends: Places) -> Places:
    """The row of the greatest rank in each window, of equal ones the first; -1 if there is none."""
    out = np.empty(len(starts), np.int64)
    queue = np.empty(len(ranks), np.int64)
    first = behind = end = 0
    for i in range(len(starts)):
        while end < ends[i]:
            if takes_part[end]:
                while behind > first and ranks[queue[behind - 1]] < ranks[end]:
                    behind -= 1
                queue[behind] = end
                behind += 1
            end += 1
        while first < behind and queue[first] < starts[i]:
            first += 1
        out[i] = queue[first] if first < behind else -1
    return out


Choice = Callable[[Rows, Windows], Places]


def ranks_of(array: pa.Array) -> Places:
    """Whole numbers in the order of the values; NaN is the greatest double. Those of NULLs are arbitrary."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = np.where(numbers(array) == 0, 0.0, numbers(array))
        bits = np.where(np.isnan(values), np.inf, values).view(np.int64)
        # The bits of doubles are ordered as they are, for negative ones the other way round.
        ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        return np.where(np.isnan(values), np.iinfo(np.int64).max, ordered)
    if pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        return whole_numbers(array)
    encoded = array.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.zeros(max(1, len(order)), np.int64)
    rank[order] = np.arange(len(order))
    return rank[np.where(known(array), numbers(encoded.indices.fill_null(0)), 0)]


def _greatest(rows: Rows, windows: Windows) -> Places:
    key = rows.arguments[-1]
    return _winners(ranks_of(key), known(key), windows.starts, windows.ends)


def _least(rows: Rows, windows: Windows) -> Places:
    key = rows.arguments[-1]
    return _winners(~ranks_of(key), known(key), windows.starts, windows.ends)


def _oldest(rows: Rows, windows: Windows) -> Places:  # noqa: ARG001
    return np.where(windows.ends > windows.starts, windows.starts, -1)


def _newest(rows: Rows, windows: Windows) -> Places:  # noqa: ARG001
    return np.where(windows.ends > windows.starts, windows.ends - 1, -1)


def _sampled(rows: Rows, windows: Windows) -> Places:
    assert rows.numbers is not None
    # Priorities have 64 bits without a sign.
    ranks: NDArray[np.int64] = (priorities(rows.numbers) ^ np.uint64(2**63)).view(np.int64)
    return _winners(ranks, np.ones(len(rows), np.bool_), windows.starts, windows.ends)


CHOICES: dict[str, Choice] = {
    "min": _least,
    "max": _greatest,
    "min_by": _least,
    "max_by": _greatest,
    "first": _oldest,
    "last": _newest,
    "priority_sample": _sampled,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """The first argument of the row that wins."""

    choice: Choice

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        places = self.choice(rows, windows)
        return rows.arguments[0].take(pa.array(places, mask=places < 0))

    def history(self, rows: Rows, partitions: Windows) -> History:
        places = self.choice(rows, partitions)
        return History(places[places >= 0])
