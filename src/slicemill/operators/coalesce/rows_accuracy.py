"""Accuracy of temporal queries that shed tuples (L13, L25)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slicemill.aggregate.definition import Special
from slicemill.rows import Row
from slicemill.shedding.accuracy import AccuracySums, Interval, accuracy_sums
from slicemill.shedding.chains import Values
from slicemill.shedding.shadow import Original, Shadow
from slicemill.storage.codec import stored_as


@stored_as("shed.newest", version=1)
class Newest(NamedTuple):
    """Newest tuple of a partition.

    `values` is None if the tuple forms no run.
    """

    values: Row | None
    begin: int
    number: int
    serial: int
    run: int


@stored_as("shed.partition", version=1)
@dataclass(slots=True)
class AccuracyPartition:
    """State of a partition.

    `run` is the number of the last known run, with values `run_values` and end `run_end`.
    """

    head: Row
    arrivals: int = 0
    newest: Newest | None = None
    run: int = -1
    run_values: Row | None = None
    run_end: int = 0


class Fragment(NamedTuple):
    """A run, or a contiguous remainder of it."""

    run: int
    values: Values
    period: Interval

    def row(self, partition: AccuracyPartition, open_until: int | None = None) -> Row:
        """Return the output row.

        If `open_until` is given, the row has a flag for runs that reach this time.
        """
        assert isinstance(self.values, tuple)
        # Replace the comparable form of NaN.
        shown = (float("nan") if value is Special.NAN else value for value in self.values)
        flag = () if open_until is None else (self.period[1] == open_until,)
        return (*partition.head, *shown, self.period, *flag)


class Exactness:
    """Accuracy measurement: compares remaining runs with the exact runs.

    `wanted` selects the output rows that count.
    """

    def __init__(
        self,
        shadow: Shadow,
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
        """Return the accuracy sums of one output, over the sampled runs."""
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
        """Return the runs that would exist without shedding."""
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

    def in_window(self, partition: AccuracyPartition, run: Original, now: int) -> bool:
        if self._extent is None:
            return True
        if self._by_rows:
            return run.last_number >= partition.arrivals - self._extent
        return run.last_begin >= now - self._extent

    def _begin(self, partition: AccuracyPartition, run: Original, first: int | None, now: int) -> int:
        """Return where a run begins in the window, as far as known.

        A run begins with its first tuple in the window.
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
