"""Join of a stream with a stored table, or with what a window holds (M40), over whole tables of tuples.

Equalities between the two sides are looked up (NULL equals nothing); what remains of the condition is
evaluated on the pairs found. Without an equality every pair is a candidate. Pairs are made block by block, so
that memory stays bounded. Output is in the order of the stream, then of the table.

The condition is evaluated on candidate pairs only: it cannot fail on a pair that the equalities exclude.
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
    """A condition taken apart: what must be equal on both sides, and what remains to be tested."""

    stream: tuple[Expr, ...]
    table: tuple[Expr, ...]
    rest: Expr | None


def keys_of(condition: Expr | None, stream: Schema, table: Schema) -> LookupKeys:
    """Equalities of an expression over the stream with one over the table, as hash keys."""
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
    """For each tuple, the rows [start, end) of the table that it can meet."""

    starts: Places
    ends: Places


class Matching:
    """A condition between tuples of a stream and rows of a table, made ready to find those that go together.

    Columns of both sides have different names, as the condition calls them. A left join keeps tuples without
    a match, with NULLs in place of the table's columns.
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
        # A condition without columns still needs the number of pairs.
        self._read = (columns_of(keys.rest) if keys.rest is not None else None) or self._columns[:1]

    def index(self, table: pa.Table) -> Index:
        return Index([key(table) for key in self._table_keys], table.num_rows)

    def join(
        self, stream: pa.Table, table: pa.Table, index: Index | None = None, stretch: Stretch | None = None
    ) -> pa.Table:
        """System columns and columns of the stream, then those of the table.

        Without an index of the table one is made of the rows that these tuples can meet.
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
        """Places of the tuples and rows that go together; row -1 for a tuple without a match."""
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
        """The columns that the rest of the condition reads."""
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
    """A stored table made ready for joins: its rows grouped by key."""

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
    """Rows numbered by key: `rows` holds them grouped, in table order within a group.

    With the keys that are `wanted`, rows of others are left out.
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
        # By group, then by row, in one number: what a tuple can meet lies between two of them.
        self._span = rows + 1
        self._places: Places = group[order] * self._span + self.rows

    def groups(
        self, keys: list[pa.ChunkedArray], tuples: int, stretch: Stretch | None = None
    ) -> tuple[Places, Places]:
        """For each tuple where those of its group begin in `rows`, and how many there are."""
        group: Places = np.zeros(tuples, np.int64)
        for key, (values, groups) in zip(keys, self._levels, strict=True):
            group = _codes(_nullable(_combined(group, _comparable(key), values)), groups)
        starts, ends = (0, self._span - 1) if stretch is None else (stretch.starts, stretch.ends)
        first, last = (np.searchsorted(self._places, group * self._span + row) for row in (starts, ends))
        return first, np.where(group < 0, 0, last - first)


def _comparable(key: pa.ChunkedArray) -> pa.ChunkedArray:
    """Doubles by their bits, with one zero and one NaN: NaN equals itself."""
    if not pa.types.is_floating(key.type):
        return key
    chunks = []
    for chunk in key.chunks:
        values = chunk.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        chunks.append(pa.array(values.view(np.int64), mask=chunk.is_null().to_numpy(zero_copy_only=False)))
    return pa.chunked_array(chunks, pa.int64())


def _codes(keys: pa.ChunkedArray, values: pa.Array) -> Places:
    """The place of each key among the values, -1 for NULL and for what is not there."""
    found = pc.index_in(keys, value_set=values, skip_nulls=True)
    places: Places = pc.fill_null(found, -1).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _combined(group: Places, key: pa.ChunkedArray, values: pa.Array) -> Places:
    """One number for a group and one more key, below the square of the table's rows; -1 where either is."""
    codes = _codes(key, values)
    return np.where((group < 0) | (codes < 0), -1, group * max(len(values), 1) + codes)


def _nullable(codes: Places) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(codes, mask=codes < 0)])


def _blocks(counts: Places) -> Iterator[tuple[int, int]]:
    """Ranges of tuples with a bounded number of pairs each, or a single tuple."""
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + PAIRS_PER_BLOCK, side="right")))
        yield start, stop
        start = stop


def _concatenated(parts: list[Places]) -> Places:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
