"""State and evaluation of OVER calls with the same PARTITION BY and window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.columns import ColumnStatistic, Rows, Windows
from slicemill.aggregates.functions import counts_ones, function_of, is_numbered
from slicemill.aggregates.moments import ColumnMoments
from slicemill.aggregates.synopses import is_one
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.codec.registry import stored_as
from slicemill.columns.pieces import Slice, drop_first_rows, keep_needed
from slicemill.columns.ranges import (
    FOREVER,
    RowRanges,
    by_number,
    by_partition,
    ends_until,
    last_of_each,
    running_totals,
    starts_from,
)
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.operators.window.running import GroupedRows, RunningAggregate, adopt_past, running_aggregate
from slicemill.time import BEFORE_ALL

KEY, TIME, SEQUENCE, NUMBER, WEIGHT, TUPLE = "key", "ts", "seq", "number", "weight", "tuple."
LEAST_PANE = 32  # minimum number of rows in a pane; a smaller pane needs more memory than it saves


@stored_as("over.group", version=2, upgrade={1: lambda plain: {**plain, "running": None, "last": None}})
@dataclass(slots=True)
class OverGroupState:
    """State of a group of OVER calls: rows that later windows read.

    The first `passed` rows have expired. `ones` has for each call the number of values equal to 1 in each
    partition since the query started.

    A window with SLIDE that is unbounded or counts rows in panes has compacted rows in `past`. `summaries`
    are their accumulators, if rows alone are not sufficient.

    An unbounded window without SLIDE has one accumulator per partition in `running`, if the aggregate
    supports accumulators. Otherwise `last` has the compacted rows of each partition. For a window that counts
    rows, `last` has the last rows of each partition. Version 1 of the state had these rows in `past` and
    `slices`.
    """

    slices: list[Slice] = field(default_factory=list)
    passed: int = 0
    ones: dict[int, Int64s] = field(default_factory=dict)
    past: pa.Table | None = None
    summaries: NDArray[np.object_] | None = None
    running: RunningAggregate | None = None
    last: RowRanges | None = None


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """Input of one micro-batch: the partition of each new tuple, and the watermarks before and after."""

    partitions: NDArray[np.int32]
    count: int  # number of partitions
    arrived: Int64s  # number of earlier tuples of each partition
    before: int
    now: int


@dataclass(frozen=True, slots=True)
class WindowAnswers:
    """Results of OVER calls for tuples, which `sequence` identifies by sequence number.

    `overtaken` are the tuples that have no result because a later tuple is in the same slot. `expired` are
    the tuples that left the window, with the results `expired_values`.
    """

    sequence: Int64s
    values: list[pa.Array]
    overtaken: Int64s
    expired: pa.Table | None = None
    expired_values: list[pa.Array] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows sorted by partition, then by arrival.

    `order` has the index of each sorted row in `table`. The first `stored` rows of `table` are from earlier
    micro-batches. `read` marks the stored rows that this micro-batch reads. Partitions without new tuples are
    not evaluated.
    """

    table: pa.Table
    stored: int
    read: Bools
    order: Int64s
    partitions: NDArray[np.int32]
    ts: Int64s
    head: Int64s
    numbers: Int64s | None
    ones: dict[int, Int64s]

    @property
    def fresh(self) -> Bools:
        return self.order >= self.stored


