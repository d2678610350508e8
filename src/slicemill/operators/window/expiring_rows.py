"""Execution of GROUP BY over windows in FROM, for example `FROM s [ROWS 3] GROUP BY k`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.aggregates.columns import Windows
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import Window
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.keys import distinct_keys, normalize_zeros, to_array
from slicemill.columns.merge import number_ties, tie_name, with_seqs
from slicemill.columns.order import Numbering, renumber
from slicemill.columns.pieces import Slice, drop_first_rows, keep_needed
from slicemill.columns.ranges import by_partition
from slicemill.functions.vectors import fixed_width, numbers
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.call_values import (
    CallValues,
    Evaluate,
    WindowRows,
    align_results,
    column_arguments,
    evaluators,
)
from slicemill.operators.filter_project import FilterStep, ProjectStep
from slicemill.operators.registry import partition_keys
from slicemill.operators.rescale import KeptRows, Redistribution
from slicemill.operators.step import CompiledColumns, StepContext
from slicemill.operators.window.spec import (
    GROUP_BITS,
    RelationAggregate,
    WindowAggregate,
    numbers_by_group,
    output_items,
    over_calls,
)
from slicemill.operators.window.step import Emission, WindowOutput, WindowStep
from slicemill.time import BEFORE_ALL, END
from slicemill.types import Schema

# GROUP BY over the last n rows of a stream, which emits a result row for each tuple.
#
# In `FROM s [ROWS n] WHERE … GROUP BY k` the window has rows of all groups, and WHERE filters the rows in the
# window. A row belongs to the window as long as it is among the last n rows of the stream. The query is
# therefore evaluated as an OVER window with row numbers in place of timestamps.
#
#     number    1  2  3  4  5  6                ROWS 3
#     group     a  b  a  a  b  a
#     window of a        [a     a)              tuple 6 aggregates the rows of a from number 4 on


@stored_as("count_window", version=1)
@dataclass(slots=True)
class CountWindowState:
    """State of GROUP BY over the last rows: counts of tuples and emitted rows, and state of OVER calls."""

    arrived: int = 0
    given: int = 0
    calls: Any = None


class CountedWithOver:
    """Window strategy that evaluates GROUP BY over the last rows by OVER calls over tuple numbers.

    `over_form` builds these calls. `schema` is the output schema.
    """

    def __init__(
        self, operator: RelationAggregate, context: StepContext, calls: WindowStep, schema: Schema
    ) -> None:
        self._state = context.state if isinstance(context.state, CountWindowState) else CountWindowState()
        self.outputs = [WindowOutput(with_system_columns(to_arrow(context.node.schema)))]
        self._calls = calls
        self._where = None if operator.where is None else FilterStep(operator.where, context.schemas[0])
        self._project = ProjectStep(output_items(operator), schema)

    @property
    def state(self) -> CountWindowState:
        return replace(self._state, calls=self._calls.state)

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        state, times = self._state, rows.column(TS)
        first, state.arrived = state.arrived, state.arrived + len(times)
        table = _at(rows, np.arange(first, state.arrived))
        if self._where is not None:
            table, _ = self._where.run([table], [watermark])
        table, _ = self._calls.run([table], [state.arrived])
        positions = table.column(TS).to_numpy()
        answered = _at(table, times.to_numpy()[positions - first])
        out, _ = self._project.run([answered], [watermark])
        out = renumber(out, state.given)
        state.given += out.num_rows
        return [(out, watermark)]

    def due(self) -> int | None:
        return None


def over_form(
    operator: RelationAggregate, window: Window, context: StepContext
) -> tuple[WindowAggregate, StepContext]:
    """Translate GROUP BY over the last rows to OVER calls with tuple numbers in place of timestamps.

    Return the calls, and the context of their execution step.
    """
    calls = WindowAggregate(over_calls(operator, window))
    columns = (column for call in calls.calls for column in call.columns)
    schema = Schema((*context.schemas[0].columns, *columns))
    state = context.state.calls if isinstance(context.state, CountWindowState) else None
    return calls, replace(context, node=replace(context.node, operator=calls, schema=schema), state=state)


def _at(table: pa.Table, times: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
    index = table.schema.get_field_index(TS)
    return table.set_column(index, table.schema.field(index), pa.array(times))


# Aggregates over rows that expire in any order, for example joined rows.
#
# A row belongs to windows from its `time` until before its `end`. A joined row ends when the first of its
# input rows leaves its window, which may be long before earlier rows end:
#
#     time     0  1  2  3  4  5  6  7
#     a        [-----------------)            window at 3: a b c
#     b           [--------)                  window at 5: a c
#     c              [--------------)
#
# A window is therefore not a range of neighbouring rows. The rows of each window are copied to a contiguous
# range. The work is proportional to the number of rows in all windows.


TIME, EXPIRY = "time", "end"
_AT_ONCE = 1 << 20  # maximum number of rows that are copied at a time


@stored_as("lives", version=1)
@dataclass(slots=True)
class UnexpiredRowsState:
    """Stored rows that have not expired, in order of arrival, and the last watermark."""

    slices: list[Slice] = field(default_factory=list)
    now: int = BEFORE_ALL


@dataclass(frozen=True, slots=True)
class WindowResults:
    """Results of windows: window ends, one row of the group of each result, and values of aggregate calls."""

    moments: Int64s
    rows: pa.Table
    values: dict[str, pa.Array]


class UnexpiredRowsEvaluator:
    """Evaluator of aggregate calls over the unexpired rows of each group.

    Without a slide, calls are evaluated for each new row. With a slide, calls are evaluated for all groups at
    each multiple of the slide. `keys` are the names of the columns with the group keys.
    """

    def __init__(
        self, evaluates: Sequence[Evaluate], keys: Sequence[str], slide: int | None, state: UnexpiredRowsState
    ) -> None:
        self.state = state
        self._evaluates = evaluates
        self._keys = keys
        self._slide = slide

    def run(self, new: pa.Table, now: int) -> WindowResults:
        """Process new rows in order, and return the results of windows. `now` is the watermark."""
        state = self.state
        now = max([state.now, now, *numbers(new.column(TIME).combine_chunks())[-1:].tolist()])
        old = [piece.table for piece in state.slices]
        rows = pa.concat_tables([*old, new]).combine_chunks()
        fresh = np.arange(len(rows)) >= len(rows) - len(new)
        found = self._each(rows, fresh) if self._slide is None else self._sliding(rows, self._slide, now)
        limit = now if self._slide is None or now == END else _next(now, self._slide) - 1
        state.slices = keep_needed(state.slices, new, _numpy(rows, EXPIRY) > limit)
        state.now = now
        return found

    def due(self) -> int | None:
        """Return the end of the next non-empty window; None if there is no such window, or no slide."""
        now = self.state.now
        if self._slide is None or now == END:
            return None
        end: int = _next(now, self._slide)
        alive = any((_numpy(piece.table, EXPIRY) >= end).any() for piece in self.state.slices)
        return end if alive else None

    def _each(self, rows: pa.Table, fresh: Bools) -> WindowResults:
        """Return for each new row the aggregates over the unexpired rows of its group."""
        order, _, head = self._sorted(rows)
        times, ends = (_numpy(rows, name)[order] for name in (TIME, EXPIRY))
        asked = np.flatnonzero(fresh[order])
        parts = []
        for first, last in _blocks(asked - head[asked] + 1):
            some = asked[first:last]
            indices, sizes = _rows_in_windows(head, times, ends, some)
            parts.append(self._values(rows, order[indices], sizes))
        # Sort the results in the order in which their rows arrived.
        found = self._concat_values(rows, parts)
        shown = order[asked][found.windows]
        return self._results(rows, _numpy(rows, TIME)[shown], shown, np.argsort(shown, kind="stable"), found)

    def _sliding(self, rows: pa.Table, slide: int, now: int) -> WindowResults:
        """Return the results of windows that ended, ordered by window end, then by the group's first row."""
        order, groups, _ = self._sorted(rows)
        times, ends = (_numpy(rows, name)[order] for name in (TIME, EXPIRY))
        first = _next(np.maximum(times, self.state.now), slide)
        last = np.minimum(ends, now) // slide * slide
        moments, firsts, parts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], []
        for low, high in _periods(first, last, slide):
            indices, at = _repeat_rows(np.maximum(first, low), np.minimum(last, high), slide)
            # Sort by window end. Rows of the same window stay sorted by group.
            by_end, _, _ = by_partition(((at - low) // slide).astype(np.int32), (high - low) // slide + 1)
            indices, at = indices[by_end], at[by_end]
            begins = np.ones(len(indices), np.bool_)
            begins[1:] = (at[1:] != at[:-1]) | (groups[indices[1:]] != groups[indices[:-1]])
            starts = np.flatnonzero(begins)
            parts.append(self._values(rows, order[indices], np.diff(starts, append=len(indices))))
            moments.append(at[starts])
            firsts.append(order[indices[starts]])
        found = self._concat_values(rows, parts)
        moment, shown = np.concatenate(moments)[found.windows], np.concatenate(firsts)[found.windows]
        return self._results(rows, moment, shown, np.lexsort((shown, moment)), found)

    def _results(
        self, rows: pa.Table, moments: Int64s, shown: Int64s, order: Int64s, found: CallValues
    ) -> WindowResults:
        values = {name: column.take(pa.array(order)) for name, column in found.columns.items()}
        return WindowResults(moments[order], rows.take(pa.array(shown[order])), values)

    def _sorted(self, rows: pa.Table) -> tuple[Int64s, Int64s, Int64s]:
        """Return the indexes of rows sorted by group, the group of each sorted row, and its group's start."""
        keys = distinct_keys([to_array(rows.column(name)) for name in self._keys], len(rows))
        order, groups, head = by_partition(keys.codes.astype(np.int32), max(len(keys.values), 1))
        return order, groups.astype(np.int64), head

    def _values(self, rows: pa.Table, indices: Int64s, sizes: Int64s) -> tuple[int, CallValues]:
        """Evaluate all aggregate calls over consecutive windows, which have `sizes` rows each.

        Return the number of windows and the values.
        """
        ends = np.cumsum(sizes)
        windows = Windows(ends - sizes, ends)
        taken: dict[str, pa.Array] = {}

        def column(name: str) -> pa.Array:
            if name not in taken:
                taken[name] = rows.column(name).combine_chunks().take(pa.array(indices))
            return taken[name]

        side_by_side = WindowRows(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), column)
        found = [evaluate(side_by_side, windows) for evaluate in self._evaluates]
        return len(sizes), align_results(found, len(sizes))

    def _concat_values(self, rows: pa.Table, parts: Sequence[tuple[int, CallValues]]) -> CallValues:
        """Concatenate the values of several blocks of windows.

        Windows are numbered from 0 in each block, and consecutively in the result.
        """
        none = np.zeros(0, np.int64)
        parts = parts or [self._values(rows, none, none)]
        before = np.cumsum([0, *(windows for windows, _ in parts)])
        counted = [first + part.windows for first, (_, part) in zip(before, parts, strict=False)]
        names = parts[0][1].columns
        columns = {name: pa.concat_arrays([part.columns[name] for _, part in parts]) for name in names}
        return CallValues(np.concatenate(counted), columns)


def _next(time: Any, slide: int) -> Any:
    """Return the first multiple of the slide, which is a window end, after a time."""
    return (time // slide + 1) * slide


def _blocks(counts: Int64s) -> Iterator[tuple[int, int]]:
    """Yield consecutive index ranges, so that the sum of `counts` in each range is at most `_AT_ONCE`.

    A range of a single element may exceed the bound.
    """
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + _AT_ONCE, side="right")))
        yield start, stop
        start = stop


