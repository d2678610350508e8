"""Vectorized lookup join with a table, or with a view's window (M40).

Equalities between the two sides are hash keys (NULL equals nothing). The rest of the condition is evaluated
on the candidate pairs. Without an equality every pair is a candidate. Pairs are built in blocks, so that
memory is bounded. The output is in the order of the stream, then of the table.

Since the rest of the condition is evaluated on candidate pairs only, it cannot raise an error on a pair that
the equalities exclude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.esl.types import schema as t
from slicemill.esl.types.expression import Call, Expr, columns_of, conjunction, conjuncts
from slicemill.esl.types.schema import Kind, Schema
from slicemill.scalar.columns import Arrived, compile_vector
from slicemill.scalar.steps import converted
from slicemill.storage.arrow_schema import is_system_column

PAIRS_PER_BLOCK = 1 << 18

Places = NDArray[np.int64]
KeyColumn = Callable[[Arrived], pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class LookupKeys:
    """Condition split into equal keys of both sides and a residual."""

    stream: tuple[Expr, ...]
    table: tuple[Expr, ...]
    rest: Expr | None


def keys_of(condition: Expr | None, stream: Schema, table: Schema) -> LookupKeys:
    """Split a condition into hash keys and a residual."""
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
    left, right = converted(left, shared), converted(right, shared)
    reads_left, reads_right = columns_of(left), columns_of(right)
    if not reads_left or not reads_right:
        return None
    if reads_left <= of_stream and reads_right <= of_table:
        return left, right
    if reads_right <= of_stream and reads_left <= of_table:
        return right, left
    return None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Range [start, end) of table rows that each stream row may match."""

    starts: Places
    ends: Places


