"""Temporal coalescing on whole tables: merge adjacent periods of equal values.

The period of a tuple ends when the next tuple of its partition arrives. A *run* (value run) is a sequence of
tuples with equal values and adjacent periods, which becomes one result row. All tuples that a window may
still contain are sorted by partition. One pass determines the runs. Each window then emits its part of the
runs. The time is proportional to the number of stored tuples and output rows, for any slide. Results do not
depend on the division of the input into tables. Coalescing row by row has the same results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.catalog.expressions import ColumnRef, Expr
from slicemill.codec.registry import stored_as
from slicemill.columns.keys import Keys, comparable, distinct_keys
from slicemill.columns.keys import normalize_zeros as shown_values
from slicemill.columns.pieces import Slice, keep_needed
from slicemill.columns.ranges import FOREVER, by_partition
from slicemill.functions.evaluate import compile_many
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.temporal.spec import Coalesce
from slicemill.shedding.accuracy import AccuracySums
from slicemill.time import BEFORE_ALL, END
from slicemill.types import Schema

TS, SEQ, ARRIVAL = "_ts", "_seq", "_arr"
KEY, TIME, NUMBERED, SELECTED, NUMBER = "key", "ts", "seq", "selected", "number"


@stored_as("coalesce", version=1)
@dataclass(slots=True)
class CoalescingState:
    """Tuples that later windows may still contain, in order of arrival.

    For windows by time, all slides up to `closed` have been emitted. For windows by rows, `arrived` has the
    number of arrived tuples of each partition.
    """

    keys: Keys = field(default_factory=Keys)
    pieces: list[Slice] = field(default_factory=list)
    now: int = BEFORE_ALL
    closed: int | None = None
    finished: bool = False
    arrived: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class SortedTuples:
    """All stored and new tuples, sorted by partition and arrival.

    `order` has the row of each sorted tuple in `table`.
    """

    table: pa.Table
    order: Int64s
    partitions: Int32s
    ts: Int64s
    selected: Bools
    values: Sequence[pa.Array]
    runs: Runs

    def in_table(self, sorted_: Bools) -> Bools:
        """Reorder a mask of sorted tuples to the row order of the table."""
        out = np.empty(len(sorted_), np.bool_)
        out[self.order] = sorted_
        return out

    def changes(self) -> Bools:
        """Return a mask of the tuples whose values differ from those of their predecessor.

        Tuples with an empty period are ignored. Unbounded windows need only the masked tuples, because each
        run of equal values begins with its first tuple.
        """
        indices = np.flatnonzero(ends_of(self.partitions, self.ts) > self.ts)
        partitions, selected = self.partitions[indices], self.selected[indices]
        same = partitions[1:] == partitions[:-1]
        same &= selected[1:] == selected[:-1]
        same &= equals_predecessor([column.take(pa.array(indices)) for column in self.values]) | ~selected[1:]
        out = np.zeros(len(self.order), np.bool_)
        out[indices[:1]] = True
        out[indices[1:][~same]] = True
        return out


class Coalescing(ABC):
    """Merge of tuples with adjacent periods and equal values.

    Subclasses define the windows.
    """

    def __init__(
        self,
        operator: Coalesce,
        schema: Schema,
        names: Sequence[str],
        state: CoalescingState,
    ) -> None:
        """Compile the expressions of a temporal query.

        `names` are the output columns: keys, attributes, the period, and the flag for rows that continue.
        """
        assert operator.window.slide is not None, "the grammar requires SLIDES"
        self.state = state
        self._slide, self._extent = operator.window.slide, operator.window.extent
        self._names = list(names)
        self._tells_open, self._changes = operator.tells_open, operator.changes
        self._keys = [item.expr for item in operator.partition_by]
        # A key that is also an attribute appears once, as the attribute.
        self._heads = [
            index for index, item in enumerate(operator.partition_by) if item.name not in operator.attributes
        ]
        attributes: list[Expr] = [
            ColumnRef(n, schema.columns[schema.index(n)].type) for n in operator.attributes
        ]
        self._attributes = [str(index) for index in range(len(attributes))]
        conditions = [] if operator.where is None else [operator.where]
        self._evaluate = compile_many([*self._keys, *attributes, *conditions], schema)

    def run(
        self, table: pa.Table, complete: int, latest_elsewhere: int = BEFORE_ALL
    ) -> tuple[pa.Table | None, int]:
        """Process new rows in order; return due output and the output watermark.

        `complete` is the input watermark. At the end of the input, time stops at the last tuple of all
        subtasks.
        """
        known = [ts.as_py() for ts in table.column(TS)[-1:]]
        known.append(latest_elsewhere if complete == END else complete)
        self.state.now = max([self.state.now, *known])
        new, arrivals = self._stored_columns(table)
        out = self._report(new, arrivals, ended=complete == END)
        due = self.due()
        return out, complete if due is None else min(complete, due)

    @abstractmethod
    def due(self) -> int | None:
        """Return the watermark at which the next output is due."""

    @abstractmethod
    def _report(self, new: pa.Table, arrivals: Int64s, ended: bool) -> pa.Table | None:
        """Update the state, and return the output that is due."""

    def _stored_columns(self, table: pa.Table) -> tuple[pa.Table, Int64s]:
        """Return the columns of new rows that the state stores, and their arrival times."""
        found = []
        for outcome in self._evaluate(table):
            if isinstance(outcome, ExpressionError):
                raise outcome
            found.append(outcome)
        arrivals: Int64s = numbers(table.column(ARRIVAL).combine_chunks())
        ts, seqs = table.column(TS), table.column(SEQ)
        keys, values = found[: len(self._keys)], found[len(self._keys) :]
        numbered = self.state.keys.number(distinct_keys(keys, len(ts)), keys)
        selected = pa.repeat(pa.scalar(True), len(ts))
        if len(values) > len(self._attributes):
            selected = values.pop().fill_null(False)
        columns = {KEY: pa.array(numbered), TIME: ts, NUMBERED: seqs, SELECTED: selected}
        columns |= {n: shown_values(c) for n, c in zip(self._attributes, values, strict=True)}
        return pa.table(columns).combine_chunks(), arrivals

    def _content(self, new: pa.Table) -> SortedTuples:
        table = pa.concat_tables([*(piece.table for piece in self.state.pieces), new]).combine_chunks()
        keys: Int32s = numbers(table.column(KEY).combine_chunks())
        times: Int64s = numbers(table.column(TIME).combine_chunks())
        order, partitions = self._sorted(keys, times)
        ts = times[order]
        indices = pa.array(order)
        selected: Bools = table.column(SELECTED).take(indices).to_numpy()
        values = [table.column(name).combine_chunks().take(indices) for name in self._attributes]
        runs = runs_of(partitions, ts, selected, values)
        return SortedTuples(table, order, partitions, ts, selected, values, runs)

    def _sorted(self, keys: Int32s, times: Int64s) -> tuple[Int64s, Int32s]:  # noqa: ARG002
        """Return the rows sorted by partition and time, and the partition of each.

        The input is in order of time.
        """
        order, partitions, _ = by_partition(keys, max(len(self.state.keys), 1))
        return order, partitions

    def _keep_recent(self, new: pa.Table, content: SortedTuples, recent: Bools) -> None:
        """Store the rows that later windows may contain.

        Older rows may remain in the state for a while.
        """
        self.state.pieces = keep_needed(self.state.pieces, new, content.in_table(recent))

    def _keep_changes(self, new: pa.Table, content: SortedTuples) -> None:
        """Store only the rows that determine the results of unbounded windows.

        A row with an empty period must not be stored without its successor. Otherwise the period of the row
        would last until the next stored row.
        """
        self._keep(new, content, content.changes())

    def _keep(self, new: pa.Table, content: SortedTuples, needed: Bools) -> None:
        self.state.pieces = keep_needed(self.state.pieces, new, content.in_table(needed), exactly=True)

    def _is_change(self, begins: Int64s, ends: Int64s, now: Int64s | int) -> Bools:
        """Return a mask of result rows that changed since the previous slide (L8).

        A result row changes if its run of equal values begins or ends.
        """
        before = now - self._slide
        changed: Bools = (begins >= before) | ((ends >= before) & (ends < now))
        return changed

    def _output(self, content: SortedTuples, spans: RunSpans, seqs: Int64s, arrivals: Int64s) -> pa.Table:
        """Return the result rows of windows.

        `seqs` and `arrivals` have the sequence number and arrival time of each window's rows.
        """
        found = runs_in_windows(content.runs, spans)
        if self._changes:
            changed = np.flatnonzero(self._is_change(found.begins, found.ends, spans.ends[found.windows]))
            found = WindowRuns(*(column[changed] for column in found))
        keys = self.state.keys.values(content.partitions[found.indices]) if self._heads else []
        heads = [keys[index] for index in self._heads]
        indices = pa.array(found.indices)
        values = [column.take(indices) for column in content.values]
        times = [pa.array(ends).cast(pa.timestamp("us", tz="UTC")) for ends in (found.begins, found.ends)]
        period = pa.StructArray.from_arrays(times, names=["begin", "end"])
        system = [pa.array(of_windows[found.windows]) for of_windows in (spans.ends, seqs, arrivals)]
        flags = [pa.array(found.ends == spans.ends[found.windows])] if self._tells_open else []
        return pa.table([*system, *heads, *values, period, *flags], names=[TS, SEQ, ARRIVAL, *self._names])


# Runs: adjacent periods of equal values, and their parts in windows (L3, L4)


class Runs(NamedTuple):
    """Tuples with a non-empty period, and the runs of equal values that they form.

    `indices` are the positions of these tuples among the sorted rows. `numbers` are their run numbers.
    """

    indices: Int64s
    partitions: Int32s
    begins: Int64s
    numbers: Int64s
    firsts: Int64s  # index of the first tuple of each run
    ends: Int64s  # end of the period of each run


class WindowRuns(NamedTuple):
    """Result rows: window, a row with the values, and period in the window."""

    windows: Int64s
    indices: Int64s
    begins: Int64s
    ends: Int64s


def runs_of(partitions: Int32s, ts: Int64s, selected: Bools, values: Sequence[pa.Array]) -> Runs:
    """Return the runs of equal values in rows that are sorted by partition and arrival."""
    ends = ends_of(partitions, ts)
    indices = np.flatnonzero(selected & (ends > ts))
    begins, ends, of = ts[indices], ends[indices], partitions[indices]
    begun = np.ones(len(indices), np.bool_)
    begun[1:] = (
        (of[1:] != of[:-1])
        | (begins[1:] != ends[:-1])
        | ~equals_predecessor([column.take(pa.array(indices)) for column in values])
    )
    firsts = np.flatnonzero(begun)
    lasts = np.append(firsts[1:], len(indices))[: len(firsts)] - 1
    return Runs(indices, of, begins, np.cumsum(begun) - 1, firsts, ends[lasts])


def ends_of(partitions: Int32s, ts: Int64s) -> Int64s:
    """Return the end of each row's period: the time of the partition's next row."""
    ends = np.full(len(ts), FOREVER)
    follows = partitions[1:] == partitions[:-1]
    ends[:-1][follows] = ts[1:][follows]
    return ends


def runs_in_windows(runs: Runs, spans: RunSpans) -> WindowRuns:
    """Return the part of each run of equal values that lies in each window.

    The part begins with the first tuple in the window, and ends no later than the window.
    """
    first = runs.numbers[spans.starts]
    counts = runs.numbers[spans.stops - 1] - first + 1
    windows = np.repeat(np.arange(len(counts)), counts)
    indices = np.arange(len(windows)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = first[windows] + indices
    tuples = np.maximum(runs.firsts[numbers], spans.starts[windows])
    ends = np.minimum(runs.ends[numbers], spans.ends[windows])
    return WindowRuns(windows, runs.indices[tuples], runs.begins[tuples], ends)


def equals_predecessor(values: Sequence[pa.Array]) -> Bools:
    """Return the mask of rows that equal their predecessor.

    The mask has no element for the first row.
    """
    same = np.ones(max(len(values[0]) - 1, 0), np.bool_)
    for column in values:
        for plain in comparable(column):
            left, right = plain[:-1], plain[1:]
            equal = pc.fill_null(pc.equal(left, right), False)
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return same


# Windows as row ranges
#
# Rows are sorted by partition, then by time. A window is a range [start, stop) of rows, with an end time
# `end`.


class RunSpans(NamedTuple):
    starts: Int64s
    stops: Int64s
    ends: Int64s

    def in_order(self, by: Int64s) -> RunSpans:
        return self.take(np.argsort(by, kind="stable"))

    def take(self, indices: Int64s) -> RunSpans:
        return RunSpans(self.starts[indices], self.stops[indices], self.ends[indices])


@kernel
def windows_of_time(
    partitions: Int32s, begins: Int64s, slide: int, extent: int, first: int, last: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Return the row ranges of the non-empty windows, which end at multiples of `slide`.

    `first` and `last` are the numbers of the first and the last multiple. A window with end e has the rows of
    its partition that begin in [e - extent, e). Times without rows are skipped.
    """
    starts, stops, ends = np.empty(16, np.int64), np.empty(16, np.int64), np.empty(16, np.int64)
    found, head = 0, 0
    while head < len(begins):
        tail = head
        while tail < len(begins) and partitions[tail] == partitions[head]:
            tail += 1
        number = max(first, begins[head] // slide + 1)
        start = stop = head
        while number <= last:
            end = number * slide
            while stop < tail and begins[stop] < end:
                stop += 1
            while start < tail and begins[start] < end - extent:
                start += 1
            if start == tail:
                break
            if start == stop:
                number = max(number + 1, begins[start] // slide + 1)
                continue
            if found == len(starts):
                starts, stops, ends = _double_length(starts), _double_length(stops), _double_length(ends)
            starts[found], stops[found], ends[found] = start, stop, end
            found += 1
            number += 1
        head = tail
    return starts[:found], stops[:found], ends[:found]


@kernel
def _double_length(values: Int64s) -> Int64s:
    out = np.empty(2 * len(values), np.int64)
    for index in range(len(values)):
        out[index] = values[index]
    return out


# Accuracy of the results after load shedding, computed on columns (L13)


class RunPieces(NamedTuple):
    """Runs of equal values, or the parts of runs that load shedding left, as columns."""

    runs: Int64s
    partitions: Int64s
    codes: Int64s
    begins: Int64s
    ends: Int64s

    def take(self, chosen: Bools | Int64s) -> RunPieces:
        return RunPieces(*(column[chosen] for column in self))

    def merge_adjacent(self) -> RunPieces:
        """Merge the adjacent parts of each run of equal values.

        Merged parts are ordered by partition and time.
        """
        here = self.take(np.lexsort((self.begins, self.partitions)))
        if not len(here.runs):
            return here
        begun = np.ones(len(here.runs), np.bool_)
        begun[1:] = (here.runs[1:] != here.runs[:-1]) | (here.begins[1:] != here.ends[:-1])
        firsts = np.flatnonzero(begun)
        lasts = np.append(firsts[1:], len(begun)) - 1
        return here.take(firsts)._replace(ends=here.ends[lasts])


def sums(exact: RunPieces, left: RunPieces, wanted: Callable[[RunPieces], RunPieces]) -> AccuracySums:
    """Return numerator and denominator of the accuracy of one output.

    `exact` has the runs without load shedding, and `left` the remaining parts of runs. `wanted` selects the
    rows that the query uses.
    """
    exact, left = wanted(exact), wanted(left)
    order = np.argsort(exact.runs)
    runs: Any = exact.runs[order]
    index = np.searchsorted(runs, left.runs)
    known = (index < len(runs)) & (np.append(runs, -1)[np.minimum(index, len(runs))] == left.runs)
    lengths = np.bincount(index[known], (left.ends - left.begins)[known], len(runs))
    counts = np.bincount(index[known], minlength=len(runs))
    shares = lengths / (exact.ends - exact.begins)[order]
    return AccuracySums(float(shares.sum()), int(np.maximum(counts, 1).sum() + (~known).sum()))
