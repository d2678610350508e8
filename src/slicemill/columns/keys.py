"""Keys of GROUP BY and PARTITION BY as dense numbers (dictionary encoding).

Equality is that of GROUP BY: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Python code runs per
distinct key of a table, not per row. Each row refers to its key by the index of the key among the distinct
keys. A *key number* is the number that an operator's dictionary of keys (`Keys`) assigns to a key. A *piece*
is an immutable table with some rows of an operator's state.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.codec.registry import register, stored_as
from slicemill.columns.pieces import Slice, concat_with_nulls
from slicemill.kernels.arrays import Int32s, Int64s

Column: TypeAlias = pa.Array | pa.ChunkedArray

_NAN_BITS = int(np.array([np.nan]).view(np.int64)[0])
_LARGEST_PRODUCT = 2**62


@dataclass(frozen=True, slots=True)
class DistinctKeys:
    """Distinct keys of a table, and the key of each row.

    `values[codes[row]]` is the key of a row. `rows` has the position of the first row of each key.
    """

    codes: NDArray[np.int64]
    values: list[Any]
    rows: NDArray[np.int64]


# Cache of distinct keys by buffer addresses. It references the columns, so that their memory is not reused.
_Memo: TypeAlias = dict[tuple[Any, ...], tuple[Sequence[Column], DistinctKeys]]
_memo: ContextVar[_Memo | None] = ContextVar("keys found in this run", default=None)


@contextmanager
def keys_found_once() -> Iterator[None]:
    """Cache distinct keys within this context.

    Many windows read the same columns of a table.
    """
    token = _memo.set({})
    try:
        yield
    finally:
        _memo.reset(token)


def distinct_keys(columns: Sequence[Column], rows: int) -> DistinctKeys:
    """Return the distinct keys in these columns of a table.

    Without columns, all rows have the same key.
    """
    memo = _memo.get()
    if memo is None or not columns or any(_in_parts(column.type) for column in columns):
        return _distinct(columns, rows)
    index = tuple(_memory_id(column) for column in columns)
    if index not in memo:
        memo[index] = columns, _distinct(columns, rows)
    return memo[index][1]


def _in_parts(kind: pa.DataType) -> bool:
    """Return True if an Arrow type stores its values in child arrays or a dictionary."""
    return bool(pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


def _memory_id(column: Column) -> tuple[Any, ...]:
    """Return an identifier of a column's memory; equal identifiers imply equal values."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return tuple(
        (chunk.type, chunk.offset, len(chunk), *(None if b is None else b.address for b in chunk.buffers()))
        for chunk in chunks
    )


def to_array(column: Column) -> pa.Array:
    """Return a column as one array, copying only if necessary."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _distinct(columns: Sequence[Column], rows: int) -> DistinctKeys:
    if not columns:
        first = np.zeros(min(rows, 1), np.int64)
        return DistinctKeys(np.zeros(rows, np.int64), [()] * min(rows, 1), first)
    plain = [part for column in columns for part in comparable(column)]
    codes, distinct = _dictionary_encode(plain[0])
    values = distinct.to_pylist()
    for index, column in enumerate(plain[1:]):
        more, others = _dictionary_encode(column)
        added = others.to_pylist()
        assert len(values) * len(added) < _LARGEST_PRODUCT, "a table has fewer rows than that"
        codes, pairs = _dictionary_encode(pa.array(codes * len(added) + more))
        left, right = (part.tolist() for part in np.divmod(pairs.to_numpy(), max(len(added), 1)))
        if index == 0:
            values = list(zip(map(values.__getitem__, left), map(added.__getitem__, right), strict=True))
        else:
            values = [(*values[one], added[other]) for one, other in zip(left, right, strict=True)]
    return DistinctKeys(codes, values, _first_rows(codes, len(values)))


def first_rows(integers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct integers in order of appearance, with their first positions."""
    codes, distinct = _dictionary_encode(pa.array(integers))
    return distinct.to_numpy(), _first_rows(codes, len(distinct))