class Matching:
    """Compiled condition between stream rows and table rows.

    Columns of both sides have different names, as in the condition. A left join keeps stream rows without
    a match, with NULLs in the table's columns.
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
        # A condition without columns still needs the row count.
        self._read = (columns_of(keys.rest) if keys.rest is not None else None) or self._columns[:1]

    def index(self, table: pa.Table) -> Index:
        return Index([key(table) for key in self._table_keys], table.num_rows)

    def join(
        self, stream: pa.Table, table: pa.Table, index: Index | None = None, stretch: Stretch | None = None
    ) -> pa.Table:
        """Return the joined rows: stream columns, then table columns.

        System columns of the stream are kept. Without an `index`, one is built of the table rows with a key
        of these stream rows.
        """
        keys = [key(stream) for key in self._stream_keys]
        if index is None:
            index = Index([key(table) for key in self._table_keys], table.num_rows, keys)
        first, counts = index.groups(keys, stream.num_rows, stretch)
        tuples: list[Places] = []
        rows: list[Places] = []
        for start, stop in _blocks(counts):
            count = counts[start:stop]
            of = np.repeat(np.arange(start, stop), count)
            within = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
            candidates = index.rows[np.repeat(first[start:stop], count) + within]
            tuple_places, row_places = self._matches(stream, table, of, candidates, range(start, stop))
            tuples.append(tuple_places)
            rows.append(row_places)
        return self._joined(stream, table, _concatenated(tuples), _concatenated(rows))

    def _matches(
        self, stream: pa.Table, table: pa.Table, tuples: Places, rows: Places, block: range
    ) -> tuple[Places, Places]:
        """Return the indexes of matching rows; table row -1 for no match."""
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

    def _pairs(self, stream: pa.Table, table: pa.Table, tuples: Places, rows: Places) -> pa.Table:
        """Return the columns of the residual condition for candidate pairs."""
        columns = {
            name: (stream if name in self._columns else table)
            .column(name)
            .take(pa.array(tuples if name in self._columns else rows))
            for name in self._read
        }
        return pa.table(columns)

    def _joined(self, stream: pa.Table, table: pa.Table, tuples: Places, rows: Places) -> pa.Table:
        carried = [name for name in stream.column_names if is_system_column(name)]
        left = stream.select([*carried, *self._columns]).take(pa.array(tuples))
        right = table.take(pa.array(rows, mask=rows < 0))
        for name in right.column_names:
            left = left.append_column(name, right.column(name))
        return left


class TableLookup:
    """Stored table with its index, ready for joins."""

    def __init__(
        self,
        stream_schema: Schema,
        table_schema: Schema,
        condition: Expr | None,
        table: pa.Table,
        left: bool = False,
    ) -> None:
        self._matching = Matching(stream_schema, table_schema, condition, left)
        self._table = table.select(table_schema.names).combine_chunks()
        self._index = self._matching.index(self._table)

    def join(self, stream: pa.Table) -> pa.Table:
        return self._matching.join(stream, self._table, self._index)


class Index:
    """Hash index: `rows` are grouped by key, in table order within a group.

    With `wanted`, only rows with one of these keys are included.
    """

    def __init__(
        self, keys: list[pa.ChunkedArray], rows: int, wanted: list[pa.ChunkedArray] | None = None
    ) -> None:
        self._levels: list[tuple[pa.Array, pa.Array]] = []
        comparables = [_comparable(key) for key in keys]
        places = np.arange(rows)
        if comparables and wanted is not None:
            asked = pc.is_in(comparables[0], value_set=pc.unique(_comparable(wanted[0])))
            places = np.flatnonzero(asked.to_numpy())
            comparables = [comparable.take(pa.array(places)) for comparable in comparables]
        group: Places = np.zeros(len(places), np.int64)
        for comparable in comparables:
            values = pc.unique(comparable).drop_null()
            combined = _combined(group, comparable, values)
            groups = pa.array(np.unique(combined[combined >= 0]))
            group = _codes(_nullable(combined), groups)
            self._levels.append((values, groups))
        order = np.argsort(group, kind="stable") if keys else places
        order = order[np.count_nonzero(group < 0) :]
        self.rows: Places = places[order]
        # Combine group and row into one number, so that the rows of a group within a range are adjacent.
        self._span = rows + 1
        self._places: Places = group[order] * self._span + self.rows

    def groups(
        self, keys: list[pa.ChunkedArray], tuples: int, stretch: Stretch | None = None
    ) -> tuple[Places, Places]:
        """Return the start and size of each stream row's group.

        The start is an index into `rows`.
        """
        group: Places = np.zeros(tuples, np.int64)
        for key, (values, groups) in zip(keys, self._levels, strict=True):
            group = _codes(_nullable(_combined(group, _comparable(key), values)), groups)
        starts, ends = (0, self._span - 1) if stretch is None else (stretch.starts, stretch.ends)
        first, last = (np.searchsorted(self._places, group * self._span + row) for row in (starts, ends))
        return first, np.where(group < 0, 0, last - first)


def _comparable(key: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert doubles to bits, with one zero and one NaN: NaN equals NaN."""
    if not pa.types.is_floating(key.type):
        return key
    chunks = []
    for chunk in key.chunks:
        values = chunk.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        chunks.append(pa.array(values.view(np.int64), mask=chunk.is_null().to_numpy(zero_copy_only=False)))
    return pa.chunked_array(chunks, pa.int64())


def _codes(keys: pa.ChunkedArray, values: pa.Array) -> Places:
    """Return the index of each key among the values, or -1.

    It is -1 for NULL and for missing values.
    """
    found = pc.index_in(keys, value_set=values, skip_nulls=True)
    places: Places = pc.fill_null(found, -1).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _combined(group: Places, key: pa.ChunkedArray, values: pa.Array) -> Places:
    """Combine a group and one more key into one number.

    It is -1 if either of them is -1. Numbers are below the square of the table's row count.
    """
    codes = _codes(key, values)
    return np.where((group < 0) | (codes < 0), -1, group * max(len(values), 1) + codes)


def _nullable(codes: Places) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(codes, mask=codes < 0)])


def _blocks(counts: Places) -> Iterator[tuple[int, int]]:
    """Yield ranges of stream rows with a bounded number of pairs each.

    Each range has at least one row.
    """
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + PAIRS_PER_BLOCK, side="right")))
        yield start, stop
        start = stop


def _concatenated(parts: list[Places]) -> Places:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
