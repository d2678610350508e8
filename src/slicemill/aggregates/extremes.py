"""Aggregates min, max, min_by, max_by, first, last and priority_sample.

Each aggregate selects one tuple, the winner. Without a window, the state is the winner so far. Over a window,
every tuple that a newer tuple beats is deleted from the window, because it cannot win any more. So the oldest
remaining tuple is the winner (M33). In the columnar implementation, a monotonic queue has the candidates,
from best to worst (C17).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.aggregates.columns import History, Rows, Windows, valid_mask, whole_numbers
from slicemill.aggregates.definition import Returned, RowAggregate
from slicemill.aggregates.frames import Args, Inwindow
from slicemill.aggregates.hashes import column_priorities, priority
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.kernels.kernel import kernel


def _first(args: Args) -> object:
    return args[0]


def _second(args: Args) -> object:
    return args[-1]


def _priority(args: Args) -> object:
    return priority(cast(int, args[1]))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison by which an aggregate such as max selects one of two tuples.

    `key` returns the key of a tuple. `wins(new, old)` compares two keys. Tuples with a NULL key are selected
    only with `takes_null`.
    """

    wins: Callable[[object, object], bool]
    key: Callable[[Args], object] = _first
    takes_null: bool = False


class Winner:
    """Accumulator without a window: the selected tuple so far, such as the tuple of the maximum.

    With `numbered`, the accumulator counts the arrival numbers of tuples itself.
    """

    __slots__ = ("_best", "_contest", "_numbered", "_seen", "_value")

    def __init__(self, contest: Comparison, numbered: bool = False) -> None:
        self._contest = contest
        self._numbered = numbered
        self._seen = 0
        self._best: object = None
        self._value: Returned = []

    def initialize(self, args: Args) -> Returned:
        if self._numbered and len(args) == 1:
            args = (*args, self._seen)
        self._seen += 1
        new = self._contest.key(args)
        takes_part = new is not None or self._contest.takes_null
        if takes_part and (not self._value or self._contest.wins(new, self._best)):
            self._best = new
            self._value = [args[0]]
        return []

    iterate = initialize

    def terminate(self) -> Returned:
        return self._value or [None]

    def state(self) -> object:
        return self._seen, self._best, self._value

    def restore(self, state: Any) -> None:
        self._seen, self._best, self._value = state


class WindowWinner:
    """Accumulator over a window: it deletes the tuples that a newer tuple beats, as for a maximum.

    The new tuple is already in the window and must not delete itself. Older tuples with equal keys stay (X6).
    EXPIRE is not called for a deleted tuple, so ACTIVE EXPIRATION is not supported.
    """

    __slots__ = ("_contest", "_inwindow")

    def __init__(self, contest: Comparison, inwindow: Inwindow) -> None:
        self._contest = contest
        self._inwindow = inwindow

    def initialize(self, args: Args) -> Returned:
        contest = self._contest
        new = contest.key(args)

        def beaten(tuple_: Args) -> bool:
            old = contest.key(tuple_)
            if not contest.takes_null and (old is None or new is None):
                return old is None
            return tuple_ is not args and contest.wins(new, old)

        self._inwindow.delete(beaten)
        oldest = self._inwindow.oldest()
        return [None if oldest is None else oldest[0]]

    iterate = initialize

    def expire(self, args: Args) -> Returned:  # noqa: ARG002 - the window's oldest tuple
        return [args[0] for args in list(self._inwindow)[1:2]]

    def state(self) -> object:
        """Return None, because the window is stored separately and there is no other state."""
        return None

    def restore(self, state: Any) -> None:
        pass


def _greater(new: object, old: object) -> bool:
    """Return True if `new` is greater than `old`. NaN is greater than every number, as in Spark."""
    if old != old:
        return False
    return new != new or cast(float, new) > cast(float, old)


def _less(new: object, old: object) -> bool:
    return _greater(old, new)


def _never(new: object, old: object) -> bool:  # noqa: ARG001
    return False


def _always(new: object, old: object) -> bool:  # noqa: ARG001
    return True


