"""Temporal queries, lazily: coalesce the window's tuples anew at each slide (L3-L8).

A tuple holds from its own timestamp to that of the next tuple of its partition; the newest one is open and is
shown as holding until the slide. Neighbours with equal values whose periods meet become one run. Equal means
what it means to GROUP BY: NULL equals NULL, NaN equals NaN, and there is one zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from slicemill.execution.aggregate import comparable, shown
from slicemill.execution.operator import Row, Timed

Period = tuple[int, int]


def coalesce(tuples: Sequence[tuple[Row, int, int]]) -> list[tuple[Row, Period]]:
    """Maximal runs of (values, begin, end), given in order of begin; empty periods are dropped (L4).

    >>> coalesce([((1,), 0, 3), ((1,), 3, 5), ((2,), 5, 9)])
    [((1,), (0, 5)), ((2,), (5, 9))]
    """
    runs: list[tuple[Row, Period]] = []
    for values, begin, end in tuples:
        if begin == end:
            continue
        if runs and comparable(runs[-1][0]) == comparable(values) and begin <= runs[-1][1][1]:
            runs[-1] = (runs[-1][0], (runs[-1][1][0], max(runs[-1][1][1], end)))
        else:
            runs.append((values, (begin, end)))
    return runs


@dataclass(slots=True)
class _Partition:
    """The tuples of one partition that may still be in a window, each with its arrival number.

    `head` is what the rows of its runs begin with.
    """

    head: Row
    content: deque[tuple[int, Timed]] = field(default_factory=deque)
    arrivals: int = 0


class Coalesce:
    """Output row: `head` of the partition, the run's values, the run's period; timestamp: the slide's.

    With `by_rows`, `extent` and `slide` count the tuples of a partition: the last `extent` of them are in the
    window, and every `slide`-th arrival reports. Only tuples on which `where` holds make runs; the others
    still end the period of the tuple before them.
    """

    inputs = 1

    def __init__(
        self,
        values: Callable[[Row], Row],
        head: Callable[[Row], Row],
        key: Callable[[Row], Row],
        extent: int | None,
        slide: int,
        by_rows: bool = False,
        where: Callable[[Row], bool] = lambda _: True,
    ) -> None:
        self._values = values
        self._head = head
        self._key = key
        self._extent = extent
        self._slide = slide
        self._by_rows = by_rows
        self._where = where
        self._partitions: dict[Hashable, _Partition] = {}
        self._next_end: int | None = None

    @property
    def waits_for_time(self) -> bool:
        return not self._by_rows

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        out = [] if self._by_rows else self._close_until(tuple_.ts)
        if self._next_end is None:
            self._next_end = (tuple_.ts // self._slide + 1) * self._slide
        key = comparable(self._key(tuple_.row))
        if key not in self._partitions:
            self._partitions[key] = _Partition(shown(self._head(tuple_.row)))
        partition = self._partitions[key]
        partition.content.append((partition.arrivals, tuple_))
        partition.arrivals += 1
        if self._by_rows:
            self._expire_rows(partition)
            if partition.arrivals % self._slide == 0:
                out = self._runs(partition, tuple_.ts)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._close_until(ts)

    def finish(self) -> Sequence[Timed]:
        return [] if self._by_rows else self._close_until(None)

    def due(self) -> int | None:
        return None if self._by_rows else self._next_end

    held_from = due

    def _close_until(self, ts: int | None) -> list[Timed]:
        out: list[Timed] = []
        while self._next_end is not None and (ts is None or self._next_end <= ts):
            end = self._next_end
            self._expire_before(end)
            for partition in self._partitions.values():
                out += self._runs(partition, end)
            self._next_end = end + self._slide if self._partitions and self._goes_on(ts) else None
        return out

    def _goes_on(self, ts: int | None) -> bool:
        """An unbounded window never empties: after the end of the input nothing in it changes any more."""
        return self._extent is not None or ts is not None

    def _expire_before(self, end: int) -> None:
        if self._extent is None:
            return
        for key, partition in list(self._partitions.items()):
            while partition.content and partition.content[0][1].ts < end - self._extent:
                partition.content.popleft()
            if not partition.content:
                del self._partitions[key]

    def _expire_rows(self, partition: _Partition) -> None:
        while self._extent is not None and partition.content[0][0] < partition.arrivals - self._extent:
            partition.content.popleft()

    def _runs(self, partition: _Partition, now: int) -> list[Timed]:
        tuples = [tuple_ for _, tuple_ in partition.content]
        ends = [tuple_.ts for tuple_ in tuples[1:]] + [now]
        closed = [
            (shown(self._values(t.row)), t.ts, end)
            for t, end in zip(tuples, ends, strict=True)
            if self._where(t.row)
        ]
        return [Timed(now, (*partition.head, *values, period)) for values, period in coalesce(closed)]
