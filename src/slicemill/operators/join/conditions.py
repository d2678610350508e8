"""Selections of rows and residual conditions on pairs of a shared join."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.catalog.expressions import Expr, columns_of
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
from slicemill.operators.join.hashing import HashedKeys, hash_keys
from slicemill.operators.join.pairs import Pairs
from slicemill.operators.join.slices.coverage import columns_to_store
from slicemill.operators.join.spec import JoinMember, SharedJoin
from slicemill.types import TIMESTAMP, Column, Schema

_TIME = Column("_ts", TIMESTAMP)  # timestamp of a row, which conditions can read like a column

Evaluate: TypeAlias = Callable[[pa.Table], pa.ChunkedArray]


class Selections:
    """Evaluates the selections of all queries on one input.

    A selection that several queries have is evaluated once (S19).
    """

    def __init__(
        self, members: Sequence[JoinMember], side: int, schema: Schema, query_bits: QueryBits
    ) -> None:
        users: dict[Expr, list[str]] = {}
        for member in members:
            condition = member.selections[side]
            if condition is not None:
                users.setdefault(condition, []).append(member.name)
        self._users = list(users.values())
        self._unselected = query_bits.mask([m.name for m in members if m.selections[side] is None])
        self._bits = [query_bits.mask(names) for names in self._users]
        self._evaluate = compile_masks(list(users), schema)

    def masks(self, table: pa.Table, errors: dict[str, ExpressionError]) -> NDArray[np.uint64]:
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


class Residuals:
    """Evaluates residual conditions on pairs whose keys, ages and masks already match."""

    def __init__(
        self, members: Sequence[JoinMember], schemas: Sequence[Schema], query_bits: QueryBits
    ) -> None:
        own = [(*schema.columns, _TIME) for schema in schemas]
        both = Schema(tuple(column.of(side) for side, columns in enumerate(own) for column in columns))
        self._types = {column.name: arrow_type(column.type) for column in both}
        self._query_bits = query_bits
        users: dict[Expr, list[str]] = {}
        for member in members:
            if member.residual is not None:
                users.setdefault(member.residual, []).append(member.name)
        self._tests = [(compile_vector(expr, both), columns_of(expr), names) for expr, names in users.items()]

    def test(self, pairs: Pairs, errors: dict[str, ExpressionError]) -> None:
        """Clear the bits of queries in pairs that fail their condition.

        An error in a condition fails only the queries for which the failing pair is a candidate.
        """
        for evaluate, read, names in self._tests:
            try:
                self._test(pairs, evaluate, read, names)
            except ExpressionError as problem:
                if len(names) == 1:
                    errors[names[0]] = problem
                    continue
                # The failing pair may be a candidate of only some of these queries.
                for name in names:
                    try:
                        self._test(pairs, evaluate, read, [name])
                    except ExpressionError as own:
                        errors[name] = own

    def _test(self, pairs: Pairs, evaluate: Evaluate, read: frozenset[str], names: list[str]) -> None:
        bits = self._query_bits.mask(names)
        indices = np.flatnonzero((pairs.wanted & bits).any(axis=1))
        if not len(indices):
            return
        whole = len(indices) == len(pairs)
        # A condition without columns still needs a column, from which the row count is taken.
        columns = {"": pairs.moments()}
        for name in read:
            side, column = name.split(".", 1)
            if column == _TIME.name:
                columns[name] = pairs.times(int(side)).view(self._types[name])
            else:
                columns[name] = pairs.data(int(side), column, self._types[name])
        if not whole:
            columns = {name: column.take(pa.array(indices)) for name, column in columns.items()}
        truth = pc.fill_null(evaluate(pa.table(columns)), False)
        held = truth.combine_chunks().to_numpy(zero_copy_only=False)
        pairs.wanted[indices[~held]] &= ~bits


# Preparation of arriving rows. Each row gets the hash of its key and the mask of its queries. Rows with a
# NULL key and rows that no query selects are dropped.


class RowPreparer:
    """Prepares arriving rows of one input.

    `schema` is the schema of prepared rows.
    """

    def __init__(self, operator: SharedJoin, side: int, schema: Schema, query_bits: QueryBits) -> None:
        self._keys = [compile_vector(key, schema) for key in operator.keys[side]]
        self._selections = Selections(operator.members, side, schema, query_bits)
        self._deadlines = operator.deadlines if side == 0 else ()
        self._told = query_bits.mask([m.name for m in operator.members if side in m.kind.outer_inputs])
        self.schema = _schema(operator, side, schema, query_bits)

    def prepare(
        self, table: pa.Table, numbers: Int64s | None, errors: dict[str, ExpressionError]
    ) -> tuple[pa.Table, pa.Table | None]:
        """Return the prepared rows, and rows with a NULL key.

        Outer joins emit the rows with a NULL key. An error in the selection of a query is recorded in
        `errors`. The second table is None if no outer join emits such a row.
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
        numbers: Int64s | None,
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


def reads_row_numbers(operator: SharedJoin, side: int) -> bool:
    """Return True if a query outputs the sequence numbers of this input."""
    asked = ((of, column) for member in operator.members for _, of, column in member.columns)
    return (side, "_number") in asked


def key_types(operator: SharedJoin) -> tuple[pa.DataType, ...]:
    """Return the types of the stored key columns, as in `hash_keys`."""
    none = [pa.chunked_array([], arrow_type(key.type)) for key in operator.keys[0]]
    return tuple(column.type for column in hash_keys(none, 0).columns)


def _schema(operator: SharedJoin, side: int, schema: Schema, query_bits: QueryBits) -> pa.Schema:
    members = operator.members
    fields = [
        *(pa.field(name, pa.int64()) for name in (BLOCK_TS, BLOCK_SEQ, BLOCK_ARRIVAL)),
        pa.field(HASH, pa.uint64()),
    ]
    fields += [pa.field(f"{MASK}{word}", pa.uint64()) for word in range(query_bits.words)]
    if any(counts_rows(member.windows[side]) for member in members):
        fields.append(pa.field(NUMBER, pa.int64()))
    if operator.deadlines and side == 0:
        fields.append(pa.field(DEADLINE, pa.int64()))
    fields += [pa.field(f"{KEY}{index}", kind) for index, kind in enumerate(key_types(operator))]
    read = frozenset[str]().union(*(columns_to_store(member, side) for member in members))
    return pa.schema(
        [*fields, *(pa.field(DATA + c.name, arrow_type(c.type)) for c in schema if c.name in read)]
    )


def _microseconds(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).cast(pa.int64()).to_numpy())