def _dictionary_encode(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return dictionary codes and the dictionary, in order of appearance."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _first_rows(codes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    rows = np.empty(count, np.int64)
    rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return rows


def comparable(column: Column) -> list[pa.Array]:
    """Return the column as arrays in which equal keys have equal values.

    For example, floats become their bits, and a struct becomes an array for each field.
    """
    array = to_array(column)
    kind = array.type
    if pa.types.is_floating(kind):
        valid = array.is_valid()
        values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False) + 0.0
        bits = np.where(np.isnan(values), _NAN_BITS, values.view(np.int64))
        return [pc.if_else(valid, pa.array(bits), None)]
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return [array.cast(pa.int64())]
    if pa.types.is_date32(kind):
        return [array.cast(pa.int32())]
    if pa.types.is_struct(kind):
        return [comparable(pc.struct_field(array, index))[0] for index in range(kind.num_fields)]
    if pa.types.is_null(kind):
        return [array.cast(pa.int8())]
    if pa.types.is_list(kind):
        (values,) = comparable(array.flatten())
        same = pa.ListArray.from_arrays(_offsets(array), values).to_pylist()
        known = array.is_valid().to_pylist()
        return [pa.array([repr(row) if k else None for row, k in zip(same, known, strict=True)], pa.string())]
    return [array]


def _offsets(array: pa.ListArray) -> pa.Array:
    """Return the offsets of a list array, with NULL lists treated as empty."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


class Keys:
    """Dictionary of an operator's keys, numbered by first appearance.

    The number of a key stays the same in later micro-batches.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._rows = GrowingRows()  # key columns, in the order of key numbers; empty without key columns

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers_alike(self, other: Keys) -> bool:
        """Return True if two dictionaries have the same keys in the same order."""
        return self is other or self._numbers == other._numbers

    def number(self, keys: DistinctKeys, columns: Sequence[Column]) -> Int32s:
        """Return the number of each row's key, and add new keys.

        `columns` are the table columns from which `keys` was computed.
        """
        numbers = self._numbers
        # Look up known keys without a Python step per key.
        known_or_none = list(map(numbers.get, keys.values))
        if None in known_or_none:
            for value, number in zip(keys.values, known_or_none, strict=True):
                if number is None:
                    numbers[value] = len(numbers)
            known_or_none = list(map(numbers.get, keys.values))
        found = np.array(known_or_none, np.int32)
        if columns and (self._rows.rows < len(numbers) or not self._rows.pieces):
            new = pa.array(keys.rows[found >= self._rows.rows])
            added = [normalize_zeros(_to_chunked(column).take(new)) for column in columns]
            self._rows.add(pa.table(added, names=[str(index) for index in range(len(added))]))
        return found[keys.codes] if len(found) else np.zeros(len(keys.codes), np.int32)

    def values(self, numbers: NDArray[np.integer[Any]]) -> list[pa.Array]:
        """Return the key columns of the keys with these numbers."""
        if not self._rows.pieces:
            return []
        return [to_array(column) for column in self._rows.at(numbers).columns]

    def plain(self) -> dict[str, Any]:
        """Return the key columns for a checkpoint, as a list of immutable tables.

        `count` is the number of keys. Without key columns, it is 1 after the first row.
        """
        return {"pieces": list(self._rows.pieces), "count": len(self._numbers)}

    def in_columns(self) -> dict[str, Any]:
        """Return all key columns and the number of keys, as arguments of `restored`."""
        none: list[pa.ChunkedArray] | None = [] if self._numbers else None
        pieces = [piece.table for piece in self._rows.pieces]
        columns = list(concat_with_nulls(pieces).columns) if pieces else none
        return {"columns": columns, "count": len(self._numbers)}

    @staticmethod
    def of_pieces(pieces: list[Slice], count: int) -> Keys:
        """Restore the keys from the tables of a checkpoint, numbered in row order."""
        columns = list(concat_with_nulls([piece.table for piece in pieces]).columns) if pieces else []
        keys = Keys.restored(columns if pieces or count else None, count)
        if pieces:
            keys._rows = GrowingRows(pieces, sum(piece.table.num_rows for piece in pieces))
        return keys

    @staticmethod
    def restored(columns: Sequence[Column] | None, count: int = 0) -> Keys:
        """Restore the keys from these key columns, numbered in row order."""
        keys = Keys()
        if columns is not None:
            rows = len(columns[0]) if columns else count
            keys.number(distinct_keys(columns, rows), columns)
        return keys

    def keep(self, alive: NDArray[np.bool_]) -> Int32s:
        """Evict all keys outside the mask `alive`, and renumber the remaining keys.

        Return the new number of each old key, with -1 for evicted keys.
        """
        renumbered = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
        self._numbers = {key: int(renumbered[n]) for key, n in self._numbers.items() if alive[n]}
        self._rows = self._rows.only(np.flatnonzero(alive))
        return renumbered


