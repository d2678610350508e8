"""Group and partition keys as dense numbers (dictionary encoding).

Equality is that of GROUP BY: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Python code runs per
distinct key of a table, not per row. Rows have the position of their key among the distinct keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.columns.numbered import GrowingRows
from slicemill.columns.pieces import together
from slicemill.storage.codec import register
from slicemill.storage.slice import Slice

Numbers: TypeAlias = NDArray[np.int32]
Column: TypeAlias = pa.Array | pa.ChunkedArray

_NAN_BITS = int(np.array([np.nan]).view(np.int64)[0])
_LARGEST_PRODUCT = 2**62


@dataclass(frozen=True, slots=True)
class DistinctKeys:
    """Distinct keys of a table.

    `values[codes[row]]` is the key of a row. `rows` has the first row of each key.
    """

    codes: NDArray[np.int64]
    values: list[Any]
    rows: NDArray[np.int64]


# Keyed by the buffer addresses of columns. The columns are referenced, so that no others reuse the memory.
_Memo: TypeAlias = dict[tuple[Any, ...], tuple[Sequence[Column], DistinctKeys]]
_memo: ContextVar[_Memo | None] = ContextVar("keys found in this run", default=None)


@contextmanager
def keys_found_once() -> Iterator[None]:
    """Cache distinct keys per column, because many windows read one table."""
    token = _memo.set({})
    try:
        yield
    finally:
        _memo.reset(token)


def distinct_keys(columns: Sequence[Column], rows: int) -> DistinctKeys:
    """Return the distinct keys of rows.

    Without columns all rows have the same key.
    """
    memo = _memo.get()
    if memo is None or not columns or any(_in_parts(column.type) for column in columns):
        return _distinct(columns, rows)
    place = tuple(_place(column) for column in columns)
    if place not in memo:
        memo[place] = columns, _distinct(columns, rows)
    return memo[place][1]


def _in_parts(kind: pa.DataType) -> bool:
    """Return True if a column refers to more memory than its own buffers."""
    return bool(pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


def _place(column: Column) -> tuple[Any, ...]:
    """Return an identifier of a column's memory. Equal identifiers imply equal values."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return tuple(
        (chunk.type, chunk.offset, len(chunk), *(None if b is None else b.address for b in chunk.buffers()))
        for chunk in chunks
    )


def whole(column: Column) -> pa.Array:
    """Return a column as one array, copying only if necessary."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _distinct(columns: Sequence[Column], rows: int) -> DistinctKeys:
    if not columns:
        first = np.zeros(min(rows, 1), np.int64)
        return DistinctKeys(np.zeros(rows, np.int64), [()] * min(rows, 1), first)
    plain = [part for column in columns for part in comparable(column)]
    codes, distinct = _encoded(plain[0])
    values = distinct.to_pylist()
    for place, column in enumerate(plain[1:]):
        more, others = _encoded(column)
        added = others.to_pylist()
        assert len(values) * len(added) < _LARGEST_PRODUCT, "a table has fewer rows than that"
        codes, pairs = _encoded(pa.array(codes * len(added) + more))
        left, right = (part.tolist() for part in np.divmod(pairs.to_numpy(), max(len(added), 1)))
        if place == 0:
            values = list(zip(map(values.__getitem__, left), map(added.__getitem__, right), strict=True))
        else:
            values = [(*values[one], added[other]) for one, other in zip(left, right, strict=True)]
    return DistinctKeys(codes, values, _first_rows(codes, len(values)))


def first_rows(integers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct integers in order of appearance, and each one's first position."""
    codes, distinct = _encoded(pa.array(integers))
    return distinct.to_numpy(), _first_rows(codes, len(distinct))


