"""Execution of built-in aggregates with OVER.

Rows are sorted by partition, then by arrival. A window is then a range of neighbouring rows, and windows of
later tuples begin and end later:

    partition   a a a a a | b b b | c c c c
    windows     [---)                            evaluated in order: each kernel adds rows at
                  [-----)                        one end and removes rows at the other
                          [---)

This module evaluates all OVER calls of a query. `over_groups` evaluates the calls with the same window, and
`running` aggregates over unbounded windows. Results are bit-identical to the results of the oracle (reference
implementation), for any division of the input into micro-batches. For example, sums are computed as integers
of arbitrary precision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.aggregates.functions import count_stored_arguments
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.columns.keys import Keys, distinct_keys, extend_array, to_array
from slicemill.columns.order import rank_seqs
from slicemill.columns.pieces import Slice
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.functions.evaluate import compile_many
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type, numbers
from slicemill.kernels.arrays import Int64s
from slicemill.metrics.due_times import trigger_arrivals
from slicemill.operators.step import StepContext
from slicemill.operators.window.over_groups import (
    KEY,
    SEQUENCE,
    TIME,
    TUPLE,
    GroupSpan,
    OverGroup,
    OverGroupState,
    WindowAnswers,
    pane_of,
)
from slicemill.operators.window.spec import SharedOver, WindowAggregate, is_plain
from slicemill.operators.window.step import Emission, WindowOutput
from slicemill.time import BEFORE_ALL, END
from slicemill.types import Schema

# Built-in OVER aggregates that read only the rows in their window, for all queries of one stream and key.
#
# A cohort is the set of queries that started together. The rows of the longest window in the cohort are
# stored once for all its queries. A query that starts later has read fewer tuples, and therefore joins
# another cohort.


@stored_as("over.cohort", version=1, stored_names={"state": "kept"})
@dataclass(slots=True)
class Cohort:
    """Cohort: queries that started together, by name, with their shared state."""

    members: dict[str, WindowAggregate]
    state: WindowState | None = None

    @property
    def calls(self) -> tuple[WindowCall, ...]:
        return _calls(self.members)

    def leave(self, staying: dict[str, WindowAggregate]) -> None:
        """Remove all queries except `staying`, and drop the rows and columns that no query reads any more."""
        if self.state is not None and staying != self.members:
            before, after = _columns(self.calls), _columns(_calls(staying))
            old = dict(zip(_frames(self.calls), self.state.groups, strict=True))
            names = {str(before.index(expr)): str(index) for index, expr in enumerate(after)}
            groups = [
                _narrow_state(old[frame], _columns_of_frame(staying, frame), names, after)
                for frame in _frames(_calls(staying))
            ]
            self.state = replace(self.state, groups=groups)
        self.members = staying


@stored_as("over.shared", version=1)
@dataclass(slots=True)
class SharedOverState:
    cohorts: list[Cohort] = field(default_factory=list)

    def adopt(
        self,
        members: Mapping[str, WindowAggregate],
        newcomers: Collection[str],
        successors: Mapping[str, str],
    ) -> None:
        """Restrict the state to the queries in `members`.

        New queries form a new cohort (queries that started together). A query that replaces another query
        takes over the state of the replaced query.
        """
        known: set[str] = set()
        heirs = {before: name for name, before in successors.items() if name in members}
        for cohort in self.cohorts:
            staying = {}
            for name, own in cohort.members.items():
                if name in heirs:
                    staying[heirs[name]] = members[heirs[name]]
                elif name not in newcomers and members.get(name) == own:
                    staying[name] = own
            cohort.leave(staying)
            known |= staying.keys()
        new = {name: own for name, own in members.items() if name not in known}
        self.cohorts = [cohort for cohort in self.cohorts if cohort.members] + ([Cohort(new)] if new else [])


class SortedWindows:
    """Window strategy of built-in aggregates with OVER.

    `cohorts` has for each cohort (queries that started together) its queries by name, and the evaluator of
    their calls.
    """

    def __init__(
        self,
        state: SharedOverState | WindowState,
        cohorts: Sequence[tuple[Mapping[str, WindowAggregate], WindowCalls]],
        outputs: Mapping[str, WindowOutput],
    ) -> None:
        self.state = state
        self.outputs = list(outputs.values())
        self._cohorts = cohorts
        self._schemas = {name: output.schema for name, output in outputs.items()}

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        emissions: dict[str, Emission] = {}
        for members, calls in self._cohorts:
            table, until = calls.run(rows, watermark)
            first = calls.input_columns
            columns = dict(zip(table.column_names[:first], table.columns[:first], strict=True))
            for name, own in members.items():
                values = table.columns[first : first + len(own.calls)]
                first += len(own.calls)
                failed = [calls.failed[e] for call in own.calls for e in call.arguments if e in calls.failed]
                if failed:
                    emissions[name] = failed[0]
                    continue
                results = {call.columns[0].name: value for call, value in zip(own.calls, values, strict=True)}
                emissions[name] = pa.table(columns | results), until
        return [emissions[name] for name in self._schemas]

    def due(self) -> int | None:
        return min((due for _, calls in self._cohorts if (due := calls.due()) is not None), default=None)


def over_windows(operator: WindowAggregate, context: StepContext) -> SortedWindows:
    """Return the execution strategy of a single query's aggregates with OVER."""
    state = context.state if isinstance(context.state, WindowState) else None
    calls = WindowCalls(operator.calls, context.schemas[0], state, context.seq_bits)
    output = WindowOutput(with_system_columns(to_arrow(context.node.schema)))
    return SortedWindows(calls.state, [({"": operator}, calls)], {"": output})


