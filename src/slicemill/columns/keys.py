"""Keys of groups and partitions as dense numbers.

Equal means what GROUP BY means: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Work is done per distinct
key of a table, not per row: rows only carry the place of their key in the list of distinct ones.
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
    """The keys of a table: `codes[row]` is the place of the row's key in `values`; `rows` has them first."""

    codes: NDArray[np.int64]
    values: list[Any]
    rows: NDArray[np.int64]


# By the memory that key columns lie in; the columns are held, so that no others come to lie there.
_Memo: TypeAlias = dict[tuple[Any, ...], tuple[Sequence[Column], DistinctKeys]]
_memo: ContextVar[_Memo | None] = ContextVar("keys found in this run", default=None)


@contextmanager
def keys_found_once() -> Iterator[None]:
    """Within, the keys of the same columns are found once, whoever asks: many windows read one table."""
    token = _memo.set({})
    try:
        yield
    finally:
        _memo.reset(token)


def distinct_keys(columns: Sequence[Column], rows: int) -> DistinctKeys:
    """The keys that the columns form together; without columns all rows have the same one."""
    memo = _memo.get()
    if memo is None or not columns or any(_in_parts(column.type) for column in columns):
        return _distinct(columns, rows)
    place = tuple(_place(column) for column in columns)
    if place not in memo:
        memo[place] = columns, _distinct(columns, rows)
    return memo[place][1]


def _in_parts(kind: pa.DataType) -> bool:
    """Does a column lie in more memory than its own buffers?"""
    return bool(pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


def _place(column: Column) -> tuple[Any, ...]:
    """Where a column lies in memory: two that lie in the same place have the same values."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return tuple(
        (chunk.type, chunk.offset, len(chunk), *(None if b is None else b.address for b in chunk.buffers()))
        for chunk in chunks
    )


def whole(column: Column) -> pa.Array:
    """A column as one array, where it lies if it is one already."""
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
    """The distinct ones of some integers in the order in which they come, and where each is first."""
    codes, distinct = _encoded(pa.array(integers))
    return distinct.to_numpy(), _first_rows(codes, len(distinct))


def _encoded(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """By row the place of its value among the distinct ones, and these, as they come."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _first_rows(codes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    rows = np.empty(count, np.int64)
    rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return rows


def comparable(column: Column) -> list[pa.Array]:
    """The column in a form whose values are equal if and only if the keys are: floats as bits, for one."""
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
    """Where lists begin among the values that they have; NULL has none."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


class Keys:
    """The keys met so far, numbered by first appearance: a key keeps its number from run to run."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._rows = GrowingRows()  # of key columns, none where there are no columns

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers_alike(self, other: Keys) -> bool:
        """Have both met the same keys, in the same order?"""
        return self is other or self._numbers == other._numbers

    def number(self, keys: DistinctKeys, columns: Sequence[Column]) -> Numbers:
        """The number of each row's key; `columns` are those that `keys` was made of."""
        numbers = self._numbers
        # Most are known: they are looked up without a step of Python for each.
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
        """The key columns for these numbers."""
        if not self._rows.pieces:
            return []
        return [whole(column) for column in self._rows.at(numbers).columns]

    def plain(self) -> dict[str, Any]:
        """Return what is stored of keys: their rows. Without columns there is one key, once a row was met."""
        return {"pieces": list(self._rows.pieces), "count": len(self._numbers)}

    def in_columns(self) -> dict[str, Any]:
        """Return the arguments of `restored`."""
        none: list[pa.ChunkedArray] | None = [] if self._numbers else None
        pieces = [piece.table for piece in self._rows.pieces]
        columns = list(together(pieces).columns) if pieces else none
        return {"columns": columns, "count": len(self._numbers)}

    @staticmethod
    def of_pieces(pieces: list[Slice], count: int) -> Keys:
        """Return the keys whose rows lie in these pieces, in the order of their numbers."""
        columns = list(together([piece.table for piece in pieces]).columns) if pieces else []
        keys = Keys.restored(columns if pieces or count else None, count)
        if pieces:
            keys._rows = GrowingRows(pieces, sum(piece.table.num_rows for piece in pieces))
        return keys

    @staticmethod
    def restored(columns: Sequence[Column] | None, count: int = 0) -> Keys:
        """Keys that were numbered before, from their columns in the order of the numbers."""
        keys = Keys()
        if columns is not None:
            rows = len(columns[0]) if columns else count
            keys.number(distinct_keys(columns, rows), columns)
        return keys

    def keep(self, alive: NDArray[np.bool_]) -> Numbers:
        """Forget keys that nobody needs; the new number of each old one, -1 for a forgotten one."""
        renumbered = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
        self._numbers = {key: int(renumbered[n]) for key, n in self._numbers.items() if alive[n]}
        self._rows = self._rows.only(np.flatnonzero(alive))
        return renumbered


def _with_rows(old: dict[str, Any]) -> dict[str, Any]:
    """Return the second version of stored keys. The first one had their columns, as one table each time."""
    return Keys.restored(old["columns"], old["count"]).plain()


register("keys", 2, Keys, Keys.plain, lambda plain: Keys.of_pieces(**plain), upgrade={1: _with_rows})


def _chunked(column: Column) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column], column.type)


def shown(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A key that is zero is shown as 0.0, whichever zero came first."""
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
