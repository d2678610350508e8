"""Temporal coalescing row by row with a memory budget (L14-L25).

A *run* (value run) is a sequence of tuples with equal values and adjacent periods, which becomes one result
row. The tuples of windows are in a store with a limited capacity (`slicemill.shedding.memory`), which drops
tuples when it is full (load shedding). The period of a tuple is known when its successor arrives, so a
dropped tuple leaves a gap in its run: the run falls into *fragments*. The newest tuple of each partition is
not in the store until its end is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from slicemill.aggregates.definition import NanKey, comparable, normalize_zeros
from slicemill.catalog.queries import Budget, FrameUnit, budget_bytes
from slicemill.codec.registry import register, stored_as
from slicemill.columns.keys import Keys
from slicemill.kernels.arrays import Int64s
from slicemill.operators.row_step import predicate, row_of_items
from slicemill.operators.temporal import shedding as m
from slicemill.operators.temporal.coalesce import CoalescingState
from slicemill.operators.temporal.spec import Coalesce
from slicemill.shedding.accuracy import (
    ORIGINAL_BYTES,
    AccuracySums,
    Interval,
    MemoryReport,
    OriginalRun,
    RunSample,
    accuracy_sums,
    run_sample_size,
    thin_slides,
)
from slicemill.shedding.memory import NewestTuple, Tuple, Values, memory_of
from slicemill.storage.state_size import state_bytes
from slicemill.types import Row, Schema, Timed

# Accuracy of temporal queries that shed tuples (L13, L25)


@stored_as("shed.newest", version=1)
class LatestTuple(NamedTuple):
    """Newest tuple of a partition.

    `values` is None if the query does not select the tuple.
    """

    values: Row | None
    begin: int
    number: int
    serial: int
    run: int


@stored_as("shed.partition", version=1)
@dataclass(slots=True)
class AccuracyPartition:
    """State of one partition of a temporal query with a memory budget.

    `run` is the number of the last run of equal values with a known end. `run_values` are its values, and
    `run_end` is its end.
    """

    head: Row
    arrivals: int = 0
    newest: LatestTuple | None = None
    run: int = -1
    run_values: Row | None = None
    run_end: int = 0


class Fragment(NamedTuple):
    """Run of equal values, or a contiguous part of it that load shedding left."""

    run: int
    values: Values
    period: Interval

    def row(self, partition: AccuracyPartition, open_until: int | None = None) -> Row:
        """Return the output row of a run of equal values.

        If `open_until` is set, the row ends with a flag that is true if the run reaches this time.
        """
        assert isinstance(self.values, tuple)
        # Values contain a placeholder that makes NaNs comparable. The output contains NaN.
        shown = (float("nan") if value is NanKey.NAN else value for value in self.values)
        flag = () if open_until is None else (self.period[1] == open_until,)
        return (*partition.head, *shown, self.period, *flag)


class AccuracyMeter:
    """Meter that compares results after load shedding with exact results.

    `wanted` selects the output rows for which accuracy is measured.
    """

    def __init__(
        self,
        shadow: RunSample,
        extent: int | None,
        by_rows: bool,
        wanted: Callable[[Row], bool],
        tells_open: bool = False,
    ) -> None:
        self.shadow = shadow
        self._extent = extent
        self._by_rows = by_rows
        self._wanted = wanted
        self._tells_open = tells_open

    def sums(
        self,
        partitions: Mapping[Hashable, AccuracyPartition],
        left: Mapping[Hashable, Sequence[Fragment]],
        now: int,
    ) -> AccuracySums:
        """Return numerator and denominator of the accuracy of one output.

        Accuracy is measured for a sample of the runs of equal values.
        """
        exact: dict[int, Interval] = {}
        found: dict[int, list[Interval]] = {}
        asked = now if self._tells_open else None
        for key, partition in partitions.items():
            firsts: dict[int, int] = {}
            for fragment in left[key]:
                if self.shadow.samples(fragment.run):
                    firsts.setdefault(fragment.run, fragment.period[0])
                    if self._wanted(fragment.row(partition, asked)):
                        found.setdefault(fragment.run, []).append(fragment.period)
            for fragment in self._runs(key, partition, firsts, now):
                if self._wanted(fragment.row(partition, asked)):
                    exact[fragment.run] = fragment.period
        return accuracy_sums(exact, found)

    def _runs(
        self, key: Hashable, partition: AccuracyPartition, firsts: Mapping[int, int], now: int
    ) -> list[Fragment]:
        """Return the runs of equal values that the output would have without shedding."""
        runs = {
            run: Fragment(run, one.values, (self._begin(partition, one, firsts.get(run), now), one.end))
            for run, one in self.shadow.runs(key).items()
            if self.in_window(partition, one, now)
        }
        newest = partition.newest
        if newest is not None and newest.values is not None and newest.begin < now:
            begin = runs[newest.run].period[0] if newest.run in runs else newest.begin
            if newest.run in runs or self.shadow.samples(newest.run):
                runs[newest.run] = Fragment(newest.run, newest.values, (begin, now))
        return list(runs.values())

    def in_window(self, partition: AccuracyPartition, run: OriginalRun, now: int) -> bool:
        if self._extent is None:
            return True
        if self._by_rows:
            return run.last_number >= partition.arrivals - self._extent
        return run.last_begin >= now - self._extent

    def _begin(self, partition: AccuracyPartition, run: OriginalRun, first: int | None, now: int) -> int:
        """Return the begin that a run of equal values would have without shedding.

        The begin is that of the first tuple of the run in the window.
        """
        if self._extent is None:
            return run.begin
        if self._by_rows:
            whole = run.first_number >= partition.arrivals - self._extent
            return run.begin if whole or first is None else first
        horizon = now - self._extent
        if run.begin >= horizon:
            return run.begin
        return first if first is not None and run.lost_begin < horizon else horizon


# Sliding windows of temporal queries, with a length in time or in rows, processed row by row


@dataclass(frozen=True, slots=True)
class TemporalQuery:
    """Temporal query: its window, and its expressions as functions of a row.

    With `by_rows`, `extent` and `slide` count tuples of a partition: the window has the last `extent` tuples,
    and each `slide`-th tuple triggers output. Only tuples for which `where` is true are in results. Other
    tuples still end the period of their predecessor. With `tells_open`, rows end with a flag that is true if
    the values have not changed yet (L3).
    """

    values: Callable[[Row], Row]
    head: Callable[[Row], Row]
    key: Callable[[Row], Row]
    extent: int | None
    slide: int
    by_rows: bool = False
    where: Callable[[Row], bool] = lambda _: True
    tells_open: bool = False
    changes: bool = False

    def emits(self, period: tuple[int, int], now: int) -> bool:
        """Return True if a result row with this period is emitted at `now`.

        With `changes`, only rows whose period began or ended since the previous slide are emitted (L8).
        """
        begin, end = period
        before = now - self.slide
        return not self.changes or begin >= before or before <= end < now


class WindowPartition(Protocol):
    arrivals: int


P = TypeVar("P", bound=WindowPartition)


class SlidingPartitions(ABC, Generic[P]):
    """Sliding windows of each partition; subclasses define the state of a partition."""

    inputs = 1

    def __init__(self, temporal: TemporalQuery) -> None:
        self._temporal = temporal
        self._partitions: dict[Hashable, P] = {}
        self._next_end: int | None = None

    @abstractmethod
    def _new_partition(self, head: Row) -> P: ...

    @abstractmethod
    def _arrive(self, key: Hashable, partition: P, tuple_: Timed) -> None:
        """Add a tuple to its partition, and count the tuple."""

    @abstractmethod
    def _report(self, partitions: Mapping[Hashable, P], now: int) -> list[Timed]: ...

    @abstractmethod
    def _expire_before(self, end: int) -> None:
        """Evict tuples older than the window that ends at `end`.

        Partitions without tuples are dropped.
        """

    def _after_report(self, end: int) -> None:
        """Handle that the output of a time window has been emitted."""

    @property
    def waits_for_time(self) -> bool:
        return not self._temporal.by_rows

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        slide, by_rows = self._temporal.slide, self._temporal.by_rows
        out = [] if by_rows else self._close_until(tuple_.ts)
        if self._next_end is None:
            self._next_end = (tuple_.ts // slide + 1) * slide
        key = comparable(self._temporal.key(tuple_.row))
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = self._new_partition(
                normalize_zeros(self._temporal.head(tuple_.row))
            )
        self._arrive(key, partition, tuple_)
        if by_rows and partition.arrivals % slide == 0:
            out = self._report({key: partition}, tuple_.ts)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._close_until(ts)

    def finish(self) -> Sequence[Timed]:
        return [] if self._temporal.by_rows else self._close_until(None)

    def due(self) -> int | None:
        return None if self._temporal.by_rows else self._next_end

    held_from = due

    @abstractmethod
    def state(self) -> Any:
        """Return the state of all partitions as plain values."""

    @abstractmethod
    def restore(self, state: Any) -> None: ...

    def _close_until(self, ts: int | None) -> list[Timed]:
        out: list[Timed] = []
        while self._next_end is not None and (ts is None or self._next_end <= ts):
            end = self._next_end
            self._expire_before(end)
            out += self._report(self._partitions, end)
            goes_on = self._partitions and self._has_next_slide(ts)
            self._next_end = end + self._temporal.slide if goes_on else None
            self._after_report(end)
        return out

    def _has_next_slide(self, ts: int | None) -> bool:
        """Return True if another slide follows.

        An unbounded window never becomes empty, but its content does not change after the end of the input.
        """
        return self._temporal.extent is not None or ts is not None


_TIME_BYTES = 40


class SheddingCoalesce(SlidingPartitions[AccuracyPartition]):
    """Temporal coalescing row by row, with load shedding.

    The results are those of `Coalescing` without the periods of shed tuples. `wanted` selects the rows that
    the query uses, for which accuracy is measured.
    """

    def __init__(self, temporal: TemporalQuery, budget: Budget, wanted: Callable[[Row], bool]) -> None:
        super().__init__(temporal)
        self._extent = temporal.extent
        self._by_rows = temporal.by_rows
        self._budget = budget
        self._memory = memory_of(budget, temporal.extent, temporal.slide)
        self._shadow = RunSample(run_sample_size(budget.capacity))
        self._exactness = AccuracyMeter(
            self._shadow, temporal.extent, temporal.by_rows, wanted, temporal.tells_open
        )
        self._serial = 0
        self._until: deque[tuple[int, int]] = deque()  # (end of a slide, number of tuples up to this end)
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
        kept += self._memory.extra_timestamps * _TIME_BYTES
        return kept + state_bytes({"beside": [self._partitions, self._until, self.report]})

    def _new_partition(self, head: Row) -> AccuracyPartition:
        return AccuracyPartition(head)

    # -- arrival of tuples -----------------------------------------------------------------------------

    def _arrive(self, key: Hashable, partition: AccuracyPartition, tuple_: Timed) -> None:
        closed = self._closed(partition, tuple_.ts)
        made = (
            normalize_zeros(self._temporal.values(tuple_.row)) if self._temporal.where(tuple_.row) else None
        )
        values = None if made is None else comparable(made)
        partition.newest = self._newest(partition, values, tuple_.ts)
        partition.arrivals += 1
        if closed is not None and self._has_passed(closed, partition):
            closed = None
        if closed is not None:
            self._shadow.add_tuple(closed, key)
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
        """Return the tuple whose period ends at `now`.

        Return None if the query does not select the tuple, or if its period is empty.
        """
        newest = partition.newest
        if newest is None or newest.values is None or newest.begin == now:
            return None
        partition.run, partition.run_values, partition.run_end = newest.run, newest.values, now
        return Tuple(newest.values, newest.begin, now, newest.number, newest.serial, newest.run)

    def _has_passed(self, closed: Tuple, partition: AccuracyPartition) -> bool:
        """Return True if no later window contains the tuple."""
        if self._extent is None:
            return False
        if self._by_rows:
            return closed.number < partition.arrivals - self._extent
        assert self._next_end is not None
        return closed.begin < self._next_end - self._extent

    def _newest(self, partition: AccuracyPartition, values: Row | None, ts: int) -> LatestTuple:
        run = partition.run
        if values is not None:
            self.report.arrived += 1
            if partition.run_end != ts or partition.run_values != values:
                run = self.report.runs
                self.report.runs += 1
        self._serial += 1
        return LatestTuple(values, ts, partition.arrivals, self._serial, run)

    # -- output of windows -----------------------------------------------------------------------------

    def _after_report(self, end: int) -> None:
        # Tuples that no later window contains expire now, so that the store has room before the next
        # slide ends.
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
        """Drop sampled runs that have left their window, if the sample is full.

        This is for windows with a length in rows. A run is a sequence of tuples with equal values.
        """
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
            if self._temporal.emits(fragment.period, now)
        ]

    def _in_all_windows(self, now: int) -> int:
        """Return the number of tuples in the current windows, accurate to one slide."""
        if self._extent is None:
            return self.report.arrived
        if self._by_rows:
            return sum(min(partition.arrivals, self._extent) for partition in self._partitions.values())
        self._until.append((now, self.report.arrived))
        thin_slides(self._until)
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


def temporal(operator: Coalesce, schema: Schema) -> TemporalQuery:
    """Compile the expressions of a temporal query to functions of a row."""
    attributes = [schema.index(name) for name in operator.attributes]
    # A partitioning column that is also an attribute appears once, as the attribute.
    head = [item for item in operator.partition_by if item.name not in operator.attributes]
    window = operator.window
    assert window.slide is not None, "the grammar requires SLIDES"
    return TemporalQuery(
        lambda row: tuple(row[index] for index in attributes),
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


# State of temporal queries with a memory budget


FEW = 100


@dataclass(slots=True)
class BudgetState(CoalescingState):
    """State of a temporal query with a memory budget: stored tuples and partitions.

    Tuples reference their values by number, and `values` has the values in columns. During a micro-batch, the
    tuples are unpacked to arrays, and `BudgetedByTime` has a dictionary of the values.
    """

    memory: m.PackedMemory | None = None
    partitions: Int64s = field(default_factory=lambda: m.new_partitions(0))
    values: dict[str, Any] = field(default_factory=lambda: Keys().in_columns())
    next_end: int | None = None
    until: deque[tuple[int, int]] = field(default_factory=deque)
    report: MemoryReport = field(default_factory=MemoryReport)
    next_seq: int = 0

    def plain(self) -> dict[str, Any]:
        return {field_.name: getattr(self, field_.name) for field_ in fields(self)}

    def store(self, memory: m.PackedMemory, values: Keys) -> None:
        """Store the tuples after a micro-batch; drop unused partitions and values."""
        self.memory = memory
        alive = self.partitions[:, m.ALIVE] == 1
        if len(self.keys) > 2 * int(alive.sum()) + FEW:
            used = alive.copy()
            used[memory.shadow["part"]] = True
            moved = self.keys.keep(used)
            self.partitions = self.partitions[used]
            for records in (memory.tuples, memory.shadow):
                records["part"] = moved[records["part"]]
        self._keep_values(memory, values)

    def _keep_values(self, memory: m.PackedMemory, values: Keys) -> None:
        newest = self.partitions[:, [m.NEW_CODE, m.RUN_CODE]]
        used = np.zeros(len(values) + 1, np.bool_)
        used[np.concatenate([memory.tuples["code"], memory.shadow["code"], *newest.T])] = True
        moved = np.append(values.keep(used[:-1]), m.NONE)
        for records in (memory.tuples, memory.shadow):
            records["code"] = moved[records["code"]]
        for column in (m.NEW_CODE, m.RUN_CODE):
            self.partitions[:, column] = moved[self.partitions[:, column]]
        kept = values.in_columns()
        if kept["columns"] is not None:
            kept["columns"] = [column.combine_chunks() for column in kept["columns"]]
        self.values = kept


register("coalesce.budgeted", 2, BudgetState, BudgetState.plain, lambda plain: BudgetState(**plain))