def cohort_windows(operator: SharedOver, context: StepContext) -> SortedWindows:
    """Return the execution strategy of several queries that share stored rows, with their restored state."""
    state = context.state if isinstance(context.state, SharedOverState) else SharedOverState()
    members = {member.name: member.operator for member in operator.members}
    state.adopt(members, context.newcomers.keys(), context.successors)
    cohorts = []
    for cohort in state.cohorts:
        calls = WindowCalls(cohort.calls, context.schemas[0], cohort.state, context.seq_bits, apart=True)
        cohort.state = calls.state
        cohorts.append((cohort.members, calls))
    outputs = {
        m.name: WindowOutput(with_system_columns(to_arrow(Schema(m.columns)))) for m in operator.members
    }
    return SortedWindows(state, cohorts, outputs)


def _calls(members: Mapping[str, WindowAggregate]) -> tuple[WindowCall, ...]:
    return tuple(call for member in members.values() for call in member.calls)


def _columns(calls: Sequence[WindowCall]) -> list[Expr]:
    """Return the distinct call arguments that the state stores, in the order of their column numbers."""
    return list(dict.fromkeys(e for call in calls for e in call.arguments[: count_stored_arguments(call)]))


def _frames(calls: Sequence[WindowCall]) -> list[FrameUnit]:
    """Return the distinct frame units (RANGE or ROWS) of calls, in the order of `WindowState.groups`."""
    return list(dict.fromkeys(call.window.frame for call in calls))


def _columns_of_frame(members: Mapping[str, WindowAggregate], frame: FrameUnit) -> list[Expr]:
    return _columns([call for call in _calls(members) if call.window.frame is frame])


def _narrow_state(
    kept: OverGroupState, used: Sequence[Expr], names: Mapping[str, str], after: Sequence[Expr]
) -> OverGroupState:
    """Rename the argument columns in the state of calls with one window, and drop unused columns."""
    wanted = {str(after.index(expr)) for expr in used}
    old = {name: new for name, new in names.items() if new in wanted}
    system = (TIME, SEQUENCE)

    def narrow(table: pa.Table, own: Sequence[str]) -> pa.Table:
        return table.select([*own, *old]).rename_columns([*own, *old.values()])

    slices = [Slice(narrow(piece.table, (KEY, *system))) for piece in kept.slices]
    last = None if kept.last is None else kept.last.changed(lambda table: narrow(table, system))
    return replace(kept, slices=slices, last=last)


# Evaluation of all OVER calls of one operator, on whole tables of rows:
#
#     windows = WindowCalls(calls, schema)
#     table, complete = windows.run(new_rows, complete)
#
# `run` returns the same rows as the row-by-row reference, in the same order, for any division of the input
# into micro-batches. Calls with the same PARTITION BY and window share partitioning, sorting and window
# bounds.


TS, SEQ, ARRIVAL = "_ts", "_seq", "_arr"
_SYSTEM_COLUMNS = (TS, SEQ, ARRIVAL)
_FEW_KEYS = 1000


@stored_as("over.partitions", version=1)
@dataclass(slots=True)
class PartitionState:
    """State of one PARTITION BY list: partition keys, and the number of tuples of each partition."""

    keys: Keys = field(default_factory=Keys)
    crowded: int = _FEW_KEYS  # empty partitions are evicted only if there are more partitions than this
    arrived: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))