def _extreme(name: str, contest: Comparison, algebraic: bool = False, numbered: bool = False) -> RowAggregate:
    return RowAggregate(
        name,
        base=lambda: Winner(contest, numbered),
        window=lambda inwindow: WindowWinner(contest, inwindow),
        algebraic=algebraic,
        forgets=True,
        numbered=numbered,
    )


EXTREMES = (
    _extreme("min", Comparison(_less), algebraic=True),
    _extreme("max", Comparison(_greater), algebraic=True),
    _extreme("first", Comparison(_never, takes_null=True), algebraic=True),
    _extreme("last", Comparison(_always, takes_null=True), algebraic=True),
    _extreme("min_by", Comparison(_less, _second)),
    _extreme("max_by", Comparison(_greater, _second)),
    _extreme("priority_sample", Comparison(_greater, _priority), numbered=True),
)


# -- columnar implementation -------------------------------------------------------------------------------


@kernel
def _winners(ranks: Int64s, takes_part: Bools, starts: Int64s, ends: Int64s) -> Int64s:
    """Return the index of each window's first row with the greatest rank, or -1."""
    out = np.empty(len(starts), np.int64)
    queue = np.empty(len(ranks), np.int64)
    first = behind = end = 0
    for i in range(len(starts)):
        if starts[i] >= end and (i + 1 == len(starts) or starts[i + 1] >= ends[i]):
            # A window that shares no rows with its neighbours needs no queue.
            best = -1
            for row in range(starts[i], ends[i]):
                if takes_part[row] and (best < 0 or ranks[row] > ranks[best]):
                    best = row
            out[i], end = best, ends[i]
            first = behind = 0
            continue
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


Choice = Callable[[Rows, Windows], Int64s]


def ranks_of(array: pa.Array) -> Int64s:
    """Return an integer for each value of a column, so that integers compare like the values.

    NaN is the greatest double. The integers of NULLs are arbitrary.
    """
    kind = array.type
    if pa.types.is_floating(kind):
        values = np.where(numbers(array) == 0, 0.0, numbers(array))
        bits = np.where(np.isnan(values), np.inf, values).view(np.int64)
        # Bits of positive doubles have the order of the doubles, bits of negative doubles the reverse order.
        ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        return np.where(np.isnan(values), np.iinfo(np.int64).max, ordered)
    if pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        return whole_numbers(array)
    encoded = array.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.zeros(max(1, len(order)), np.int64)
    rank[order] = np.arange(len(order))
    return rank[np.where(valid_mask(array), numbers(encoded.indices.fill_null(0)), 0)]


def _greatest(rows: Rows, windows: Windows) -> Int64s:
    key = rows.arguments[-1]
    return _winners(ranks_of(key), valid_mask(key), windows.starts, windows.ends)


def _least(rows: Rows, windows: Windows) -> Int64s:
    key = rows.arguments[-1]
    return _winners(~ranks_of(key), valid_mask(key), windows.starts, windows.ends)


def _oldest(rows: Rows, windows: Windows) -> Int64s:  # noqa: ARG001
    return np.where(windows.ends > windows.starts, windows.starts, -1)


def _newest(rows: Rows, windows: Windows) -> Int64s:  # noqa: ARG001
    return np.where(windows.ends > windows.starts, windows.ends - 1, -1)


def _highest_priority(rows: Rows, windows: Windows) -> Int64s:
    assert rows.numbers is not None
    # Priorities are unsigned 64-bit integers.
    ranks: NDArray[np.int64] = (column_priorities(rows.numbers) ^ np.uint64(2**63)).view(np.int64)
    return _winners(ranks, np.ones(len(rows), np.bool_), windows.starts, windows.ends)


CHOICES: dict[str, Choice] = {
    "min": _least,
    "max": _greatest,
    "min_by": _least,
    "max_by": _greatest,
    "first": _oldest,
    "last": _newest,
    "priority_sample": _highest_priority,
}


@dataclass(frozen=True, slots=True)
class ColumnExtreme:
    """Columnar implementation of min, max, first, …: the first argument of each window's selected row."""

    choice: Choice

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        indices = self.choice(rows, windows)
        return rows.arguments[0].take(pa.array(indices, mask=indices < 0))

    def history(self, rows: Rows, partitions: Windows) -> History:
        indices = self.choice(rows, partitions)
        return History(indices[indices >= 0])
