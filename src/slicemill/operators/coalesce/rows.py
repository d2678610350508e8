"""Coalescing row by row with a memory budget (L14-L25).

Like `coalesce`, but the window's tuples are in a memory that drops tuples when it is full. The period of a
tuple is known when its successor arrives, so a dropped tuple leaves a gap. The newest tuple of each
partition is stored outside this memory until its end is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from slicemill.aggregate.definition import comparable, shown
from slicemill.esl.types.budget import Budget, budget_bytes
from slicemill.esl.types.query import FrameUnit
from slicemill.esl.types.schema import Schema
from slicemill.operators.coalesce.rows_accuracy import AccuracyPartition, Exactness, Fragment, Newest
from slicemill.operators.coalesce.rows_windows import SlidingPartitions, Temporal
from slicemill.operators.coalesce.spec import Coalesce
from slicemill.operators.row_operator import predicate, row_of_items
from slicemill.rows import Row, Timed
from slicemill.shedding.chains import NewestTuple, Tuple
from slicemill.shedding.memories import memory_of
from slicemill.shedding.report import MemoryReport, few_slides
from slicemill.shedding.shadow import ORIGINAL_BYTES, Shadow, runs_remembered
from slicemill.storage.state_size import state_bytes

_TIME_BYTES = 40


class SheddingCoalesce(SlidingPartitions[AccuracyPartition]):
    """Coalescing with load shedding. Returns rows as `Coalesce`.

    `wanted` selects the rows that the query uses, for which accuracy is measured.
    """

    def __init__(self, temporal: Temporal, budget: Budget, wanted: Callable[[Row], bool]) -> None:
        super().__init__(temporal)
        self._extent = temporal.extent
        self._by_rows = temporal.by_rows
        self._budget = budget
        self._memory = memory_of(budget, temporal.extent, temporal.slide)
        self._shadow = Shadow(runs_remembered(budget.capacity))
        self._exactness = Exactness(
            self._shadow, temporal.extent, temporal.by_rows, wanted, temporal.tells_open
        )
        self._serial = 0
        self._until: deque[tuple[int, int]] = deque()  # ends of slides, and tuples arrived by then
        self.report = MemoryReport(capacity=budget.capacity)

    def state(self) -> Any:
        return {
            "partitions": self._partitions,
            "next_end": self._next_end,
            "memory": self._memory.state(),
            "shadow": self._shadow,
            "serial": self._serial,
            "until": self._until,
            "report": self.report,
        }

    def restore(self, state: Any) -> None:
        self._partitions, self._next_end = state["partitions"], state["next_end"]
        self._memory.restore(state["memory"])
        self._shadow = self._exactness.shadow = state["shadow"]
        self._serial, self._until, self.report = state["serial"], state["until"], state["report"]

    def bytes_kept(self) -> int:
        """Return the memory that the process uses, which exceeds the stored size."""
        kept = self._memory.held * budget_bytes(self._budget) + len(self._shadow) * ORIGINAL_BYTES
        kept += self._memory.beside * _TIME_BYTES
        return kept + state_bytes({"beside": [self._partitions, self._until, self.report]})

    def _new_partition(self, head: Row) -> AccuracyPartition:
        return AccuracyPartition(head)

    # -- tuples ----------------------------------------------------------------------------------------

    def _arrive(self, key: Hashable, partition: AccuracyPartition, tuple_: Timed) -> None:
        closed = self._closed(partition, tuple_.ts)
        made = shown(self._temporal.values(tuple_.row)) if self._temporal.where(tuple_.row) else None
        values = None if made is None else comparable(made)
        partition.newest = self._newest(partition, values, tuple_.ts)
        partition.arrivals += 1
        if closed is not None and self._has_passed(closed, partition):
            closed = None
        if closed is not None:
            self._shadow.saw(closed, key)
        if self._by_rows and self._extent is not None:
            self._memory.expire(key, number=partition.arrivals - self._extent)
            self._forget_runs()
        follower = NewestTuple(values, tuple_.ts) if values is not None else None
        dropped = self._memory.arrive(key, closed, follower)
        if dropped is not None:
            self.report.dropped += dropped.tuple.count
            self._shadow.lost(dropped.tuple, dropped.partition)
        self.report.sampled = self._shadow.share

    def _closed(self, partition: AccuracyPartition, now: int) -> Tuple | None:
        """Return the tuple whose period ends now, or None.

        The result is None for a tuple that forms no run, or whose period is empty.
        """
        newest = partition.newest
        if newest is None or newest.values is None or newest.begin == now:
            return None
        partition.run, partition.run_values, partition.run_end = newest.run, newest.values, now
        return Tuple(newest.values, newest.begin, now, newest.number, newest.serial, newest.run)

    def _has_passed(self, closed: Tuple, partition: AccuracyPartition) -> bool:
        """Return True if no later window shows the tuple."""
        if self._extent is None:
            return False
        if self._by_rows:
            return closed.number < partition.arrivals - self._extent
        assert self._next_end is not None
        return closed.begin < self._next_end - self._extent

    def _newest(self, partition: AccuracyPartition, values: Row | None, ts: int) -> Newest:
        run = partition.run
        if values is not None:
            self.report.arrived += 1
            if partition.run_end != ts or partition.run_values != values:
                run = self.report.runs
                self.report.runs += 1
        self._serial += 1
        return Newest(values, ts, partition.arrivals, self._serial, run)

    # -- windows ---------------------------------------------------------------------------------------

    def _reported(self, end: int) -> None:
        # Expire now what no later window shows, to make room before the next slide ends.
        self._expire_before(end + self._temporal.slide)

    def _expire_before(self, end: int) -> None:
        if self._extent is None:
            return
        horizon = end - self._extent
        for key, partition in list(self._partitions.items()):
            if partition.newest is None or partition.newest.begin < horizon:
                self._memory.forget(key)
                del self._partitions[key]
            else:
                self._memory.expire(key, begin=horizon)
        self._shadow.expire(lambda _, run: run.last_begin < horizon)

    def _forget_runs(self) -> None:
        """Drop runs that left windows by rows, once there are many."""
        if len(self._shadow) >= self._shadow.limit:
            inside = self._exactness.in_window
            self._shadow.expire(lambda key, run: not inside(self._partitions[key], run, 0))

    def _report(self, partitions: Mapping[Hashable, AccuracyPartition], now: int) -> list[Timed]:
        left = {key: self._fragments(key, partition, now) for key, partition in partitions.items()}
        self.report.in_window = self._in_all_windows(now)
        self.report.add(now, self._exactness.sums(partitions, left, now))
        asked = now if self._temporal.tells_open else None
        return [
            Timed(now, fragment.row(partition, asked))
            for key, partition in partitions.items()
            for fragment in left[key]
            if self._temporal.tells(fragment.period, now)
        ]

    def _in_all_windows(self, now: int) -> int:
        """Return the number of tuples in all windows, accurate to a slide."""
        if self._extent is None:
            return self.report.arrived
        if self._by_rows:
            return sum(min(partition.arrivals, self._extent) for partition in self._partitions.values())
        self._until.append((now, self.report.arrived))
        few_slides(self._until)
        while len(self._until) > 1 and self._until[1][0] <= now - self._extent:
            self._until.popleft()
        passed = self._until[0][1] if self._until[0][0] <= now - self._extent else 0
        return self.report.arrived - passed

    def _fragments(self, key: Hashable, partition: AccuracyPartition, now: int) -> list[Fragment]:
        found: list[Fragment] = []
        pieces = [(one.run, one.values, one.begin, one.end) for one in self._memory.kept(key)]
        newest = partition.newest
        if newest is not None and newest.values is not None and newest.begin < now:
            pieces.append((newest.run, newest.values, newest.begin, now))
        for run, values, begin, end in pieces:
            if found and found[-1].run == run and found[-1].period[1] == begin:
                found[-1] = Fragment(run, values, (found[-1].period[0], end))
            else:
                found.append(Fragment(run, values, (begin, end)))
        return found


def temporal(operator: Coalesce, schema: Schema) -> Temporal:
    """Return a temporal query as functions of rows."""
    attributes = [schema.index(name) for name in operator.attributes]
    # A partition column that is also an attribute appears once, as the attribute.
    head = [item for item in operator.partition_by if item.name not in operator.attributes]
    window = operator.window
    assert window.slide is not None, "the grammar asks for SLIDES"
    return Temporal(
        lambda row: tuple(row[place] for place in attributes),
        row_of_items(head, schema),
        row_of_items(operator.partition_by, schema),
        window.extent,
        window.slide,
        window.frame is FrameUnit.ROWS,
        predicate(operator.where, schema),
        operator.tells_open,
        operator.changes,
    )


def shedding_rows(operator: Coalesce, budget: Budget, schema: Schema, output: Schema) -> SheddingCoalesce:
    return SheddingCoalesce(temporal(operator, schema), budget, predicate(operator.wanted, output))