@stored_as("over", version=1)
@dataclass(slots=True)
class WindowState:
    """State of all OVER calls of one operator between micro-batches.

    `now` is the watermark, and `sequence` is the number of tuples so far.
    """

    partitions: list[PartitionState]
    groups: list[OverGroupState]
    sequence: int = 0
    now: int = BEFORE_ALL
    waiting: WindowEvents | None = None


@dataclass(frozen=True, slots=True)
class CallGroup:
    """OVER calls with the same PARTITION BY and window. `calls` has the indexes of the calls."""

    group: OverGroup
    partitioning: int
    calls: tuple[int, ...]


class WindowCalls:
    """Evaluator of all OVER calls of one operator."""

    def __init__(
        self,
        calls: Sequence[WindowCall],
        schema: Schema,
        state: WindowState | None = None,
        seq_bits: int = SEQ_BITS,
        *,
        apart: bool = False,
    ) -> None:
        """Compile the OVER calls and restore their state.

        If `apart` is set, an argument whose evaluation fails stops only the calls that read the argument.
        `failed` then has the errors of these arguments.
        """
        self._calls = calls
        self._apart = apart
        self.failed: dict[Expr, ExpressionError] = {}
        self._seq_bits = seq_bits
        self._names = list(schema.names)
        self.input_columns = len(_SYSTEM_COLUMNS) + len(self._names)
        self._types = [arrow_type(call.columns[0].type) for call in calls]
        partitions = list(dict.fromkeys(call.partition_by for call in calls))
        arguments = [call.arguments[: count_stored_arguments(call)] for call in calls]
        self._columns = list(dict.fromkeys(expr for of_call in arguments for expr in of_call))
        self._groups = _group_calls(calls, partitions, self._columns, arguments)
        self._partition_sizes = [len(exprs) for exprs in partitions]
        keys: list[Expr] = [expr for exprs in partitions for expr in exprs]
        self._evaluate = compile_many([*keys, *self._columns], schema)
        self._waits = any(placed.group.waits for placed in self._groups)
        self._active = any(call.window.active for call in calls)
        self.state = state or WindowState(
            [PartitionState() for _ in partitions], [OverGroupState() for _ in self._groups]
        )

    def run(self, table: pa.Table, complete: int) -> tuple[pa.Table, int]:
        """Process new rows in order, and return the output rows and the output watermark.

        `complete` is the watermark of the input.
        """
        state = self.state
        names = [*_SYSTEM_COLUMNS, *self._names]
        # Copy the columns without statistics such as "has no NULLs", which may differ between micro-batches.
        table = pa.table([table.column(name) for name in names], names=names)
        keys, columns = self._evaluated(table)
        table = table.combine_chunks()
        came = table
        if self._active and len(table):
            seqs = rank_seqs(numbers(table.column(SEQ).combine_chunks()), 0, self._seq_bits)
            table = table.set_column(1, SEQ, pa.array(seqs))
        ts: Int64s = numbers(table.column(TS).combine_chunks())
        before, now = state.now, max([state.now, complete, *ts[-1:].tolist()])
        sequence = state.sequence + np.arange(len(table))
        if not len(table) and (not self._waits or now == before):
            return self._output(table, [self._nothing(index) for index in range(len(self._calls))]), min(
                complete, self._held()
            )
        spans = self._spans(keys, len(table), before, now)
        found = []
        for placed, kept in zip(self._groups, state.groups, strict=True):
            new = _new_rows(came, ts, sequence, columns, placed.group)
            found.append(placed.group.run(kept, spans[placed.partitioning], new))
        state.sequence, state.now = state.sequence + len(table), now
        for index, span in enumerate(spans):
            partition = state.partitions[index]
            np.add.at(partition.arrived, span.partitions, 1)
            self._forget(index)
        out = (
            self._output_in_time_order(table, sequence, found) if self._waits else self._at_once(table, found)
        )
        return out, min(complete, self._held())

    def due(self) -> int | None:
        """Return the watermark at which the next waiting row can be emitted."""
        found = (
            placed.group.due(kept, self.state.now)
            for placed, kept in zip(self._groups, self.state.groups, strict=True)
        )
        return min((due for due in found if due is not None), default=None)

    # -- input -----------------------------------------------------------------------------------------

    def _evaluated(self, table: pa.Table) -> tuple[list[list[pa.Array]], list[pa.Array]]:
        """Return the key columns of each PARTITION BY list, and the columns of all call arguments."""
        found = []
        of_keys = sum(self._partition_sizes)
        for index, outcome in enumerate(self._evaluate(table)):
            if not isinstance(outcome, ExpressionError):
                found.append(to_array(outcome))
            elif not self._apart or index < of_keys:
                raise outcome
            else:
                expr = self._columns[index - of_keys]
                self.failed[expr] = outcome
                found.append(pa.nulls(len(table), arrow_type(expr.type)))
        keys, start = [], 0
        for size in self._partition_sizes:
            keys.append(found[start : start + size])
            start += size
        return keys, found[of_keys:]

    def _spans(self, keys: list[list[pa.Array]], rows: int, before: int, now: int) -> list[GroupSpan]:
        spans = []
        for state, columns in zip(self.state.partitions, keys, strict=True):
            numbered = state.keys.number(distinct_keys(columns, rows), columns)
            count = max(len(state.keys), 1)
            state.arrived = extend_array(state.arrived, count)
            spans.append(GroupSpan(numbered, count, state.arrived, before, now))
        return spans

    # -- output ----------------------------------------------------------------------------------------

    def _at_once(self, table: pa.Table, found: Sequence[WindowAnswers]) -> pa.Table:
        """Return the output rows of a query in which no call waits for the watermark."""
        first = self.state.sequence - len(table)
        values: list[pa.Array] = [None] * len(self._calls)
        some = np.zeros(len(table), np.bool_)
        for placed, answers in zip(self._groups, found, strict=True):
            source = np.full(len(table), -1)
            source[answers.sequence - first] = np.arange(len(answers.sequence))
            some |= source >= 0
            indices = pa.array(source, mask=source < 0)
            for call, column in zip(placed.calls, answers.values, strict=True):
                values[call] = column.take(indices)
        if not some.all():
            chosen = pa.array(some)
            table, values = table.filter(chosen), [column.filter(chosen) for column in values]
        return self._output(table, values)

    def _output_in_time_order(
        self, table: pa.Table, sequence: Int64s, found: Sequence[WindowAnswers]
    ) -> pa.Table:
        """Return the output rows of a query in which at least one call waits for the watermark."""
        calls = range(len(self._calls))
        nulls = [pa.nulls(len(table), type_) for type_ in self._types]
        marks = [np.full(len(table), OPEN, np.int8) for _ in calls]
        arrived = WindowEvents(table, sequence, np.zeros(len(table), np.bool_), marks, nulls)
        waited = [] if self.state.waiting is None else [self.state.waiting]
        expired = [self._expiries(index, answers) for index, answers in enumerate(found)]
        events = merge_events(
            [*waited, arrived, *_merge_expiries([part for part in expired if part is not None])]
        )
        for placed, answers in zip(self._groups, found, strict=True):
            for call, values in zip(placed.calls, answers.values, strict=True):
                store_results(events, call, answers.sequence, values)
                mark_silent(events, call, answers.overtaken)
        out, waiting = split_released(events)
        self.state.waiting = waiting if len(waiting) else None
        return self._output(self._released(out), out.values)

    def _released(self, out: WindowEvents) -> pa.Table:
        """Return the output rows of emitted events, with their arrival times.

        The arrival time of a row that waited for the end of a slot or for an expiry is the trigger time.
        """
        ts = out.ts
        until = np.where(out.expiry, ts, BEFORE_ALL)
        for placed in self._groups:
            window = placed.group.window
            if window.slide is not None and not placed.group.by_rows:
                for call in placed.calls:
                    slots = (ts // window.slide + 1) * window.slide
                    waited = ~out.expiry & (out.marks[call] == ANSWERED)
                    until = np.where(waited, np.maximum(until, slots), until)
        arrivals = numbers(out.tuples.column(ARRIVAL).combine_chunks())
        found = np.where(until > BEFORE_ALL, trigger_arrivals(until), arrivals)
        return out.tuples.set_column(2, ARRIVAL, pa.array(found))

    def _expiries(self, index: int, answers: WindowAnswers) -> WindowEvents | None:
        """Return the output events of tuples that have left the window of a call group.

        The timestamp of such an event is the time at which the tuple left the window. Return None if the
        window emits no rows for such tuples.
        """
        if answers.expired is None:
            return None
        placed = self._groups[index]
        names = [*_SYSTEM_COLUMNS, *self._names]
        tuples = answers.expired.select([TUPLE + name for name in names]).rename_columns(names)
        extent = placed.group.window.extent
        assert extent is not None
        left = numbers(answers.expired.column(TIME).combine_chunks()) + extent
        # At equal timestamps, the arrivals of tuples precede the expiries of tuples.
        seqs = rank_seqs(numbers(tuples.column(SEQ).combine_chunks()), 1, self._seq_bits)
        tuples = tuples.set_column(0, TS, pa.array(left)).set_column(1, SEQ, pa.array(seqs))
        rows = len(tuples)
        events = WindowEvents(
            tuples,
            numbers(answers.expired.column(SEQUENCE).combine_chunks()),
            np.ones(rows, np.bool_),
            [np.full(rows, SILENT, np.int8) for _ in self._calls],
            [pa.nulls(rows, type_) for type_ in self._types],
        )
        for call, values in zip(placed.calls, answers.expired_values, strict=True):
            events.marks[call] = np.full(rows, ANSWERED, np.int8)
            events.values[call] = values
        return events

    def _nothing(self, call: int) -> pa.Array:
        return pa.nulls(0, self._types[call])

    def _output(self, tuples: pa.Table, values: Sequence[pa.Array]) -> pa.Table:
        columns = [tuples.column(name) for name in (*_SYSTEM_COLUMNS, *self._names)]
        names = [*_SYSTEM_COLUMNS, *self._names, *(call.columns[0].name for call in self._calls)]
        return pa.table([*columns, *values], names=names)

    def _held(self) -> int:
        """Return a lower bound of the timestamps of rows that are still to be emitted."""
        if self.state.waiting is not None:
            return int(self.state.waiting.ts[0])
        due = self.due()
        return END if due is None else due - 1

    # -- eviction of partitions --------------------------------------------------------------------------

    def _forget(self, index: int) -> None:
        """Evict partitions (keys) without stored rows if there are many partitions.

        No partition is evicted if a call counts all tuples since the query started.
        """
        state = self.state.partitions[index]
        groups = [
            (placed.group, kept)
            for placed, kept in zip(self._groups, self.state.groups, strict=True)
            if placed.partitioning == index
        ]
        if len(state.keys) <= state.crowded or any(group.counts_forever for group, _ in groups):
            return
        alive = np.zeros(len(state.keys), np.bool_)
        for _, kept in groups:
            for piece in kept.slices:
                alive[numbers(piece.table.column(KEY).combine_chunks())] = True
            if kept.last is not None:
                alive[: len(kept.last.lengths)] |= kept.last.lengths > 0
        state.crowded = max(state.crowded, 2 * int(alive.sum()))
        if len(state.keys) <= state.crowded:
            return
        renumbered = state.keys.keep(alive)
        state.arrived = state.arrived[alive]
        for _, kept in groups:
            kept.slices = [_with_keys(piece, renumbered) for piece in kept.slices]
            if kept.last is not None:
                kept.last.reach(len(alive))
                kept.last.keep(alive)


def _group_calls(
    calls: Sequence[WindowCall],
    partitions: Sequence[tuple[Expr, ...]],
    columns: Sequence[Expr],
    arguments: Sequence[tuple[Expr, ...]],
) -> list[CallGroup]:
    """Group OVER calls by PARTITION BY and window.

    Calls that read only the rows in their window (`is_plain`) share the rows of the longest window,
    separately for time windows and row windows. A call over an unbounded window or over panes of rows gets a
    group of its own, because it compacts its rows.
    """
    members: dict[tuple[int, Window | FrameUnit, int | None], list[int]] = {}
    for index, call in enumerate(calls):
        apart = call.window.extent is None or pane_of(call.window, [call]) is not None
        alone = index if apart else None
        window = call.window.frame if is_plain(call) else call.window
        members.setdefault((partitions.index(call.partition_by), window, alone), []).append(index)
    placed = []
    for (partitioning, _, _), found in members.items():
        used = [[columns.index(expr) for expr in arguments[index]] for index in found]
        placed.append(CallGroup(OverGroup([calls[p] for p in found], used), partitioning, tuple(found)))
    return placed


def _new_rows(
    table: pa.Table, ts: Int64s, sequence: Int64s, columns: Sequence[pa.Array], group: OverGroup
) -> pa.Table:
    """Return the columns that a call group stores of new tuples.

    The group stores its arguments, or all columns if its window has ACTIVE expiry.
    """
    new = {TIME: pa.array(ts), SEQUENCE: pa.array(sequence)}
    new |= {str(index): columns[index] for index in group.columns}
    if group.window.active:
        new |= {TUPLE + name: table.column(name) for name in table.column_names}
    return pa.table(new)


def _merge_expiries(parts: list[WindowEvents]) -> list[WindowEvents]:
    """Merge the expiry events of each tuple from several windows of equal length into one event."""
    if len(parts) < 2:
        return parts
    together = merge_events(parts)
    ts, sequence = together.ts, together.sequence
    first = np.ones(len(together), np.bool_)
    first[1:] = (ts[1:] != ts[:-1]) | (sequence[1:] != sequence[:-1])
    row = np.cumsum(first) - 1
    merged = together.take(np.flatnonzero(first))
    for call, marks in enumerate(together.marks):
        indices = np.flatnonzero(marks == ANSWERED)
        source = np.full(len(merged), -1)
        source[row[indices]] = indices
        merged.marks[call] = np.where(source >= 0, ANSWERED, SILENT).astype(np.int8)
        merged.values[call] = together.values[call].take(pa.array(source, mask=source < 0))
    return [merged]


def _with_keys(piece: Slice, renumbered: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Slice:
    numbers_ = renumbered[numbers(piece.table.column(KEY).combine_chunks())]
    return Slice(piece.table.set_column(0, KEY, pa.array(numbers_)))


# Output order of a query whose calls return results at different times.
#
# An event is an arrival or an expiry of a tuple. Events are ordered by time, then arrivals before expiries,
# then by sequence number. An event is emitted when each call has returned a value or will return no value,
# and all earlier events were emitted. An event without a value is dropped.


OPEN, SILENT, ANSWERED = 0, 1, 2
Marks = NDArray[np.int8]


@stored_as("over.events", version=1)
@dataclass(slots=True)
class WindowEvents:
    """Output events (arrivals and expiries of tuples), with the value of each call for each event.

    The mark of a call for an event is OPEN (no value yet), SILENT (no value will follow) or ANSWERED.
    """

    tuples: pa.Table
    sequence: Int64s
    expiry: NDArray[np.bool_]
    marks: list[Marks]
    values: list[pa.Array]

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def ts(self) -> Int64s:
        found: Int64s = numbers(self.tuples.column("_ts").combine_chunks())
        return found

    def take(self, indices: Int64s) -> WindowEvents:
        chosen = pa.array(indices)
        return WindowEvents(
            self.tuples.take(chosen),
            self.sequence[indices],
            self.expiry[indices],
            [marks[indices] for marks in self.marks],
            [values.take(chosen) for values in self.values],
        )


def merge_events(parts: Sequence[WindowEvents]) -> WindowEvents:
    """Concatenate several sets of events, and sort the events in output order."""
    together = WindowEvents(
        pa.concat_tables([part.tuples for part in parts]),
        np.concatenate([part.sequence for part in parts]),
        np.concatenate([part.expiry for part in parts]),
        [np.concatenate(marks) for marks in zip(*(part.marks for part in parts), strict=True)],
        [pa.concat_arrays(values) for values in zip(*(part.values for part in parts), strict=True)],
    )
    return together.take(np.lexsort((together.sequence, together.expiry, together.ts)))


def split_released(events: WindowEvents) -> tuple[WindowEvents, WindowEvents]:
    """Split events into events that can be emitted and events that wait for values of calls."""
    marks = np.stack(events.marks)
    open_ = (marks == OPEN).any(axis=0)
    until = int(np.argmax(open_)) if open_.any() else len(events)
    silent = (marks == SILENT).all(axis=0)
    indices = np.arange(len(events))
    return events.take(indices[:until][~silent[:until]]), events.take(indices[until:][~silent[until:]])


def store_results(events: WindowEvents, call: int, sequence: Int64s, values: pa.Array) -> None:
    """Store the results of a call for the tuples with the given sequence numbers."""
    index = np.flatnonzero(~events.expiry)
    rank = np.argsort(events.sequence[index], kind="stable")
    index = index[rank]
    found = index[np.searchsorted(events.sequence[index], sequence)]
    events.marks[call][found] = ANSWERED
    source = np.arange(len(events))
    source[found] = len(events) + np.arange(len(found))
    events.values[call] = pa.concat_arrays([events.values[call], values]).take(pa.array(source))


def mark_silent(events: WindowEvents, call: int, sequence: Int64s) -> None:
    """Mark the tuples for which a call returns no value as SILENT.

    Some of these tuples may have been emitted already.
    """
    gone = pc.is_in(pa.array(events.sequence), value_set=pa.array(sequence)).to_numpy(zero_copy_only=False)
    marks = events.marks[call]
    marks[gone & ~events.expiry & (marks == OPEN)] = SILENT
