"""Temporal coalescing, recomputed from the window's tuples at each slide (L3-L8).

A tuple is valid from its timestamp until that of the next tuple of its partition. The newest tuple is
open and is shown as valid until the slide. Adjacent tuples with equal values become one run. Equality is
that of GROUP BY: NULL equals NULL, NaN equals NaN, and 0 equals -0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slicemill.aggregates.definition import comparable, normalize_zeros
from slicemill.codec.registry import stored_as
from slicemill.operators.temporal.rows import SlidingPartitions, TemporalQuery
from slicemill.types import Row, Timed

Period = tuple[int, int]


def coalesce(tuples: Sequence[tuple[Row, int, int]]) -> list[tuple[Row, Period]]:
    """Return maximal runs of (values, begin, end), without empty periods (L4).

    Tuples must be in order of begin.

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


@stored_as("coalesce.partition", version=1)
@dataclass(slots=True)
class _Partition:
    """Tuples of a partition.

    `content` has each tuple with its number in the partition and its number in the stream. `head` has the
    first output columns of the partition's rows.
    """

    head: Row
    content: deque[tuple[int, Timed, int]] = field(default_factory=deque)
    arrivals: int = 0


@dataclass(frozen=True, slots=True)
class LateRows:
    """Late tuples are timestamped on arrival, but valid from `begin` on (L5)."""

    begin: Callable[[Row], int]
    within: int


class CoalesceOperator(SlidingPartitions[_Partition]):
    """Emits `head`, values and period of each run at each slide.

    Partitions are ordered by their first visible tuple.
    """

    def __init__(self, temporal: TemporalQuery, late: LateRows | None = None) -> None:
        super().__init__(temporal)
        self._late = late
        self._taken = 0

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        late = self._late
        if late is not None and tuple_.ts - late.begin(tuple_.row) > late.within:
            return []
        return super().process(port, tuple_)

    def state(self) -> Any:
        return {"partitions": self._partitions, "next_end": self._next_end, "taken": self._taken}

    def restore(self, state: Any) -> None:
        self._partitions, self._next_end = state["partitions"], state["next_end"]
        self._taken = state["taken"]

    def _new_partition(self, head: Row) -> _Partition:
        return _Partition(head)

    def _arrive(self, key: Hashable, partition: _Partition, tuple_: Timed) -> None:  # noqa: ARG002
        begin = tuple_.ts if self._late is None else self._late.begin(tuple_.row)
        index = len(partition.content)
        while index and partition.content[index - 1][1].ts > begin:
            index -= 1
        partition.content.insert(index, (partition.arrivals, Timed(begin, tuple_.row), self._taken))
        partition.arrivals += 1
        self._taken += 1
        extent = self._temporal.extent
        if self._temporal.by_rows and extent is not None:
            while partition.content[0][0] < partition.arrivals - extent:
                partition.content.popleft()

    def _expire_before(self, end: int) -> None:
        extent = self._temporal.extent
        if extent is None:
            return
        for key, partition in list(self._partitions.items()):
            while partition.content and partition.content[0][1].ts < end - extent:
                partition.content.popleft()
            if not partition.content:
                del self._partitions[key]

    def _report(self, partitions: Mapping[Hashable, _Partition], now: int) -> list[Timed]:
        reports = [self._runs(partition, now) for partition in partitions.values()]
        return [row for _, rows in sorted(reports, key=lambda report: report[0]) for row in rows]

    def _runs(self, partition: _Partition, now: int) -> tuple[int, list[Timed]]:
        """Return the number of the first visible tuple, and the runs."""
        tuples = [tuple_ for _, tuple_, _ in partition.content]
        ends = [tuple_.ts for tuple_ in tuples[1:]] + [now]
        closed = []
        shown_first: list[int] = []
        for (_, t, number), end in zip(partition.content, ends, strict=True):
            if t.ts < end and self._temporal.where(t.row):
                closed.append((normalize_zeros(self._temporal.values(t.row)), t.ts, end))
                shown_first = shown_first or [number]
        rows = [
            Timed(now, (*partition.head, *values, period, *self._goes_on_at(period, now)))
            for values, period in coalesce(closed)
            if self._temporal.emits(period, now)
        ]
        return shown_first[0] if shown_first else self._taken, rows

    def _goes_on_at(self, period: Period, now: int) -> tuple[bool, ...]:
        """Return the output column that marks an open run, if requested.

        Windows by time are reported before the tuples of that time arrive, so a run that ends at `now` is
        still open.
        """
        return (period[1] == now,) if self._temporal.tells_open else ()