def _periods(first: Int64s, last: Int64s, slide: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of window ends, so that the windows of each range have at most `_AT_ONCE` rows in total.

    Both bounds of a range are inclusive. A range of a single window end may exceed the limit.
    """
    alive = last >= first
    if not alive.any():
        return
    low, final = int(first[alive].min()), int(last[alive].max())
    while low <= final:
        high = final
        while high > low and _entries(first, last, low, high, slide) > _AT_ONCE:
            high = low + (high - low) // (2 * slide) * slide
        if _entries(first, last, low, high, slide):
            yield low, high
        low = high + slide


def _entries(first: Int64s, last: Int64s, low: int, high: int, slide: int) -> int:
    counts = (np.minimum(last, high) - np.maximum(first, low)) // slide + 1
    return int(np.maximum(counts, 0).sum())


def _repeat_rows(first: Int64s, last: Int64s, slide: int) -> tuple[Int64s, Int64s]:
    """Repeat each row for every window that contains the row.

    Return the row indexes and the window ends.
    """
    counts = np.maximum((last - first) // slide + 1, 0)
    indices = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(indices)) - np.repeat(np.cumsum(counts) - counts, counts)
    return indices, first[indices] + within * slide


@kernel
def _rows_in_windows(head: Int64s, times: Int64s, ends: Int64s, asked: Int64s) -> tuple[Int64s, Int64s]:
    """Return for each row of `asked` the rows of its group that have not expired at its time.

    The row indexes for all rows of `asked` are concatenated. The second result has the number of row indexes
    for each row of `asked`.
    """
    most = 0
    for i in asked:
        most += i - head[i] + 1
    indices, sizes = np.empty(most, np.int64), np.empty(len(asked), np.int64)
    count = 0
    for number, i in enumerate(asked):
        before = count
        for j in range(head[i], i + 1):
            if ends[j] > times[i]:
                indices[count] = j
                count += 1
        sizes[number] = count - before
    return indices[:count], sizes


def _numpy(table: pa.Table, name: str) -> Int64s:
    found: Int64s = numbers(to_array(table.column(name)))
    return found


# GROUP BY over windows whose rows expire in any order.
#
# There are two cases. In a join each input has its own window: `FROM a [RANGE 9], b [RANGE 5] WHERE … GROUP
# BY k`. A window that counts rows may have a slide: `FROM a [ROWS 9 SLIDE 3] WHERE … GROUP BY k`.


_START, _END = "window_start", "window_end"


@stored_as("living_windows", version=1)
@dataclass(slots=True)
class RelationAggregateState:
    """State of GROUP BY over windows in FROM: unexpired rows, and the number of emitted rows.

    For a ROWS window, the state also has the number of tuples read, and the times of the last tuples. The
    first `passed` of these times are in no window any more.
    """

    lives: UnexpiredRowsState = field(default_factory=UnexpiredRowsState)
    given: int = 0
    arrived: int = 0
    times: list[Slice] = field(default_factory=list)
    passed: int = 0


def key_column(index: int) -> str:
    """Return the name of the column that stores a group key."""
    return f"key {index}"


def argument_column(index: int | str) -> str:
    """Return the name of the column that stores an aggregate argument."""
    return f"argument {index}"


class _UnexpiredRows:
    """Common part of the strategies for time windows and ROWS windows: stored rows, and output rows."""

    def __init__(self, operator: RelationAggregate, context: StepContext) -> None:
        schema = context.schemas[0]
        self.state = (
            context.state if isinstance(context.state, RelationAggregateState) else RelationAggregateState()
        )
        self._names = [item.name for item in operator.group_by]
        keys = [item.expr for item in operator.group_by]
        given = [column_arguments(call, context.catalog) for call in operator.calls]
        exprs: list[Expr] = list(dict.fromkeys(expr for of_call in given for expr in of_call))
        self._columns = CompiledColumns([keys, exprs], schema)
        self._key_columns = [key_column(index) for index in range(len(keys))]
        self._argument_columns = [argument_column(index) for index in range(len(exprs))]
        columns = dict(zip(exprs, self._argument_columns, strict=True))
        evaluates = evaluators(operator.calls, columns, context)
        self._lives = UnexpiredRowsEvaluator(evaluates, self._key_columns, operator.slide, self.state.lives)
        self.outputs = [WindowOutput(with_system_columns(to_arrow(context.node.schema)))]

    def _rows(self, table: pa.Table, times: Int64s, ends: Int64s) -> pa.Table:
        columns = {
            TIME: pa.array(times),
            EXPIRY: pa.array(ends),
            SEQ: table.column(SEQ),
            ARRIVAL: table.column(ARRIVAL),
        }
        keys, arguments = self._columns.of(table)
        columns |= dict(zip(self._key_columns, keys, strict=True))
        return pa.table(columns | dict(zip(self._argument_columns, arguments, strict=True))).combine_chunks()

    def _table(
        self, found: WindowResults, times: Int64s, arrivals: pa.ChunkedArray, bounds: Sequence[Int64s]
    ) -> pa.Table:
        columns = {TS: pa.array(times), SEQ: found.rows.column(SEQ), ARRIVAL: arrivals}
        for name, key in zip(self._names, self._key_columns, strict=True):
            columns[name] = normalize_zeros(found.rows.column(key))
        columns |= found.values
        for name, bound in zip((_START, _END), bounds, strict=False):
            columns[name] = fixed_width(bound, None, pa.timestamp("us", tz="UTC"))
        return pa.table(columns)

    def _counted(self, out: pa.Table) -> pa.Table:
        first, self.state.given = self.state.given, self.state.given + out.num_rows
        return renumber(out, first)


class TimedWindows(_UnexpiredRows):
    """Strategy of GROUP BY over time windows (RANGE).

    A tuple is aggregated while it is in its window. A joined row is aggregated while all its input rows are
    in their windows.
    """

    def __init__(self, operator: RelationAggregate, context: StepContext) -> None:
        super().__init__(operator, context)
        self._slide = operator.slide
        self._members = [
            (column or TS, window.extent) for column, window in operator.windows if window.extent is not None
        ]
        self._numbering = (
            None if partition_keys(operator) is None else Numbering(context.seq_bits, ranks=True, fans=True)
        )
        self._by_index = numbers_by_group(operator)
        self._subtasks = context.subtask.count
        if self._by_index and self._subtasks > 1:
            schema = self.outputs[0].schema
            for index in range(2):
                schema = schema.append(pa.field(tie_name(index, GROUP_BITS), pa.int64()))
            self.outputs = [WindowOutput(schema)]

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        never = np.full(rows.num_rows, END)
        ends = [numbers(rows.column(column).combine_chunks()) + length for column, length in self._members]
        stored = self._rows(rows, rows.column(TS).to_numpy(), np.min([never, *ends], axis=0))
        found = self._lives.run(stored, watermark)
        if self._slide is None:
            out = self._table(found, found.moments, found.rows.column(ARRIVAL), ())
        else:
            starts = found.moments - max(length for _, length in self._members)
            # Arrival time 0 marks rows that the watermark causes, not the arrival of a tuple.
            due = pa.chunked_array([np.zeros(len(starts), np.int64)])
            out = self._table(found, found.moments, due, (starts, found.moments))
        held = self.due()
        if self._by_index:
            out = self._placed(out, found)
        else:
            out = self._counted(out) if self._numbering is None else self._numbering.apply(out)
        return [(out, watermark if held is None else min(watermark, held))]

    def _placed(self, out: pa.Table, found: WindowResults) -> pa.Table:
        """Set the sequence number of each result row to the index of its group in the window.

        Groups are ordered by their first row. Sequence numbers of joined rows do not increase with time, so
        they cannot define this order.
        """
        out = with_seqs(out, np.zeros(out.num_rows, np.int64))
        if self._subtasks == 1:
            return number_ties(out, GROUP_BITS)
        for index, name in enumerate((TIME, SEQ)):
            out = out.append_column(tie_name(index, GROUP_BITS), found.rows.column(name))
        return out

    def due(self) -> int | None:
        return self._lives.due()


class CountedWindows(_UnexpiredRows):
    """Strategy of GROUP BY over ROWS windows, in which tuple numbers take the place of timestamps.

    With a slide of n, each n-th tuple causes a result row for each group in the window. Without a slide, each
    tuple causes a result row.
    """

    def __init__(self, operator: RelationAggregate, context: StepContext) -> None:
        super().__init__(operator, context)
        extent = operator.windows[0][1].extent
        assert extent is not None, "the binder requires a window with a beginning"
        self._extent, self._slides = extent, operator.slide is not None
        self._where = None if operator.where is None else FilterStep(operator.where, context.schemas[0])

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        state = self.state
        first, state.arrived = state.arrived, state.arrived + rows.num_rows
        clock = pa.table({TIME: rows.column(TS), ARRIVAL: rows.column(ARRIVAL)}).combine_chunks()
        known = pa.concat_tables([*(piece.table for piece in state.times), clock]).slice(state.passed)
        before = state.arrived - known.num_rows  # number of tuples that precede the stored times in `known`
        numbered = _at(rows, np.arange(first, state.arrived))
        if self._where is not None:
            numbered, _ = self._where.run([numbered], [watermark])
        positions = numbered.column(TS).to_numpy()
        found = self._lives.run(self._rows(numbered, positions, positions + self._extent), state.arrived)
        times = known.column(TIME).to_numpy()
        latest = found.moments - self._slides - before
        oldest = np.maximum(found.moments - self._extent, 0) - before
        arrivals = known.column(ARRIVAL).take(pa.array(latest))
        bounds = (times[oldest], times[latest]) if self._slides else ()
        out = self._table(found, times[latest], arrivals, bounds)
        passed = state.passed + max(known.num_rows - self._extent, 0)
        state.times, state.passed = drop_first_rows(state.times, clock, passed)
        return [(self._counted(out), watermark)]

    def due(self) -> int | None:
        return None


# Redistribution of the state of GROUP BY over windows when the number of subtasks changes (rescale, S41).
#
# The state has unexpired rows with their group keys. A new subtask gets the rows of its groups from the old
# subtasks. The rows have the same order as in a state with a single subtask.


def redistribute_state(
    operator: RelationAggregate, states: Sequence[RelationAggregateState | None], change: Redistribution
) -> RelationAggregateState:
    """Return the state of a new subtask after a rescale, built from the states of the old subtasks.

    At least one old subtask must have state.
    """
    found = [state for state in states if state is not None]
    now = max(state.lives.now for state in found)
    keys = [item.expr for item in operator.group_by]
    pieces = [piece.table for state in change.reading_states(0, states) for piece in state.lives.slices]
    if not pieces:
        return RelationAggregateState(UnexpiredRowsState(now=now))
    rows = pa.concat_tables(pieces).combine_chunks()
    order = np.lexsort([rows.column(name).to_numpy() for name in (SEQ, TIME)])
    rows = rows.take(pa.array(order))

    def value(key: Expr) -> pa.Array:
        return rows.column(key_column(keys.index(key)))

    mine = change.is_read(0, KeptRows(rows.column(SEQ).to_numpy(), value))
    kept = rows.filter(pa.array(mine)).combine_chunks()
    return RelationAggregateState(UnexpiredRowsState([Slice(kept)] if kept.num_rows else [], now))
