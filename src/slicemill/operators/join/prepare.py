"""Preparation of rows that arrive at a join: masks of queries, and hashes of join keys.

Each row gets the hashes of its keys, and the mask of the queries that select it. Rows that no query selects
are dropped. A row with a NULL in a key of a query matches no row for this query. The system columns are
described in `operators.join.block`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.catalog.expressions import Expr
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int64s
from slicemill.operators.filter_project import compile_masks
from slicemill.operators.join.block import (
    BLOCK_ARRIVAL,
    BLOCK_SEQ,
    BLOCK_TS,
    DATA,
    DEADLINE,
    HASH,
    KEY,
    MASK,
    NUMBER,
    WORD_BITS,
    QueryBits,
    counts_rows,
)
from slicemill.operators.join.hashing import hash_keys
from slicemill.operators.join.probe import Words
from slicemill.operators.join.slices.coverage import columns_to_store
from slicemill.operators.join.spec import KeyTable, SharedJoin
from slicemill.operators.protocol import Keys
from slicemill.types import Schema


class Selections:
    """Evaluates the conditions that queries put on the rows of one join input.

    A condition of several queries is evaluated once (S19).
    """

    def __init__(self, conditions: Mapping[str, Expr | None], schema: Schema, query_bits: QueryBits) -> None:
        """Compile the conditions of all queries.

        `conditions` maps each query to its condition, or to None if the query has no condition.
        """
        users: dict[Expr, list[str]] = {}
        for name, condition in conditions.items():
            if condition is not None:
                users.setdefault(condition, []).append(name)
        self._users = list(users.values())
        self._unselected = query_bits.mask([name for name, where in conditions.items() if where is None])
        self._bits = [query_bits.mask(names) for names in self._users]
        self._evaluate = compile_masks(list(users), schema)

    def masks(self, table: pa.Table, errors: dict[str, ExpressionError]) -> Words:
        words = np.tile(self._unselected, (table.num_rows, 1))
        if not self._users:
            return words
        found = self._evaluate(table)
        for index, bits in enumerate(self._bits):
            holds = (found.words[index // WORD_BITS] >> np.uint64(index % WORD_BITS)) & np.uint64(1)
            for word in np.flatnonzero(bits):
                words[:, word] |= holds * bits[word]
        for index, error in found.errors.items():
            errors |= dict.fromkeys(self._users[index], error)
        return words


class RowPreparer:
    """Adds query masks and key hashes to the arriving rows of one join input.

    `schema` is the schema of the prepared rows.
    """

    def __init__(
        self, operator: SharedJoin, number: int, schema: Schema, keys: KeyTable, query_bits: QueryBits
    ) -> None:
        users = operator.users(number)
        own = keys.keys[number]
        self._keys = [[compile_vector(part, schema) for part in key] for key in own]
        self._needed = [query_bits.mask(keys.queries_requiring(number, key)) for key in range(len(own))]
        conditions = {member.name: member.selections[side] for member, side in users}
        self._selections = Selections(conditions, schema, query_bits)
        self._deadlines = operator.deadlines if number == 0 else ()
        self._outer = query_bits.mask([m.name for m, side in users if side in m.kind.outer_inputs])
        self._some_outer = bool(self._outer.any())
        fields = [pa.field(name, pa.int64()) for name in (BLOCK_TS, BLOCK_SEQ, BLOCK_ARRIVAL)]
        fields += [pa.field(hash_column(key), pa.uint64()) for key in range(max(1, len(own)))]
        fields += [pa.field(f"{MASK}{word}", pa.uint64()) for word in range(query_bits.words)]
        if any(counts_rows(member.windows[side]) for member, side in users):
            fields.append(pa.field(NUMBER, pa.int64()))
        if self._deadlines:
            fields.append(pa.field(DEADLINE, pa.int64()))
        for columns in key_columns(operator, own):
            fields += [pa.field(*column) for column in columns]
        read = frozenset[str]().union(*(columns_to_store(member, side) for member, side in users))
        self._data = [column.name for column in schema if column.name in read]
        fields += [pa.field(DATA + c.name, arrow_type(c.type)) for c in schema if c.name in read]
        self.schema = pa.schema(fields)

    def prepare(
        self, table: pa.Table, numbers: Int64s | None, errors: dict[str, ExpressionError]
    ) -> tuple[pa.Table, pa.Table | None]:
        """Return the prepared rows, and the rows that outer joins emit because a join key is NULL.

        `numbers` counts the rows of the stream. Queries whose selection fails are added to `errors`. The
        second table is None if no outer join emits such a row.
        """
        words = self._selections.masks(table, errors)
        hashed = [hash_keys([part(table) for part in key], table.num_rows) for key in self._keys]
        alone = np.zeros_like(words) if self._some_outer else None
        for found, needed in zip(hashed, self._needed, strict=True):
            if found.valid is not None:
                if alone is not None:
                    alone[~found.valid] = words[~found.valid] & self._outer
                words[~found.valid] &= ~needed
        hashes = [found.hashes for found in hashed] or [np.zeros(table.num_rows, np.uint64)]
        columns = [table.column(name) for name in ("_ts", "_seq", "_arr")]
        columns += [pa.array(found) for found in hashes]
        first_mask = len(columns)
        columns += _mask_columns(words)
        columns += [] if numbers is None else [pa.array(numbers)]
        if self._deadlines:
            ends = [_microseconds(table, name) + length for name, length in self._deadlines]
            columns.append(pa.array(np.minimum.reduce(ends)))
        columns += [column for found in hashed for column in found.columns]
        columns += [table.column(name) for name in self._data]
        rows = _selected(columns, words, self.schema)
        if alone is None or not alone.any():
            return rows, None
        columns[first_mask : first_mask + words.shape[1]] = _mask_columns(alone)
        return rows, _selected(columns, alone, self.schema)


def _mask_columns(words: Words) -> list[pa.Array]:
    return [pa.array(np.ascontiguousarray(words[:, word])) for word in range(words.shape[1])]


def _selected(columns: Sequence[pa.Array], words: Words, schema: pa.Schema) -> pa.Table:
    """Return a table of the rows that at least one query selects."""
    whole = pa.table(columns, schema=schema)
    wanted: NDArray[np.bool_] = np.any(words, axis=1)
    return whole if wanted.all() else whole.filter(pa.array(wanted))


def hash_column(key: int) -> str:
    """Return the name of the column that stores the hashes of a join key.

    Blocks are sorted by the hash of the first key.
    """
    return f"{HASH}{key}" if key else HASH


def key_columns(operator: SharedJoin, keys: Sequence[Keys]) -> list[list[tuple[str, pa.DataType]]]:
    """Return the names and types of the columns that blocks store for each join key.

    A key has no stored columns if equal hashes mean equal keys (see `hash_keys`).
    """
    found = []
    for number, key in enumerate(keys):
        none = [pa.chunked_array([], arrow_type(part.type)) for part in key]
        columns = enumerate(hash_keys(none, 0).columns)
        found.append([(key_column(operator, number, part), column.type) for part, column in columns])
    return found


def key_column(operator: SharedJoin, key: int, part: int) -> str:
    """Return the name of the block column that stores one part of a join key.

    Two-way joins have one key.
    """
    return f"{KEY}{part}" if operator.two_way else f"{KEY}{key}.{part}"


def _microseconds(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).cast(pa.int64()).to_numpy())