class OverGroup:
    """Evaluator of OVER calls that share stored rows.

    `indices` has the argument columns of each call. All calls have the same window, or windows of several
    lengths that read only the rows in their window (`is_plain`). Rows are stored for the longest window.
    """

    def __init__(self, calls: Sequence[WindowCall], indices: Sequence[Sequence[int]]) -> None:
        self.window = window = max((call.window for call in calls), key=_reach)
        self._windows = [call.window for call in calls]
        self._functions = [function_of(call) for call in calls]
        self._indices = indices
        self.columns = sorted({column for of_call in indices for column in of_call})
        self._ones = [index for index, call in enumerate(calls) if counts_ones(call)]
        self.by_rows = window.frame is FrameUnit.ROWS
        self.waits = window.active or (window.slide is not None and not self.by_rows)
        self.numbered = any(map(is_numbered, calls)) or (window.slide is not None and self.by_rows)
        # Number of rows that are combined to one stored row (pane, M35); None if rows are not combined.
        self.pane = pane_of(window, calls)
        # True if a call counts all tuples since the start, so that partitions without rows are not evicted.
        self.counts_forever = self.numbered or bool(self._ones) or window.extent is None
        self._call = calls[0]
        # `plain` is True if each window begins with the first row of the partition and ends at its tuple.
        plain = window.extent is None and window.slide is None
        self._has_accumulator = plain and running_aggregate(calls[0]) is not None
        # Sums of powers (moments) without a running accumulator are stored as summaries of the stored rows.
        without_moments = plain and not isinstance(self._functions[0], ColumnMoments)
        counted_back = self.by_rows and window.extent is not None
        self._by_partition = self.pane is None and (without_moments or counted_back)

    def run(self, state: OverGroupState, span: GroupSpan, new: pa.Table) -> WindowAnswers:
        """Process the new rows of a micro-batch, and return the results of the calls.

        `new` has the columns TIME, SEQUENCE and the call arguments. For ACTIVE expiry, `new` also has all
        columns of the tuples.
        """
        if self._has_accumulator:
            return self._accumulate(state, span, new)
        if self._by_partition:
            self._adopt_rows(state, span)
        rows = self._sorted(state, span, new)
        asked, overtaken = self._asked(rows, span)
        seen = self._rows(rows, self._summaries(state, rows))
        windows = {
            window: Windows(self._starts(rows, window)[asked], asked + 1)
            for window in dict.fromkeys(self._windows)
        }
        answers = WindowAnswers(
            _numpy(rows.table, SEQUENCE)[rows.order[asked]],
            self._values(seen, [windows[window] for window in self._windows]),
            _numpy(rows.table, SEQUENCE)[rows.order[overtaken]],
            *self._expired(rows, span, seen),
        )
        self._keep(state, rows, span, seen)
        return answers

    def _accumulate(self, state: OverGroupState, span: GroupSpan, new: pa.Table) -> WindowAnswers:
        """Evaluate an unbounded window with one running accumulator for each partition."""
        if state.running is None:
            state.running = running_aggregate(self._call)
            assert state.running is not None, "seen when the group was made"
            if state.past is not None and len(state.past):
                numbered = _numpy(state.past, KEY)
                weights = _numpy(state.past, WEIGHT)
                arguments = [state.past.column(str(c)).combine_chunks() for c in self._indices[0]]
                past = Rows(numbered, arguments, weights, summaries=state.summaries)
                adopt_past(state.running, past, span.count, self._call)
            state.past = state.summaries = None
        rows = GroupedRows.of(span.partitions, span.count)
        arguments = [new.column(str(column)).combine_chunks() for column in self._indices[0]]
        values = state.running.run(rows, arguments, self._call)
        return WindowAnswers(_numpy(new, SEQUENCE), [values], np.zeros(0, np.int64))

    def _adopt_rows(self, state: OverGroupState, span: GroupSpan) -> None:
        """Convert a state of version 1, which has rows in order of arrival, to rows by partition (`last`)."""
        if state.last is None:
            state.last = RowRanges()
            state.last.reach(span.count)
            if (rows := _kept_rows(state)) is not None:
                order, partitions, _ = by_partition(_numpy(rows, KEY), span.count)
                _replace(state.last, rows.take(pa.array(order)), partitions, np.unique(partitions))
            state.past, state.slices, state.passed = None, [], 0
        state.last.reach(span.count)

    def due(self, state: OverGroupState, now: int) -> int | None:
        """Return the watermark that causes the next output; None if no stored tuple causes output."""
        if not self.waits or now == 2**63 - 1:
            return None
        if self.window.slide is not None:
            end = _slot_end(now, self.window.slide)
            tables = [piece.table for piece in state.slices] + ([state.past] if state.past else [])
            in_slot = any(len(t) and (_numpy(t, TIME) >= end - self.window.slide).any() for t in tables)
            return end if in_slot else None
        for piece in state.slices:
            left = _times_in_window(_numpy(piece.table, TIME), self._extent, now)
            if len(left):
                return int(left[0]) + self._extent + 1
        return None

    @property
    def _extent(self) -> int:
        return _reach(self.window)

    # -- rows ------------------------------------------------------------------------------------------

    def _sorted(self, state: OverGroupState, span: GroupSpan, new: pa.Table) -> SortedRows:
        table = new.add_column(0, KEY, pa.array(span.partitions))
        if self._by_partition:
            before_now, read, old = _rows_of(state, np.unique(span.partitions).astype(np.int64))
        else:
            before_now = _kept_rows(state)
            read = self._read_mask(before_now, span)
            old = int(read.sum())
        zeros = pa.array(np.zeros(len(new), np.int64))
        counted = [NUMBER] * self.numbered + [_ones(index) for index in self._ones]
        for name in counted:
            table = table.append_column(name, zeros)
        if self.window.extent is None or self.pane is not None:
            table = table.append_column(WEIGHT, pa.array(np.ones(len(new), np.int64)))
        if before_now is not None:
            chosen = before_now if old == len(before_now) else before_now.filter(pa.array(read))
            table = pa.concat_tables([chosen, table])
        partitions = _numpy(table, KEY)
        order, sorted_partitions, head = by_number(partitions, span.count)
        fresh = order >= old
        found = {}
        for name in counted:
            mask, before = fresh, span.arrived
            if name != NUMBER:
                index = int(name.removeprefix(_ones("")))
                argument = table.column(str(self._indices[index][0])).combine_chunks()
                mask = fresh & is_one(argument)[order]
                before = _pad_counts(state.ones.get(index), span.count)
                state.ones[index] = before + np.bincount(sorted_partitions[mask], minlength=span.count)
            total = running_totals(sorted_partitions, mask, before) - (name == NUMBER)
            found[name] = np.where(fresh, total, _numpy(table, name)[order])
            stored = np.empty(len(order), np.int64)
            stored[order] = found[name]
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(stored))
        return SortedRows(
            table,
            old,
            read,
            order,
            sorted_partitions,
            _numpy(table, TIME)[order],
            head,
            found.get(NUMBER),
            {index: found[_ones(index)] for index in self._ones},
        )

    def _read_mask(self, rows: pa.Table | None, span: GroupSpan) -> Bools:
        """Return the mask of the stored rows that this micro-batch reads.

        A micro-batch reads the rows of partitions with new tuples. If the watermark alone can cause output,
        it reads all rows.
        """
        if rows is None:
            return np.zeros(0, np.bool_)
        if self.waits:
            return np.ones(len(rows), np.bool_)
        present = np.zeros(span.count, np.bool_)
        present[span.partitions] = True
        found: Bools = present[_numpy(rows, KEY)]
        return found

    def _rows(self, rows: SortedRows, summaries: NDArray[np.object_] | None) -> list[Rows]:
        """Return for each call of the group the sorted argument rows that its aggregate function reads."""
        taken: dict[int, pa.Array] = {}
        order = pa.array(rows.order)
        weights = _numpy(rows.table, WEIGHT)[rows.order] if WEIGHT in rows.table.column_names else None
        seen = []
        for index, columns in enumerate(self._indices):
            for column in columns:
                if column not in taken:
                    taken[column] = rows.table.column(str(column)).combine_chunks().take(order)
            arguments = [taken[column] for column in columns]
            seen.append(
                Rows(rows.partitions, arguments, weights, rows.numbers, rows.ones.get(index), summaries)
            )
        return seen

    def _values(self, seen: Sequence[Rows], windows: Sequence[Windows]) -> list[pa.Array]:
        return [f.answers(rows, own) for f, rows, own in zip(self._functions, seen, windows, strict=True)]

    def _summaries(self, state: OverGroupState, rows: SortedRows) -> NDArray[np.object_] | None:
        if state.summaries is None:
            return None
        all_ = np.empty(len(rows.order), np.object_)
        all_[: rows.stored] = state.summaries[rows.read]
        return all_[rows.order]

    # -- windows ---------------------------------------------------------------------------------------

    def _starts(self, rows: SortedRows, window: Window) -> Int64s:
        extent = _reach(window)
        if window.extent is None:
            return rows.head
        if self.pane is not None:
            # Windows begin at the start of a pane, so any row of the pane may represent the pane.
            assert rows.numbers is not None
            return starts_from(rows.head, rows.numbers, rows.numbers - extent)
        if self.by_rows:
            return np.maximum(np.arange(len(rows.order)) - extent, rows.head)
        latest = rows.ts if window.slide is None else _slot_end(rows.ts, window.slide)
        return starts_from(rows.head, rows.ts, latest - extent)

    def _asked(self, rows: SortedRows, span: GroupSpan) -> tuple[Int64s, Int64s]:
        """Return the indexes of sorted rows that cause a result, and of rows that never cause a result.

        With SLIDE, only the last tuple of each slot causes a result.
        """
        slide, nobody = self.window.slide, np.zeros(0, np.int64)
        if slide is None:
            return np.flatnonzero(rows.fresh), nobody
        if self.by_rows:
            assert rows.numbers is not None
            yields = (rows.numbers + 1) % slide == 0
            return np.flatnonzero(rows.fresh & yields), np.flatnonzero(rows.fresh & ~yields)
        ends = _slot_end(rows.ts, slide)
        last = last_of_each(rows.partitions)
        last[:-1] |= ends[1:] != ends[:-1]
        waited = ends > span.before
        return np.flatnonzero(last & waited & (ends <= span.now)), np.flatnonzero(~last & waited)

    def _expired(
        self, rows: SortedRows, span: GroupSpan, seen: Sequence[Rows]
    ) -> tuple[pa.Table | None, list[pa.Array]]:
        if not self.window.active:
            return None, []
        leaves = rows.ts + self._extent
        ends = ends_until(rows.head, rows.ts, leaves)
        # No row is emitted for an expired tuple if its window is empty afterwards (X13).
        going = (leaves >= span.before) & (leaves < span.now) & (ends > np.arange(len(ends)) + 1)
        indices = np.flatnonzero(going)
        values = self._values(seen, [Windows(indices + 1, ends[indices])] * len(seen))
        return rows.table.take(pa.array(rows.order[indices])), values

    # -- state -----------------------------------------------------------------------------------------

    def _keep(self, state: OverGroupState, rows: SortedRows, span: GroupSpan, seen: Sequence[Rows]) -> None:
        if self._by_partition:
            self._keep_last(state, rows, span, seen[0])
            return
        if self.window.extent is None:
            closed = np.ones(len(rows.order), np.bool_)
            if self.waits:
                assert self.window.slide is not None
                closed = _slot_end(rows.ts, self.window.slide) <= span.now
            self._keep_past(state, rows, seen[0], closed)
            return
        if self.pane is not None:
            self._keep_panes(state, rows, span, seen[0], self.pane)
            return
        new = rows.table.slice(rows.stored).combine_chunks()
        if not self.by_rows and self.window.slide is None:
            passed = self._passed([*(piece.table for piece in state.slices), new], span)
            state.slices, state.passed = drop_first_rows(state.slices, new, passed)
            return
        # All stored rows of partitions without new tuples stay, because later windows may read them.
        needed = np.ones(len(rows.read) + len(new), np.bool_)
        indices = np.concatenate([np.flatnonzero(rows.read), np.arange(len(rows.read), len(needed))])
        needed[indices[rows.order]] = self._needed(rows, span)
        state.slices = keep_needed(state.slices, new, needed)

    def _keep_last(self, state: OverGroupState, rows: SortedRows, span: GroupSpan, seen: Rows) -> None:
        """Update the rows that are stored by partition (`last`), for partitions with new tuples.

        The rows of an unbounded window are compacted. Of other windows, the rows that later windows read
        stay.
        """
        if self.window.extent is None:
            sorted_table = rows.table.take(pa.array(rows.order))
            texts = str(self._indices[0][0]) if self._indices[0] else ""
            closed = np.ones(len(rows.order), np.bool_)
            left, _ = put_together(self._functions[0], seen, closed, sorted_table, WEIGHT, texts)
        else:
            left = rows.table.take(pa.array(rows.order[self._needed(rows, span)]))
        assert state.last is not None, "made when the run began"
        _replace(state.last, left, _numpy(left, KEY), np.unique(rows.partitions).astype(np.int64))

    def _keep_panes(
        self, state: OverGroupState, rows: SortedRows, span: GroupSpan, seen: Rows, pane: int
    ) -> None:
        """Combine the rows of each complete pane (range of `pane` rows) that later windows read.

        The last pane of a partition may still get rows.
        """
        assert rows.numbers is not None and self.window.slide is not None
        arrived = span.arrived + np.bincount(span.partitions, minlength=span.count)
        come = arrived[rows.partitions]
        next_answer = (come // self.window.slide + 1) * self.window.slide - 1
        panes = rows.numbers // pane
        gone = rows.numbers < next_answer - self._extent
        new = np.ones(len(panes), np.bool_)
        new[1:] = (panes[1:] != panes[:-1]) | (rows.partitions[1:] != rows.partitions[:-1])
        together = replace(seen, partitions=np.cumsum(new).astype(np.int32))
        self._keep_past(state, rows, together, (panes + 1) * pane <= come, gone)

    def _keep_past(
        self, state: OverGroupState, rows: SortedRows, seen: Rows, closed: Bools, gone: Bools | None = None
    ) -> None:
        """Combine `closed` stored rows, and delete stored rows that no later window reads (`gone`).

        Closed rows are rows of ended slots or complete panes. Closed rows with the same partition number in
        `seen` are combined. Other rows stay unchanged.
        """
        table = rows.table.take(pa.array(rows.order))
        if gone is not None and gone.any():
            stay = np.flatnonzero(~gone)
            table, seen, closed = table.take(pa.array(stay)), subset(seen, stay), closed[stay]
        texts = str(self._indices[0][0]) if self._indices[0] else ""
        past, summaries = put_together(self._functions[0], seen, closed, table, WEIGHT, texts)
        if state.past is not None and not rows.read.all():
            others = ~rows.read
            past = pa.concat_tables([state.past.filter(pa.array(others)), past]).combine_chunks()
            if state.summaries is not None or summaries is not None:
                older = np.full(int(others.sum()), None)
                if state.summaries is not None:
                    older[:] = state.summaries[others]
                newer = np.full(len(past) - len(older), None) if summaries is None else summaries
                summaries = np.concatenate([older, newer])
        state.past, state.summaries = past, summaries

    def _passed(self, tables: Sequence[pa.Table], span: GroupSpan) -> int:
        """Return the number of stored rows that have left a time window."""
        limit, passed = max(span.now - self._extent, BEFORE_ALL), 0
        for table in tables:
            found = int(np.searchsorted(_numpy(table, TIME), limit))
            passed += found
            if found < len(table):
                break
        return passed

    def _needed(self, rows: SortedRows, span: GroupSpan) -> Bools:
        """Return the mask of sorted rows that the windows of later tuples or of open slots read."""
        window = self.window
        if self.by_rows:
            indices = np.arange(len(rows.order))
            last = np.flatnonzero(last_of_each(rows.partitions))
            behind: Int64s = last[np.searchsorted(last, indices)] - indices
            return behind < self._extent
        assert window.slide is not None
        end = _slot_end(span.now, window.slide)
        in_window = rows.ts >= max(end - self._extent, BEFORE_ALL)
        candidate = (_slot_end(rows.ts, window.slide) > span.now) & last_of_each(rows.partitions)
        reached: Bools = in_window | candidate
        return reached


def _reach(window: Window) -> int:
    return FOREVER if window.extent is None else min(window.extent, FOREVER)


def pane_of(window: Window, calls: Sequence[WindowCall]) -> int | None:
    """Return the number of rows that are combined to one pane; None if rows are not combined.

    Rows are combined only if the window counts rows and has a SLIDE, and if its only call is algebraic.
    """
    if window.frame is not FrameUnit.ROWS or window.slide is None or window.extent is None or len(calls) != 1:
        return None
    if window.active or calls[0].distinct or not BUILTINS[calls[0].name.lower()].algebraic:
        return None
    pane = gcd(window.extent + 1, window.slide)
    return pane if pane >= LEAST_PANE else None


def _kept_rows(state: OverGroupState) -> pa.Table | None:
    """Return the stored rows of a call group that have not expired, in order of arrival."""
    if state.past is not None:
        return state.past
    if not state.slices:
        return None
    return pa.concat_tables([piece.table for piece in state.slices]).slice(state.passed)


def _rows_of(state: OverGroupState, partitions: Int64s) -> tuple[pa.Table | None, Bools, int]:
    """Return the stored rows of some partitions, a mask of the rows to read, and the number of rows.

    The mask is True for all rows, because the micro-batch reads all rows of these partitions.
    """
    assert state.last is not None, "made when the run began"
    rows, numbered = state.last.of(partitions)
    if rows is None:
        return None, np.zeros(0, np.bool_), 0
    return rows.add_column(0, KEY, pa.array(numbered)), np.ones(len(rows), np.bool_), len(rows)


def _replace(last: RowRanges, rows: pa.Table, partitions: Any, of: Int64s) -> None:
    """Replace the stored rows of some partitions, whose numbers are in `of`, by `rows`.

    `rows` are sorted by partition, and `partitions` has the partition of each row.
    """
    ends = np.searchsorted(partitions, of, side="right")
    last.replace(of, ends - np.searchsorted(partitions, of), rows.drop_columns([KEY]))


def _ones(index: int | str) -> str:
    return f"ones{index}"


def _numpy(table: pa.Table, name: str) -> Any:
    return numbers(table.column(name).combine_chunks())


def _pad_counts(counts: Int64s | None, length: int) -> Int64s:
    known = np.zeros(0, np.int64) if counts is None else counts
    return np.concatenate([known, np.zeros(length - len(known), np.int64)])


def _slot_end(ts: Any, slide: int) -> Any:
    return (ts // slide + 1) * slide


def _times_in_window(ts: Int64s, extent: int, now: int) -> Int64s:
    """Return the timestamps of tuples that have not left a time window at the watermark `now`."""
    return ts[ts + extent >= now]


# Compaction of the rows of unbounded windows (M31).


def put_together(
    function: ColumnStatistic, rows: Rows, closed: Bools, table: pa.Table, weight: str, text: str
) -> tuple[pa.Table, NDArray[np.object_] | None]:
    """Return the rows that the state stores in place of a sorted table, and their summaries.

    Rows of closed slots are combined. Rows of open slots stay unchanged. `weight` and `text` are the names of
    the columns that change if a stored row replaces several rows.
    """
    indices = np.flatnonzero(closed)
    part = rows if len(indices) == len(rows) else subset(rows, indices)
    ends = np.flatnonzero(last_of_each(part.partitions)) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]
    history = function.history(part, Windows(starts, ends))
    open_ = np.flatnonzero(~closed)
    stay = len(open_)
    kept = table.take(pa.array(np.concatenate([indices[history.indices], open_])))
    if history.weights is not None:
        weights = np.concatenate([history.weights, np.ones(stay, np.int64)])
        kept = _replace_column(kept, weight, pa.array(weights))
    if history.texts is not None:
        unchanged = kept.column(text).combine_chunks().slice(len(kept) - stay)
        kept = _replace_column(kept, text, pa.concat_arrays([history.texts, unchanged]))
    summaries = None
    if history.summaries is not None:
        summaries = np.concatenate([history.summaries, np.full(stay, None)])
    return kept.combine_chunks(), summaries


def _replace_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def subset(rows: Rows, indices: Int64s) -> Rows:
    """Return the rows at the given indexes, as a new object."""
    chosen = pa.array(indices)
    return Rows(
        rows.partitions[indices],
        [argument.take(chosen) for argument in rows.arguments],
        None if rows.weights is None else rows.weights[indices],
        None if rows.numbers is None else rows.numbers[indices],
        None if rows.ones is None else rows.ones[indices],
        None if rows.summaries is None else rows.summaries[indices],
    )