def _with_rows(old: dict[str, Any]) -> dict[str, Any]:
    """Convert stored keys from version 1 (one table) to version 2 (several tables)."""
    return Keys.restored(old["columns"], old["count"]).plain()


register("keys", 2, Keys, Keys.plain, lambda plain: Keys.of_pieces(**plain), upgrade={1: _with_rows})


def _to_chunked(column: Column) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column], column.type)


def normalize_zeros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace -0.0 by 0.0, so that output does not depend on arrival order."""
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column


# Hash partitioning: the subtask (partition) of a key or row
#
# The subtask is the same in every process, micro-batch and version. Equal keys of all tables have the same
# subtask.
# Equality is that of GROUP BY (`columns.keys`): NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Integers
# of any width, dates and times are hashed as 64-bit integers, so that both sides of a join agree. Values of
# other types are hashed once per distinct value.


Subtasks: TypeAlias = NDArray[np.uint16]
Words: TypeAlias = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD1B54A32D192ED03)
_LOW = np.uint64(0xFFFFFFFF)


def subtasks_of(columns: Sequence[Column], rows: int, count: int) -> Subtasks:
    """Return the subtask of each row, by a hash of the key."""
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        for part in comparable(column):
            hashes = _mix_bits((_words(part) ^ hashes) + _STEP)
    # Use the low bits, because the hash tables of joins use the high bits of a very similar hash.
    return np.asarray(((hashes & _LOW) * np.uint64(count)) >> np.uint64(32), np.uint16)


def stripes_of(seqs: NDArray[np.int64], count: int) -> Subtasks:
    """Spread rows over subtasks by sequence number, independent of keys (S33, S39).

    Consecutive rows are spread over all subtasks, so that even a short window is distributed evenly.
    Multiples of the golden ratio are evenly distributed for any first number and any constant step.
    """
    turns = seqs.view(np.uint64) * _STEP
    return np.asarray(((turns >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32), np.uint16)


def _words(column: pa.Array) -> Words:
    """Return a 64-bit word for each value of a column; equal values have equal words."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        filled = column.fill_null(False if pa.types.is_boolean(kind) else 0) if column.null_count else column
        words: Words = filled.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64)
        return np.where(column.is_valid().to_numpy(False), words, _NULL) if column.null_count else words
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    distinct = [_NULL if value is None else _checksum(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return np.asarray(np.array(distinct, np.uint64)[codes])


def _checksum(value: object) -> int:
    return zlib.crc32(value if isinstance(value, bytes) else str(value).encode())


def _mix_bits(words: Words) -> Words:
    """Apply the finaliser of splitmix64, a bijection of 64-bit words."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


# Arrays and rows by key number, for micro-batches that contain few of many keys
#
# `Keys` assigns the numbers. The cost of a micro-batch depends on its number of rows, not on the number of
# keys, because it reads and writes only the entries of its own keys. An array is copied only to grow, by half
# of its length.


Figure = TypeVar("Figure", bound=np.generic)

_LEAST_ROOM = 64
# A piece is merged with the next piece if it is less than _GROWTH_STEP times as long, or if both are small.
_GROWTH_STEP, _SMALL = 8, 4_096
# Unused rows are dropped if there are more unused rows than used rows, and more than _MANY_UNUSED.
_MANY_UNUSED = 1_024


def distinct_numbers(numbered: NDArray[np.integer[Any]]) -> tuple[Int64s, Int32s]:
    """Return the sorted distinct numbers, and each row's index among these numbers."""
    distinct, local = np.unique(numbered, return_inverse=True)
    return distinct.astype(np.int64), local.astype(np.int32)


def extend_array(figures: NDArray[Figure], count: int, first: int = 0) -> NDArray[Figure]:
    """Extend an array that has one value for each key number to `count` keys.

    New keys get the value `first`. The result is a view of a larger array, which the next call extends in
    place. So the caller must own the array and must not share views of it.
    """
    known = len(figures)
    if known >= count:
        return figures
    room = _room_of(figures)
    if room is None or len(room) < count:
        room = np.empty(max(_LEAST_ROOM, count + count // 2), figures.dtype)
        room[:known] = figures
    room[known:count] = first
    return room[:count]


def _room_of(figures: NDArray[Figure]) -> NDArray[Figure] | None:
    """Return the over-allocated array whose first part is `figures`, or None."""
    room = figures.base
    if not isinstance(room, np.ndarray) or room.base is not None or room.ndim != 1:
        return None
    is_first = room.__array_interface__["data"][0] == figures.__array_interface__["data"][0]
    return room if is_first and room.dtype == figures.dtype else None


def _no_positions() -> Int64s:
    return np.zeros(0, np.int64)


@stored_as("rows.growing", version=1)
@dataclass(slots=True)
class GrowingRows:
    """Append-only rows in a list of immutable tables, the pieces.

    Adjacent pieces are merged, so that there are few pieces. The position of a row never changes.
    """

    pieces: list[Slice] = field(default_factory=list)
    rows: int = 0

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows and self.pieces:
            return
        self.rows += rows.num_rows
        self.pieces.append(Slice(rows.combine_chunks()))
        while len(self.pieces) > 1 and _belong_together(*self.pieces[-2:]):
            last = self.pieces.pop().table
            self.pieces[-1] = Slice(concat_with_nulls([self.pieces[-1].table, last]).combine_chunks())

    def at(self, indices: NDArray[np.integer[Any]]) -> pa.Table:
        """Return the rows at these positions as a table.

        Arrow's own `take` would concatenate the pieces each time.
        """
        tables = [piece.table for piece in self.pieces]
        if len(tables) == 1:
            return tables[0].take(pa.array(indices))
        ends = np.cumsum([table.num_rows for table in tables])
        order = np.argsort(indices, kind="stable")
        ordered = indices[order]
        stops = np.searchsorted(ordered, ends)
        found = [
            table.take(pa.array(ordered[start:stop] - (end - table.num_rows)))
            for table, end, start, stop in zip(tables, ends, [0, *stops[:-1]], stops, strict=True)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return concat_with_nulls(found).combine_chunks().take(pa.array(back))

    def behind(self, indices: NDArray[np.integer[Any]], new: pa.Table) -> pa.Table:
        """Return the rows at these positions, followed by the new rows."""
        return concat_with_nulls([self.at(indices), new]) if len(indices) else new

    def only(self, indices: NDArray[np.integer[Any]]) -> GrowingRows:
        """Return a copy with only the rows at these indices, at new positions."""
        found = GrowingRows()
        if self.pieces:
            found.add(self.at(indices))
        return found


def mostly_unused(rows: int, used: int) -> bool:
    """Return True if there are enough unused rows to drop them."""
    return rows - used > max(used, _MANY_UNUSED)


@stored_as("rows.by_number", version=1, stored_names={"indices": "places"})
@dataclass(slots=True)
class RowsByNumber:
    """Rows by key number, with at most one row for each key.

    `indices` has the position of each key's row in `added`, and -1 for a key without a row:

        added   a1 b1 c1      indices  a  b  c  d      `replace` b and d by b2 and d1: they are appended,
                b2 d1                  0  3  2  4      and b1 is dropped when many rows are unused
    """

    added: GrowingRows = field(default_factory=GrowingRows)
    indices: Int64s = field(default_factory=_no_positions)
    used: int = 0

    @staticmethod
    def of_all(table: pa.Table | None) -> RowsByNumber:
        """Return the rows of a table, with their positions as key numbers."""
        found = RowsByNumber()
        if table is not None:
            found.reach(table.num_rows)
            found.replace(np.arange(table.num_rows), table)
        return found

    def reach(self, count: int) -> None:
        """Extend `indices` to `count` key numbers."""
        self.indices = extend_array(self.indices, count, -1)

    def replace(self, numbers: Int64s, rows: pa.Table) -> None:
        """Replace the rows of the keys with these numbers."""
        self.used += int(np.count_nonzero(self.indices[numbers] < 0))
        self.indices[numbers] = self.added.rows + np.arange(len(numbers))
        self.added.add(rows)
        if mostly_unused(self.added.rows, self.used):
            self._tidy()

    def keep(self, alive: NDArray[np.bool_]) -> None:
        """Drop the rows of keys outside the mask `alive`, and renumber the keys."""
        self.indices = self.indices[alive]
        self._tidy()

    def _tidy(self) -> None:
        """Drop unused rows from `added`."""
        numbers = np.flatnonzero(self.indices >= 0)
        in_order = np.sort(self.indices[numbers])
        self.added = self.added.only(in_order)
        self.indices[numbers] = np.searchsorted(in_order, self.indices[numbers])
        self.used = len(numbers)


def _belong_together(older: Slice, newer: Slice) -> bool:
    old, new = len(older.table), len(newer.table)
    return old < _GROWTH_STEP * new or old + new <= _SMALL
