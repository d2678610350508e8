"""Joins of individually ordered inputs, by lazy purge (S5, S44).

Tuples of different inputs have no order, so a probe may match newer and older tuples, and ages are compared
on both sides. The mark of a stream is its latest timestamp. A stored tuple is purged when it is too old for
the marks of all other streams. So no result is missed, and each combination is emitted once, with the last
of its tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import chain, product
from typing import NamedTuple

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.workload import Member, bits, targets
from slicemill.types import Row, Timed
from slicemill_oracle.slices.items import Item
from slicemill_oracle.slices.selection import Evaluate, SliceSelection, evaluate_predicate


class JoinResult(NamedTuple):
    """Join result with the timestamps of its tuples in stream order (S1), and its queries."""

    times: tuple[int, ...]
    row: Row
    queries: int

    @property
    def ts(self) -> int:
        return max(self.times)


class SemiOrderedJoin:
    """Shared join. `condition` reads the concatenated rows of all streams."""

    def __init__(
        self,
        members: Sequence[Member],
        condition: Callable[[Row], bool],
        evaluate: Evaluate = evaluate_predicate,
    ) -> None:
        streams = range(len(members[0].sides))
        self._members = tuple(members)
        self._condition = condition
        self._selections = [SliceSelection(members, stream, evaluate) for stream in streams]
        self._marks: list[int | None] = [None for _ in streams]
        self._number = 0
        self.states: list[list[Item]] = [[] for _ in streams]

    def process(self, stream: int, tuple_: Timed) -> list[JoinResult]:
        """Process a tuple. Return all combinations that it completes."""
        mark = self._marks[stream]
        if mark is not None and tuple_.ts < mark:
            raise SlicemillError(f"stream {stream} is not in order: {tuple_.ts} after {mark}")
        self._marks[stream] = tuple_.ts
        self._purge()
        mask = self._selections[stream].mask(tuple_.row)
        if not mask:
            return []
        self._number += 1
        item = Item(stream, self._number, tuple_.ts, tuple_.row, mask)
        pools = [[item] if other == stream else state for other, state in enumerate(self.states)]
        self.states[stream].append(item)
        return [result for parts in product(*pools) if (result := self._combine(parts)) is not None]

    def _combine(self, parts: Sequence[Item]) -> JoinResult | None:
        latest = max(part.ts for part in parts)
        queries = targets([part.mask for part in parts])
        queries = sum(
            1 << bit
            for bit in bits(queries)
            if all(latest - part.ts < self._members[bit].sides[part.side].window for part in parts)
        )
        row: Row = tuple(chain.from_iterable(part.row for part in parts))
        if not queries or not self._condition(row):
            return None
        return JoinResult(tuple(part.ts for part in parts), row, queries)

    def _purge(self) -> None:
        for stream, state in enumerate(self.states):
            marks = [mark for other, mark in enumerate(self._marks) if other != stream]
            known = [mark for mark in marks if mark is not None]
            if len(known) == len(marks):
                past = min(known)
                state[:] = [item for item in state if past - item.ts < self._retention(item)]

    def _retention(self, item: Item) -> float:
        """Return the longest window among the queries that need the tuple."""
        return max(self._members[bit].sides[item.side].window for bit in bits(item.mask))


class ResultSorter:
    """Sorts the results of a semi-ordered join by timestamp.

    A later result contains a later tuple than the current result. So no later result can precede the
    earliest tuple of the current result, and all results before that time are released (Lemma 15.2).
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, JoinResult]] = []
        self._number = 0

    @property
    def held(self) -> int:
        """The number of waiting results."""
        return len(self._waiting)

    def add(self, result: JoinResult) -> list[JoinResult]:
        """Add a result. Return the results that no later result can precede."""
        released = self._before(min(result.times))
        self._number += 1
        heappush(self._waiting, (result.ts, self._number, result))
        return released

    def finish(self) -> list[JoinResult]:
        """Return the remaining results."""
        return [heappop(self._waiting)[2] for _ in range(len(self._waiting))]

    def _before(self, ts: int) -> list[JoinResult]:
        released = []
        while self._waiting and self._waiting[0][0] < ts:
            released.append(heappop(self._waiting)[2])
        return released
