"""Execution of temporal queries, which merge adjacent periods of equal values.

A *run* (value run) is a sequence of tuples with equal values and adjacent periods, which becomes one result
row. Kernels (compiled loops) evaluate most queries. Queries whose shedding method has no kernel are evaluated
row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.catalog.queries import FrameUnit
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.columns.keys import Keys, distinct_keys
from slicemill.columns.order import Numbering, renumber
from slicemill.columns.pieces import Slice, keep_needed
from slicemill.columns.ranges import FOREVER, by_partition, running_totals
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.step import StepContext
from slicemill.operators.temporal import shedding as m
from slicemill.operators.temporal.coalesce import (
    ARRIVAL,
    KEY,
    NUMBER,
    NUMBERED,
    SELECTED,
    SEQ,
    TIME,
    TS,
    Coalescing,
    CoalescingState,
    RunPieces,
    RunSpans,
    SortedTuples,
    sums,
    windows_of_time,
)
from slicemill.operators.temporal.rows import BudgetState, shedding_rows
from slicemill.operators.temporal.shedding import expire, samples, take, unpack_memory
from slicemill.operators.temporal.spec import Coalesce
from slicemill.shedding.accuracy import SEED, AccuracyReport, MemoryReport, run_sample_size, thin_slides
from slicemill.shedding.methods import method_of
from slicemill.time import BEFORE_ALL, BEGINNING
from slicemill.types import Schema


class CoalesceStep:
    """Operator step that evaluates one temporal query."""

    def __init__(self, coalescing: Coalescing, output: pa.Schema, numbering: Numbering) -> None:
        # Timestamp of the last tuple in all subtasks, set before each micro-batch.
        self.latest_elsewhere = BEGINNING
        self._coalescing = coalescing
        self._output = output
        self._numbering = numbering

    @property
    def state(self) -> CoalescingState:
        return self._coalescing.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, until = self._coalescing.run(tables[0], complete[0], self.latest_elsewhere)
        if table is None:
            return self._output.empty_table(), until
        return self._numbering.apply(table).cast(self._output), until

    @property
    def latest_ts(self) -> int:
        return self._coalescing.state.now

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:
        """Return the report of dropped tuples, if the query has a memory budget."""
        state = self._coalescing.state
        return {node_id: state.report} if isinstance(state, BudgetState) else {}

    def due(self) -> int | None:
        return self._coalescing.due()


def _kind_of(operator: Coalesce) -> type[Coalescing]:
    if operator.late is not None:
        return CoalescingWithLate
    return CoalescingByRows if operator.window.frame is FrameUnit.ROWS else CoalescingByTime


def coalesce(operator: Coalesce, context: StepContext) -> CoalesceStep | RowStep:
    budget = operator.budget
    if budget is None:
        state = context.state if isinstance(context.state, CoalescingState) else CoalescingState()
        coalescing = _kind_of(operator)(operator, context.schemas[0], context.node.schema.names, state)
        numbering = Numbering(context.seq_bits, fans=True)
        return CoalesceStep(coalescing, with_system_columns(to_arrow(context.node.schema)), numbering)
    output = context.node.schema
    if operator.window.frame is FrameUnit.ROWS or not budget.compiled:
        return row_step(shedding_rows(operator, budget, context.schemas[0], output), context)
    known = context.state if isinstance(context.state, BudgetState) else BudgetState()
    budgeted = BudgetedByTime(operator, context.schemas[0], output.names, output, known)
    # All partitions share one tuple store, so there is a single subtask, and output rows can be renumbered.
    return CoalesceStep(budgeted, with_system_columns(to_arrow(output)), Numbering())


# Coalescing over windows of rows: the last n tuples, with output at each m-th tuple


class CoalescingByRows(Coalescing):
    """Coalescing over the last n tuples, with output at each m-th tuple.

    The output has the timestamp of the m-th tuple. The tuple itself is not in the output, because its period
    is empty.
    """

    def due(self) -> int | None:
        return None

    def _report(self, new: pa.Table, arrivals: Int64s, ended: bool) -> pa.Table | None:  # noqa: ARG002
        state, count = self.state, max(len(self.state.keys), 1)
        if not len(new):
            return None
        state.arrived = np.concatenate([state.arrived, np.zeros(count - len(state.arrived), np.int64)])
        keys: Int32s = numbers(new.column(KEY).combine_chunks())
        order, partitions, _ = by_partition(keys, count)
        number = np.empty(len(new), np.int64)
        number[order] = running_totals(partitions, np.ones(len(new), np.int64), state.arrived)
        new = new.append_column(NUMBER, pa.array(number))
        state.arrived = state.arrived + np.bincount(keys, minlength=count)

        content = self._content(new)
        counted: Int64s = numbers(content.table.column(NUMBER).combine_chunks())[content.order]
        old = len(content.table) - len(new)
        reports = np.flatnonzero((content.order >= old) & (counted % self._slide == 0))
        begin = np.searchsorted(content.partitions, content.partitions[reports], "left")
        if self._extent is not None:
            begin = np.maximum(begin, reports - (self._extent - 1))
        starts, stops = (np.searchsorted(content.runs.indices, edge, "left") for edge in (begin, reports))
        some = stops > starts
        arrived = content.order[reports][some] - old
        spans = RunSpans(starts[some], stops[some], content.ts[reports][some]).in_order(arrived)
        arrived = np.sort(arrived)
        seqs: Int64s = numbers(new.column(NUMBERED).combine_chunks())
        out = self._output(content, spans, seqs[arrived], arrivals[arrived])
        if self._extent is None:
            self._keep_changes(new, content)
        else:
            self._keep_recent(new, content, counted > state.arrived[content.partitions] - self._extent)
        return out


# Coalescing over windows of time, in which tuples wait until the slide ends


_FEW_KEYS = 1000


class CoalescingByTime(Coalescing):
    """Coalescing over windows of time, with output at each multiple of the slide.

    There is no output while the window is empty.
    """

    def due(self) -> int | None:
        state = self.state
        if state.closed is None or not state.pieces or state.finished:
            return None
        return state.closed + self._slide

    def _report(self, new: pa.Table, arrivals: Int64s, ended: bool) -> pa.Table | None:  # noqa: ARG002
        state, slide = self.state, self._slide
        if state.closed is None and len(new):
            state.closed = int(new.column(TIME)[0].as_py()) // slide * slide
        if state.closed is None or state.finished:
            return None
        state.finished = ended
        rows = len(new) + sum(len(piece.table) for piece in state.pieces)
        if not rows:
            state.closed = max(state.closed, state.now // slide * slide)
            return None
        if not ended and state.now < state.closed + slide:
            state.pieces = keep_needed(state.pieces, new, np.ones(rows, np.bool_))
            return None
        content = self._content(new)
        runs, first, last = content.runs, state.closed // slide + 1, state.now // slide
        if ended:
            # An unbounded window never becomes empty, but its content does not change after the end of input.
            last = last + 1 if self._extent is None else FOREVER // slide
        extent = FOREVER if self._extent is None else self._extent
        spans = RunSpans(*windows_of_time(runs.partitions, runs.begins, slide, extent, first, last))
        # Partitions are ordered by the first tuple in their output.
        numbered: Int64s = numbers(content.table.column(NUMBERED).combine_chunks())[content.order]
        seqs = numbered[runs.indices[spans.starts]]
        order = np.lexsort((seqs, spans.ends))
        out = self._output(content, spans.take(order), seqs[order], np.zeros(len(order), np.int64))
        state.closed = last * slide
        if self._extent is None:
            self._keep_changes(new, content)
        else:
            self._keep_recent(new, content, content.ts >= (last + 1) * slide - extent)
        self._forget_keys()
        return out

    def _forget_keys(self) -> None:
        """Evict partitions without tuples if there are many partitions."""
        state = self.state
        if len(state.keys) <= 2 * sum(len(piece.table) for piece in state.pieces) + _FEW_KEYS:
            return
        alive = np.zeros(len(state.keys), np.bool_)
        for piece in state.pieces:
            alive[_keys(piece)] = True
        renumbered = state.keys.keep(alive)
        state.pieces = [
            Slice(piece.table.set_column(0, KEY, pa.array(renumbered[_keys(piece)])))
            for piece in state.pieces
        ]


def _keys(piece: Slice) -> Int32s:
    found: Int32s = numbers(piece.table.column(KEY).combine_chunks())
    return found


# Temporal queries with late tuples, which split and merge runs of equal values in later output (L5)
#
# Late tuples are in the input at the time of their arrival. The output of a slide has the tuples that arrived
# before the end of the slide. The period of a late tuple begins at its event time. The output therefore
# depends on the order of arrival, and not on the division of the input into micro-batches.


class CoalescingWithLate(CoalescingByTime):
    """Coalescing over windows of time, with late tuples sorted in by event time."""

    def __init__(
        self, operator: Coalesce, schema: Schema, names: Sequence[str], state: CoalescingState
    ) -> None:
        super().__init__(operator, schema, names, state)
        assert operator.late is not None, "the caller has checked this"
        self._column, self._within = operator.late.column, operator.late.within_us

    def run(
        self, table: pa.Table, complete: int, latest_elsewhere: int = BEFORE_ALL
    ) -> tuple[pa.Table | None, int]:
        arrived, begun = _integers(table.column(TS)), self._event_times(table)
        in_time = arrived - begun <= self._within
        if not in_time.all():
            table, arrived, begun = table.filter(pa.array(in_time)), arrived[in_time], begun[in_time]
        if self.state.closed is None and len(arrived):
            self.state.closed = int(arrived[0]) // self._slide * self._slide
        reports, start = [], 0
        for index in self._first_of_slides(arrived, begun):
            # The output before the arrival of the late tuple must not include the late tuple.
            before = int(arrived[index]) // self._slide * self._slide
            reports.append(super().run(table.slice(start, index - start), before)[0])
            start = index
        last, until = super().run(table.slice(start), complete, latest_elsewhere)
        made = [report for report in (*reports, last) if report is not None]
        return (pa.concat_tables(made) if made else None), until

    def _event_times(self, table: pa.Table) -> Int64s:
        return _integers(table.column(self._column).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))

    def _first_of_slides(self, arrived: Int64s, begun: Int64s) -> list[int]:
        """Return the first late tuple of each slide with late tuples."""
        late = np.flatnonzero(begun < arrived)
        _, firsts = np.unique(arrived[late] // self._slide, return_index=True)
        return [int(index) for index in late[firsts]]

    def _stored_columns(self, table: pa.Table) -> tuple[pa.Table, Int64s]:
        new, arrivals = super()._stored_columns(table)
        return new.set_column(
            new.schema.get_field_index(TIME), TIME, pa.array(self._event_times(table))
        ), arrivals

    def _sorted(self, keys: Int32s, times: Int64s) -> tuple[Int64s, Int32s]:
        order = np.lexsort((times, keys))
        return order, keys[order]

    def _keep_changes(self, new: pa.Table, content: SortedTuples) -> None:
        """Store tuples with equal values unmerged while a late tuple may split them."""
        assert self.state.closed is not None, "a slide has ended"
        needed = content.changes() | (content.ts >= self.state.closed - self._within)
        self._keep(new, content, needed)


def _integers(column: pa.ChunkedArray) -> Int64s:
    found: Int64s = numbers(pc.fill_null(column, 0).combine_chunks())
    return found


# Coalescing over windows of time with a memory budget: the compiled implementation of `temporal.rows`
#
# Tuples are added one by one to the compiled tuple store, slide by slide. At the end of a slide, the tuples
# that were not dropped are merged into runs, and the accuracy is computed. These two steps operate on whole
# columns.


_ALWAYS = -(2**62)


class BudgetedByTime(Coalescing):
    """Coalescing over windows of time, of the tuples that load shedding has not dropped."""

    state: BudgetState

    def __init__(
        self, operator: Coalesce, schema: Schema, names: Sequence[str], output: Schema, state: BudgetState
    ) -> None:
        super().__init__(operator, schema, names, state)
        assert operator.budget is not None
        method = method_of(operator.budget.method, operator.budget.threshold, weights=operator.budget.weights)
        threshold = -1 if method.threshold is None else method.threshold
        self._capacity = operator.budget.capacity
        limit = run_sample_size(self._capacity)
        inner = method.split == 0 and method.threshold is None
        self._rule = m.SheddingRule(
            method.blind, inner, method.lost, method.lookahead, threshold, method.seed, SEED, limit
        )
        self._wanted = None if operator.wanted is None else compile_vector(operator.wanted, output)
        # The tuple store is unpacked only during a micro-batch. Otherwise the state has the packed tuples.
        self._memory = m.empty(0, 0)
        self._values = Keys()
        self._now = 0  # end time of the current slide
        if state.memory is None:
            state.report = MemoryReport(capacity=self._capacity)

    def _unpack(self, new_tuples: int) -> None:
        """Unpack the stored tuples, with room for new tuples within the budget."""
        stored = self.state.memory or m.pack_memory(self._memory)
        room = min(self._capacity, len(stored.tuples) + new_tuples)
        self._memory = unpack_memory(stored, room, self.state.partitions, self._rule)
        self._values = Keys.restored(**self.state.values)

    def _pack(self) -> None:
        self.state.store(m.pack_memory(self._memory), self._values)
        self._memory, self._values = m.empty(0, 0), Keys()

    def due(self) -> int | None:
        return self.state.next_end

    def _report(self, new: pa.Table, arrivals: Int64s, ended: bool) -> pa.Table | None:  # noqa: ARG002
        state = self.state
        missing = max(len(state.keys), 1) - len(state.partitions)
        state.partitions = np.concatenate([state.partitions, m.new_partitions(max(missing, 0))])
        self._unpack(len(new))
        columns = [new.column(name) for name in self._attributes]
        codes = self._values.number(distinct_keys(columns, len(new)), columns).astype(np.int64)
        keys = numbers(new.column(KEY).combine_chunks()).astype(np.int64)
        chosen = new.column(SELECTED).to_numpy().astype(np.int64)
        ts: Int64s = numbers(new.column(TIME).combine_chunks())
        out, start = [], 0
        while True:
            if state.next_end is None:
                if start == len(ts):
                    break
                state.next_end = (int(ts[start]) // self._slide + 1) * self._slide
            stop = int(np.searchsorted(ts, state.next_end, "left"))
            tuples = [column[start:stop] for column in (keys, ts, codes, chosen)]
            horizon = self._horizon(state.next_end)
            take(self._memory, state.partitions, self._rule, self._capacity, horizon, *tuples)
            start = stop
            if start == len(ts) and not ended and state.now < state.next_end:
                break
            out.append(self._end_slide(state.next_end, ended and start == len(ts)))
        self._count()
        self._pack()
        if not out:
            return None
        table = renumber(pa.concat_tables(out), state.next_seq)
        state.next_seq += table.num_rows
        return table

    def _horizon(self, end: int) -> int:
        return _ALWAYS if self._extent is None else end - self._extent

    def _end_slide(self, end: int, last: bool) -> pa.Table:
        """End a slide; return the result rows of its window."""
        state = self.state
        self._expire(end)
        out = self._results(end)
        goes_on = bool(state.partitions[:, m.ALIVE].any()) and not (self._extent is None and last)
        state.next_end = end + self._slide if goes_on else None
        # Tuples that no later window contains expire now, so that the store has room before the next
        # slide ends.
        self._expire(end + self._slide)
        return out

    def _expire(self, end: int) -> None:
        if self._extent is not None:
            expire(self._memory, self.state.partitions, self._rule, end - self._extent)

    def _count(self) -> None:
        counts, report = self._memory.counts, self.state.report
        report.arrived, report.runs, report.dropped = (
            int(counts[index]) for index in (m.ARRIVED, m.RUNS, m.DROPPED)
        )
        report.sampled = 0.5 ** int(counts[m.HALVINGS])

    # -- results and accuracy --------------------------------------------------------------------------

    def _results(self, now: int) -> pa.Table:
        state, slots, partitions = self.state, self._memory.slots, self.state.partitions
        kept = slots[slots[:, m.PART] != m.NONE]
        open_ = (
            (partitions[:, m.ALIVE] == 1) & (partitions[:, m.CHOSEN] == 1) & (partitions[:, m.SINCE] < now)
        )
        newest = partitions[open_]
        tuples = RunPieces(
            np.append(kept[:, m.RUN], newest[:, m.NEW_RUN]),
            np.append(kept[:, m.PART], np.flatnonzero(open_)),
            np.append(kept[:, m.CODE], newest[:, m.NEW_CODE]),
            np.append(kept[:, m.BEGIN], newest[:, m.SINCE]),
            np.append(kept[:, m.END], np.full(len(newest), now)),
        )
        left = tuples.merge_adjacent()
        self._now = now
        self._count()
        state.report.in_window = self._in_window(now)
        emitted = left.take(self._is_change(left.begins, left.ends, now)) if self._changes else left
        table = self._table(emitted)
        state.report.add(now, sums(*self._exact_and_remaining(left, tuples, len(kept), now), self._selects))
        return table

    def _exact_and_remaining(
        self, left: RunPieces, tuples: RunPieces, kept: int, now: int
    ) -> tuple[RunPieces, RunPieces]:
        """Return the sampled runs of equal values without shedding, and as they remain."""
        counts = self._memory.counts
        shadow = self._memory.shadow[: counts[m.SHADOW]]
        sampled = left.take(_samples(left.runs, int(counts[m.HALVINGS])))
        begins, horizon = shadow[:, m.S_BEGIN].copy(), self._horizon(now)
        first_runs, first = np.unique(sampled.runs, return_index=True)
        index = np.searchsorted(first_runs, shadow[:, m.S_RUN])
        known = (index < len(first_runs)) & (
            np.append(first_runs, -1)[np.minimum(index, len(first_runs))] == shadow[:, m.S_RUN]
        )
        firsts = np.append(sampled.begins[first], horizon)[np.where(known, index, len(first_runs))]
        cut = begins < horizon
        begins[cut] = np.where(shadow[cut, m.S_LOST] < horizon, firsts[cut], horizon)
        newest = tuples.take(np.arange(len(tuples.runs)) >= kept)
        newest = newest.take(_samples(newest.runs, int(counts[m.HALVINGS])))
        goes_on = np.isin(shadow[:, m.S_RUN], newest.runs)
        ends = np.where(goes_on, now, shadow[:, m.S_END])
        alone = newest.take(~np.isin(newest.runs, shadow[:, m.S_RUN]))
        whole = RunPieces(
            np.append(shadow[:, m.S_RUN], alone.runs),
            np.append(shadow[:, m.S_PART], alone.partitions),
            np.append(shadow[:, m.S_CODE], alone.codes),
            np.append(begins, alone.begins),
            np.append(ends, alone.ends),
        )
        return whole, sampled

    def _selects(self, pieces: RunPieces) -> RunPieces:
        if self._wanted is None or not len(pieces.runs):
            return pieces
        selected = self._wanted(self._table(pieces)).fill_null(False)
        return pieces.take(selected.to_numpy())

    def _table(self, pieces: RunPieces) -> pa.Table:
        keys = self.state.keys.values(pieces.partitions) if self._heads else []
        values = self._values.values(pieces.codes)
        times = [pa.array(t).cast(pa.timestamp("us", tz="UTC")) for t in (pieces.begins, pieces.ends)]
        period = pa.StructArray.from_arrays(times, names=["begin", "end"])
        # The watermark triggers these rows, so no tuple determines their arrival time.
        system = [pa.array(np.full(len(pieces.runs), number, np.int64)) for number in (self._now, 0, 0)]
        flags = [pa.array(pieces.ends == self._now)] if self._tells_open else []
        columns = [*system, *(keys[index] for index in self._heads), *values, period, *flags]
        return pa.table(columns, names=[TS, SEQ, ARRIVAL, *self._names])

    def _in_window(self, now: int) -> int:
        """Return the number of tuples in the current windows, accurate to one slide."""
        arrived, until = self.state.report.arrived, self.state.until
        if self._extent is None:
            return arrived
        until.append((now, arrived))
        thin_slides(until)
        while len(until) > 1 and until[1][0] <= now - self._extent:
            until.popleft()
        return arrived - (until[0][1] if until[0][0] <= now - self._extent else 0)


def _samples(runs: Int64s, halvings: int) -> Bools:
    if not halvings:
        return np.ones(len(runs), np.bool_)
    return np.fromiter((samples(run, halvings, SEED) for run in runs.tolist()), np.bool_, len(runs))
