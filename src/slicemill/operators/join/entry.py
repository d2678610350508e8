"""Preparation of arriving rows: hash of the key, and mask of queries.

Rows with a NULL key and rows that no query selects are dropped.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.types.schema import Schema
from slicemill.operators.join.arrays import Times
from slicemill.operators.join.block import ARRIVAL, DATA, DEADLINE, HASH, KEY, MASK, NUMBER, SEQ, TS
from slicemill.operators.join.conditions import Selections
from slicemill.operators.join.hashing import HashedKeys, hash_keys
from slicemill.operators.join.slices.coverage import columns_kept
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.windows import QueryBits, counts_rows
from slicemill.scalar.columns import compile_vector
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import arrow_type


class Entry:
    """Prepares arriving rows of one side; `schema` is that of prepared rows."""

    def __init__(self, operator: SharedJoin, side: int, schema: Schema, seats: QueryBits) -> None:
        self._keys = [compile_vector(key, schema) for key in operator.keys[side]]
        self._selections = Selections(operator.members, side, schema, seats)
        self._deadlines = operator.deadlines if side == 0 else ()
        self._told = seats.mask([m.name for m in operator.members if side in m.kind.unmatched])
        self.schema = _schema(operator, side, schema, seats)

    def prepared(
        self, table: pa.Table, numbers: Times | None, errors: dict[str, ExpressionError]
    ) -> tuple[pa.Table, pa.Table | None]:
        """Return the prepared rows, and NULL-key rows that outer joins emit.

        A query whose selection fails is recorded in `errors`. The second table is None if there are no such
        rows.
        """
        hashed = hash_keys([key(table) for key in self._keys], table.num_rows)
        words = self._selections.masks(table, errors)
        wanted = np.asarray(words.any(axis=1))
        lone = None
        if hashed.valid is not None:
            told = np.asarray((words & self._told).any(axis=1) & ~hashed.valid)
            if told.any():
                lone = self._kept(table, hashed, words & self._told, numbers, told)
            wanted &= hashed.valid
        return self._kept(table, hashed, words, numbers, wanted), lone

    def _kept(
        self,
        table: pa.Table,
        hashed: HashedKeys,
        words: NDArray[np.uint64],
        numbers: Times | None,
        wanted: NDArray[np.bool_],
    ) -> pa.Table:
        rows = np.arange(table.num_rows)
        if not wanted.all():
            table, words, rows = table.filter(pa.array(wanted)), words[wanted], rows[wanted]
        columns = [table.column(name) for name in ("_ts", "_seq", "_arr")]
        columns.append(pa.array(hashed.hashes[rows]))
        columns += [pa.array(np.ascontiguousarray(words[:, word])) for word in range(words.shape[1])]
        if numbers is not None:
            columns.append(pa.array(numbers[rows]))
        if self._deadlines:
            ends = [_microseconds(table, name) + length for name, length in self._deadlines]
            columns.append(pa.array(np.minimum.reduce(ends)))
        columns += [column.take(pa.array(rows)) for column in hashed.columns]
        names = [name for name in self.schema.names if name.startswith(DATA)]
        columns += [table.column(name.removeprefix(DATA)) for name in names]
        return pa.table(columns, schema=self.schema)


def asks_for_numbers(operator: SharedJoin, side: int) -> bool:
    """Return True if a query outputs the row numbers of this side."""
    asked = ((of, column) for member in operator.members for _, of, column in member.columns)
    return (side, "_number") in asked


def key_types(operator: SharedJoin) -> tuple[pa.DataType, ...]:
    """Return the types of the stored key columns, as in `hash_keys`."""
    none = [pa.chunked_array([], arrow_type(key.type)) for key in operator.keys[0]]
    return tuple(column.type for column in hash_keys(none, 0).columns)


def _schema(operator: SharedJoin, side: int, schema: Schema, seats: QueryBits) -> pa.Schema:
    members = operator.members
    fields = [*(pa.field(name, pa.int64()) for name in (TS, SEQ, ARRIVAL)), pa.field(HASH, pa.uint64())]
    fields += [pa.field(f"{MASK}{word}", pa.uint64()) for word in range(seats.words)]
    if any(counts_rows(member.windows[side]) for member in members):
        fields.append(pa.field(NUMBER, pa.int64()))
    if operator.deadlines and side == 0:
        fields.append(pa.field(DEADLINE, pa.int64()))
    fields += [pa.field(f"{KEY}{place}", kind) for place, kind in enumerate(key_types(operator))]
    read = frozenset[str]().union(*(columns_kept(member, side) for member in members))
    return pa.schema(
        [*fields, *(pa.field(DATA + c.name, arrow_type(c.type)) for c in schema if c.name in read)]
    )


def _microseconds(table: pa.Table, name: str) -> Times:
    return np.asarray(table.column(name).cast(pa.int64()).to_numpy())
