"""Execution of lookup joins with tables and with views over streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill import types as t
from slicemill.catalog.expressions import Call, Expr, columns_of, conjunction, conjuncts
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, is_system_column, to_arrow, with_system_columns
from slicemill.columns.order import fan_out
from slicemill.columns.pieces import Slice, concat_with_nulls, drop_first_rows
from slicemill.columns.rows import to_table
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.functions.evaluate import Arrived, compile_vector, implicit_cast
from slicemill.kernels.arrays import Int64s
from slicemill.operators.alignment import Due, borders, due_in_turn
from slicemill.operators.specs import Lookup, Materialize, Scan
from slicemill.operators.step import StepContext
from slicemill.time import BEFORE_ALL, END
from slicemill.types import Column, Kind, Row, Schema, Timed


class LookupStep:
    """Lookup join of a stream with a table that does not change."""

    def __init__(
        self,
        lookup: Lookup,
        stream: Schema,
        table: Schema,
        rows: Sequence[Row],
        left: bool,
        seq_bits: int = SEQ_BITS,
    ) -> None:
        self._seq_bits = seq_bits
        self._names = [_qualify(lookup.stream_alias, column.name) for column in stream]
        self._own = [column.name for column in stream]
        qualified = Schema(tuple(Column(n, c.type) for n, c in zip(self._names, stream, strict=True)))
        found = Schema(tuple(Column(_qualify(lookup.alias, c.name), c.type) for c in table))
        stored = to_table([Timed(0, row) for row in rows], found, [0] * len(rows))
        self._join = TableLookup(
            qualified, found, lookup.condition, stored.select(list(found.names)), left
        ).join

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        renamed = dict(zip(self._own, self._names, strict=True))
        stream = tables[0].rename_columns([renamed.get(name, name) for name in tables[0].column_names])
        return fan_out(self._join(stream), self._seq_bits), complete[0]


def lookup(operator: Lookup, context: StepContext) -> LookupStep | ViewLookupStep:
    found = context.graph[context.node.inputs[1]]
    if isinstance(found.operator, Materialize):
        return view_lookup(operator, found.operator, context)
    assert isinstance(found.operator, Scan), "no other relation is finite"
    rows = context.rows_of(found.operator.relation)
    return LookupStep(operator, context.schemas[0], found.schema, rows, operator.left, context.seq_bits)


def _qualify(alias: str, name: str) -> str:
    return f"{alias}.{name}" if alias else name


# Vectorized lookup join with a table, or with the window of a view (M40)
#
# Equalities between the two sides are hash keys, where NULL equals no value. The residual condition is
# evaluated only for pairs with equal keys, so that it raises no error for other pairs. Without an equality,
# every pair is a candidate. Pairs are built in blocks to limit memory. The output is in the order of the
# stream, then of the table.


PAIRS_PER_BLOCK = 1 << 18

KeyColumn = Callable[[Arrived], pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class LookupKeys:
    """Join condition, split into equal keys of both sides and a residual condition."""

    stream: tuple[Expr, ...]
    table: tuple[Expr, ...]
    rest: Expr | None


def keys_of(condition: Expr | None, stream: Schema, table: Schema) -> LookupKeys:
    """Split a join condition into hash keys and a residual condition."""
    of_stream, of_table = frozenset(stream.names), frozenset(table.names)
    stream_keys: list[Expr] = []
    table_keys: list[Expr] = []
    rest: list[Expr] = []
    for part in conjuncts(condition):
        sides = _sides(part, of_stream, of_table)
        if sides is None:
            rest.append(part)
        else:
            stream_keys.append(sides[0])
            table_keys.append(sides[1])
    return LookupKeys(tuple(stream_keys), tuple(table_keys), conjunction(tuple(rest)))


def _sides(part: Expr, of_stream: frozenset[str], of_table: frozenset[str]) -> tuple[Expr, Expr] | None:
    if not isinstance(part, Call) or part.function != "=":
        return None
    left, right = part.arguments
    shared = t.common(left.type, right.type)
    if shared is None or shared.kind in (Kind.NULL, Kind.ANY, Kind.PERIOD):
        return None
    left, right = implicit_cast(left, shared), implicit_cast(right, shared)
    reads_left, reads_right = columns_of(left), columns_of(right)
    if not reads_left or not reads_right:
        return None
    if reads_left <= of_stream and reads_right <= of_table:
        return left, right
    if reads_right <= of_stream and reads_left <= of_table:
        return right, left
    return None


@dataclass(frozen=True, slots=True)
class RowRange:
    """Range [start, end) of table rows that each stream row may match."""

    starts: Int64s
    ends: Int64s


class LookupMatcher:
    """Compiled join condition between stream rows and table rows.

    The condition uses the column names of both sides, which differ. A left join emits stream rows
    without a match, with NULLs in the columns of the table.
    """

    def __init__(
        self, stream_schema: Schema, table_schema: Schema, condition: Expr | None, left: bool = False
    ) -> None:
        keys = keys_of(condition, stream_schema, table_schema)
        both = Schema((*stream_schema.columns, *table_schema.columns))
        self._columns = stream_schema.names
        self._left = left
        self._stream_keys = [compile_vector(key, stream_schema) for key in keys.stream]
        self._table_keys = [compile_vector(key, table_schema) for key in keys.table]
        self._rest = None if keys.rest is None else compile_vector(keys.rest, both)
        # A condition without columns needs at least one column, which determines the number of rows.
        self._read = (columns_of(keys.rest) if keys.rest is not None else None) or self._columns[:1]

    def index(self, table: pa.Table) -> Index:
        return Index([key(table) for key in self._table_keys], table.num_rows)

    def join(
        self, stream: pa.Table, table: pa.Table, index: Index | None = None, stretch: RowRange | None = None
    ) -> pa.Table:
        """Join stream rows with table rows; return stream columns, then table columns.

        The output has the system columns of the stream. Without `index`, the function builds an index of the
        table rows whose key occurs in `stream`.
        """
        keys = [key(stream) for key in self._stream_keys]
        if index is None:
            index = Index([key(table) for key in self._table_keys], table.num_rows, keys)
        first, counts = index.groups(keys, stream.num_rows, stretch)
        tuples: list[Int64s] = []
        rows: list[Int64s] = []
        for start, stop in _blocks(counts):
            count = counts[start:stop]
            of = np.repeat(np.arange(start, stop), count)
            within = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
            candidates = index.rows[np.repeat(first[start:stop], count) + within]
            tuple_indices, row_indices = self._matches(stream, table, of, candidates, range(start, stop))
            tuples.append(tuple_indices)
            rows.append(row_indices)
        return self._joined(stream, table, _concat(tuples), _concat(rows))

    def _matches(
        self, stream: pa.Table, table: pa.Table, tuples: Int64s, rows: Int64s, block: range
    ) -> tuple[Int64s, Int64s]:
        """Return the positions of matching rows in the stream and in the table.

        The position -1 in the table means that a stream row has no match.
        """
        if self._rest is not None and len(tuples):
            held = self._rest(self._pairs(stream, table, tuples, rows))
            keep = pc.fill_null(held, False).combine_chunks().to_numpy(zero_copy_only=False)
            tuples, rows = tuples[keep], rows[keep]
        if not self._left:
            return tuples, rows
        alone = np.setdiff1d(np.arange(block.start, block.stop), tuples)
        tuples = np.concatenate([tuples, alone])
        rows = np.concatenate([rows, np.full(len(alone), -1)])
        order = np.argsort(tuples, kind="stable")
        return tuples[order], rows[order]

    def _pairs(self, stream: pa.Table, table: pa.Table, tuples: Int64s, rows: Int64s) -> pa.Table:
        """Return the columns of candidate pairs that the residual condition reads."""
        columns = {
            name: (stream if name in self._columns else table)
            .column(name)
            .take(pa.array(tuples if name in self._columns else rows))
            for name in self._read
        }
        return pa.table(columns)

    def _joined(self, stream: pa.Table, table: pa.Table, tuples: Int64s, rows: Int64s) -> pa.Table:
        carried = [name for name in stream.column_names if is_system_column(name)]
        left = stream.select([*carried, *self._columns]).take(pa.array(tuples))
        right = table.take(pa.array(rows, mask=rows < 0))
        for name in right.column_names:
            left = left.append_column(name, right.column(name))
        return left


class TableLookup:
    """Lookup join with a stored table and its hash index."""

    def __init__(
        self,
        stream_schema: Schema,
        table_schema: Schema,
        condition: Expr | None,
        table: pa.Table,
        left: bool = False,
    ) -> None:
        self._matching = LookupMatcher(stream_schema, table_schema, condition, left)
        self._table = table.select(table_schema.names).combine_chunks()
        self._index = self._matching.index(self._table)

    def join(self, stream: pa.Table) -> pa.Table:
        return self._matching.join(stream, self._table, self._index)


class Index:
    """Index of a table: row numbers grouped by join key.

    `rows` has the row numbers by key, and in table order for equal keys. With `wanted`, only rows whose first
    key column has one of these values are included.
    """

    def __init__(
        self, keys: list[pa.ChunkedArray], rows: int, wanted: list[pa.ChunkedArray] | None = None
    ) -> None:
        self._levels: list[tuple[pa.Array, pa.Array]] = []
        comparables = [_comparable(key) for key in keys]
        indices = np.arange(rows)
        if comparables and wanted is not None:
            asked = pc.is_in(comparables[0], value_set=pc.unique(_comparable(wanted[0])))
            indices = np.flatnonzero(asked.to_numpy())
            comparables = [comparable.take(pa.array(indices)) for comparable in comparables]
        group: Int64s = np.zeros(len(indices), np.int64)
        for comparable in comparables:
            values = pc.unique(comparable).drop_null()
            combined = _combine_codes(group, comparable, values)
            groups = pa.array(np.unique(combined[combined >= 0]))
            group = _codes(_nullable(combined), groups)
            self._levels.append((values, groups))
        order = np.argsort(group, kind="stable") if keys else indices
        order = order[np.count_nonzero(group < 0) :]
        self.rows: Int64s = indices[order]
        # Key and row are combined to one number, so that the rows of a key within a row range are adjacent.
        self._span = rows + 1
        self._indices: Int64s = group[order] * self._span + self.rows

    def groups(
        self, keys: list[pa.ChunkedArray], tuples: int, stretch: RowRange | None = None
    ) -> tuple[Int64s, Int64s]:
        """Return the table rows with the key of each stream row, as a start and a count.

        The start is a position in `rows`.
        """
        group: Int64s = np.zeros(tuples, np.int64)
        for key, (values, groups) in zip(keys, self._levels, strict=True):
            group = _codes(_nullable(_combine_codes(group, _comparable(key), values)), groups)
        starts, ends = (0, self._span - 1) if stretch is None else (stretch.starts, stretch.ends)
        first, last = (np.searchsorted(self._indices, group * self._span + row) for row in (starts, ends))
        return first, np.where(group < 0, 0, last - first)


def _comparable(key: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column of doubles to bits, with one bit pattern for NaN and one for zero."""
    if not pa.types.is_floating(key.type):
        return key
    chunks = []
    for chunk in key.chunks:
        values = chunk.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        chunks.append(pa.array(values.view(np.int64), mask=chunk.is_null().to_numpy(zero_copy_only=False)))
    return pa.chunked_array(chunks, pa.int64())