def _encoded(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return dictionary codes and the dictionary, in order of appearance."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _first_rows(codes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    rows = np.empty(count, np.int64)
    rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return rows


def comparable(column: Column) -> list[pa.Array]:
    """Return the column in a form where equal keys have equal values.

    For example, floats are represented by their bits.
    """
    array = whole(column)
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
        return [comparable(pc.struct_field(array, place))[0] for place in range(kind.num_fields)]
    if pa.types.is_null(kind):
        return [array.cast(pa.int8())]
    if pa.types.is_list(kind):
        (values,) = comparable(array.flatten())
        same = pa.ListArray.from_arrays(_offsets(array), values).to_pylist()
        known = array.is_valid().to_pylist()
        return [pa.array([repr(row) if k else None for row, k in zip(same, known, strict=True)], pa.string())]
    return [array]


def _offsets(array: pa.ListArray) -> pa.Array:
    """Return the offsets of lists among their values. NULL has no values."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


class Keys:
    """Dictionary of keys, numbered by first appearance.

    A key keeps its number in later runs.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._rows = GrowingRows()  # of key columns; empty if there are no columns

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers_alike(self, other: Keys) -> bool:
        """Return True if both have the same keys in the same order."""
        return self is other or self._numbers == other._numbers

    def number(self, keys: DistinctKeys, columns: Sequence[Column]) -> Numbers:
        """Return the number of each row's key, and add new keys.

        `columns` are the columns that `keys` was made from.
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
            added = [shown(_chunked(column).take(new)) for column in columns]
            self._rows.add(pa.table(added, names=[str(place) for place in range(len(added))]))
        return found[keys.codes] if len(found) else np.zeros(len(keys.codes), np.int32)

    def values(self, numbers: NDArray[np.integer[Any]]) -> list[pa.Array]:
        """Return the key columns of these numbers."""
        if not self._rows.pieces:
            return []
        return [whole(column) for column in self._rows.at(numbers).columns]

    def plain(self) -> dict[str, Any]:
        """Return the stored form of keys: their rows.

        Without columns there is one key once a row was seen.
        """
        return {"pieces": list(self._rows.pieces), "count": len(self._numbers)}

    def in_columns(self) -> dict[str, Any]:
        """Return the arguments of `restored`."""
        none: list[pa.ChunkedArray] | None = [] if self._numbers else None
        pieces = [piece.table for piece in self._rows.pieces]
        columns = list(together(pieces).columns) if pieces else none
        return {"columns": columns, "count": len(self._numbers)}

    @staticmethod
    def of_pieces(pieces: list[Slice], count: int) -> Keys:
        """Return the keys with these rows, numbered in this order."""
        columns = list(together([piece.table for piece in pieces]).columns) if pieces else []
        keys = Keys.restored(columns if pieces or count else None, count)
        if pieces:
            keys._rows = GrowingRows(pieces, sum(piece.table.num_rows for piece in pieces))
        return keys

    @staticmethod
    def restored(columns: Sequence[Column] | None, count: int = 0) -> Keys:
        """Return the keys in these columns, numbered in this order."""
        keys = Keys()
        if columns is not None:
            rows = len(columns[0]) if columns else count
            keys.number(distinct_keys(columns, rows), columns)
        return keys

    def keep(self, alive: NDArray[np.bool_]) -> Numbers:
        """Evict keys.

        Return the new number of each old key, -1 for evicted ones.
        """
        renumbered = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
        self._numbers = {key: int(renumbered[n]) for key, n in self._numbers.items() if alive[n]}
        self._rows = self._rows.only(np.flatnonzero(alive))
        return renumbered


def _with_rows(old: dict[str, Any]) -> dict[str, Any]:
    """Return version 2 of stored keys.

    Version 1 stored the columns as one table.
    """
    return Keys.restored(old["columns"], old["count"]).plain()


register("keys", 2, Keys, Keys.plain, lambda plain: Keys.of_pieces(**plain), upgrade={1: _with_rows})


def _chunked(column: Column) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column], column.type)


def shown(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace -0.0 by 0.0, for output independent of the order of arrival."""
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