def _codes(keys: pa.ChunkedArray, values: pa.Array) -> Int64s:
    """Return the position of each key in `values`, or -1 for NULL and missing keys."""
    found = pc.index_in(keys, value_set=values, skip_nulls=True)
    indices: Int64s = pc.fill_null(found, -1).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    return indices


def _combine_codes(group: Int64s, key: pa.ChunkedArray, values: pa.Array) -> Int64s:
    """Combine the key numbers of some columns with the codes of another key column.

    The result is -1 if the key number or the code is -1. Results are below the square of the table's row
    count.
    """
    codes = _codes(key, values)
    return np.where((group < 0) | (codes < 0), -1, group * max(len(values), 1) + codes)


def _nullable(codes: Int64s) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(codes, mask=codes < 0)])


def _blocks(counts: Int64s) -> Iterator[tuple[int, int]]:
    """Yield ranges of stream rows, each with a bounded number of candidate pairs.

    Each range has at least one stream row.
    """
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + PAIRS_PER_BLOCK, side="right")))
        yield start, stop
        start = stop


def _concat(parts: list[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


# Lookup join of a stream with a view over another stream (M40)
#
# A stream row is joined with the content of the view at the timestamp of the row. At equal timestamps, view
# rows precede stream rows. In this example the view contains the last two rows (ROWS 2):
#
#     view    a   b       c   d
#     stream        x   y       z         x: a b   y: a b   z: c d


@stored_as("view_lookup", version=1)
@dataclass(slots=True)
class ViewState:
    """State of a lookup in a view: the view's window content, and waiting rows.

    The first `passed` rows of `content` have left the window.
    """

    content: list[Slice] = field(default_factory=list)
    passed: int = 0
    waiting: list[pa.Table] = field(default_factory=list)


class ViewLookupStep:
    """Step that joins each stream row with the view's content at the row's timestamp.

    At equal timestamps, view rows precede stream rows. The result does not depend on the division of the
    input into micro-batches. `stream` and `view` have the output column names.
    """

    def __init__(
        self,
        state: ViewState,
        window: Window,
        matching: LookupMatcher,
        stream: Schema,
        view: Schema,
        seq_bits: int,
    ) -> None:
        self.state = state
        assert window.extent is not None, "the binder requires a window with a begin"
        self._extent = window.extent
        self._by_rows = window.frame is FrameUnit.ROWS
        self._matching = matching
        self._schemas = [with_system_columns(to_arrow(schema)) for schema in (view, stream)]
        self._seq_bits = seq_bits
        if not state.waiting:
            state.waiting = [schema.empty_table() for schema in self._schemas]

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, until = self.state, min(complete)
        arrived = []
        for waiting, table, schema in zip(state.waiting, tables, self._schemas, strict=True):
            named = table.rename_columns(schema.names).cast(schema)
            arrived.append(concat_with_nulls([waiting, named]))
        known = [
            max([told, *_times(table.slice(max(len(table) - 1, 0))).tolist()])
            for told, table in zip(complete, arrived, strict=True)
        ]
        counts = [
            len(table) if border == END else int(np.searchsorted(_times(table), border))
            for table, border in zip(arrived, borders(known), strict=True)
        ]
        new, stream = (table.slice(0, count) for table, count in zip(arrived, counts, strict=True))
        state.waiting = [
            table.slice(count).combine_chunks() for table, count in zip(arrived, counts, strict=True)
        ]
        new = new.drop_columns([SEQ, ARRIVAL]).combine_chunks()
        content = concat_with_nulls([*(piece.table for piece in state.content), new]).slice(state.passed)
        out = self._join_content(stream, content)
        passed = state.passed + self._count_expired(_times(content), until)
        state.content, state.passed = drop_first_rows(state.content, new, passed)
        return out, until

    def due(self) -> Due | None:
        waiting = self.state.waiting
        return due_in_turn([table.column(TS)[0].as_py() if table.num_rows else None for table in waiting])

    def _join_content(self, stream: pa.Table, content: pa.Table) -> pa.Table:
        """Join stream rows with the rows of the view, in stream order.

        The matches of a stream row are ordered oldest first.
        """
        ts, times = _times(stream), _times(content)
        ends = np.searchsorted(times, ts, side="right")
        rows = content.drop_columns([TS])
        joined = self._matching.join(stream, rows, stretch=self._row_range(ts, times, ends))
        return fan_out(joined, self._seq_bits)

    def _row_range(self, ts: Int64s, times: Int64s, ends: Int64s) -> RowRange:
        if self._by_rows:
            return RowRange(np.maximum(ends - self._extent, 0), ends)
        return RowRange(np.searchsorted(times, ts - self._extent, side="right"), ends)

    def _count_expired(self, times: Int64s, until: int) -> int:
        """Return the number of view rows that no later stream row can match."""
        if self._by_rows:
            return max(len(times) - self._extent, 0)
        return int(np.searchsorted(times, max(until - self._extent, BEFORE_ALL), side="right"))


def view_lookup(lookup: Lookup, view_of: Materialize, context: StepContext) -> ViewLookupStep:
    columns, own = context.node.schema.columns, len(context.schemas[1])
    stream, view = Schema(columns[:own]), Schema(columns[own:])
    state = context.state if isinstance(context.state, ViewState) else ViewState()
    matching = LookupMatcher(stream, view, lookup.condition, lookup.left)
    return ViewLookupStep(state, view_of.window, matching, stream, view, context.seq_bits)


def _times(table: pa.Table) -> Int64s:
    found: Int64s = table.column(TS).to_numpy()
    return found
