"""Conditions of the queries of a shared join, on rows and on pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.esl.types.expression import Expr, columns_of
from slicemill.esl.types.schema import TIMESTAMP, Column, Schema
from slicemill.operators.join.pairs import Pairs
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.join.windows import WORD_BITS, QueryBits
from slicemill.operators.select.kernels import compile_masks
from slicemill.scalar.columns import compile_vector
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import arrow_type

_TIME = Column("_ts", TIMESTAMP)  # a row's timestamp, beside its columns

Evaluate: TypeAlias = Callable[[pa.Table], pa.ChunkedArray]


class Selections:
    """Selections of all queries on one side.

    Equal selections of several queries are evaluated once (S19).
    """

    def __init__(self, members: Sequence[JoinMember], side: int, schema: Schema, seats: QueryBits) -> None:
        users: dict[Expr, list[str]] = {}
        for member in members:
            condition = member.selections[side]
            if condition is not None:
                users.setdefault(condition, []).append(member.name)
        self._users = list(users.values())
        self._unselected = seats.mask([m.name for m in members if m.selections[side] is None])
        self._bits = [seats.mask(names) for names in self._users]
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
    """Residual conditions, evaluated on pairs whose keys, ages and masks agree."""

    def __init__(self, members: Sequence[JoinMember], schemas: Sequence[Schema], seats: QueryBits) -> None:
        own = [(*schema.columns, _TIME) for schema in schemas]
        both = Schema(tuple(column.of(side) for side, columns in enumerate(own) for column in columns))
        self._types = {column.name: arrow_type(column.type) for column in both}
        self._seats = seats
        users: dict[Expr, list[str]] = {}
        for member in members:
            if member.residual is not None:
                users.setdefault(member.residual, []).append(member.name)
        self._tests = [(compile_vector(expr, both), columns_of(expr), names) for expr, names in users.items()]

    def test(self, pairs: Pairs, errors: dict[str, ExpressionError]) -> None:
        """Clear the bits of queries in pairs that fail their condition.

        An error in a condition fails only the queries that have the failing pair.
        """
        for evaluate, read, names in self._tests:
            try:
                self._test(pairs, evaluate, read, names)
            except ExpressionError as problem:
                if len(names) == 1:
                    errors[names[0]] = problem
                    continue
                # The failing pair may belong to only some of these queries.
                for name in names:
                    try:
                        self._test(pairs, evaluate, read, [name])
                    except ExpressionError as own:
                        errors[name] = own

    def _test(self, pairs: Pairs, evaluate: Evaluate, read: frozenset[str], names: list[str]) -> None:
        bits = self._seats.mask(names)
        places = np.flatnonzero((pairs.wanted & bits).any(axis=1))
        if not len(places):
            return
        whole = len(places) == len(pairs)
        # A condition without columns still needs the row count.
        columns = {"": pairs.moments()}
        for name in read:
            side, column = name.split(".", 1)
            if column == _TIME.name:
                columns[name] = pairs.times(int(side)).view(self._types[name])
            else:
                columns[name] = pairs.data(int(side), column, self._types[name])
        if not whole:
            columns = {name: column.take(pa.array(places)) for name, column in columns.items()}
        truth = pc.fill_null(evaluate(pa.table(columns)), False)
        held = truth.combine_chunks().to_numpy(zero_copy_only=False)
        pairs.wanted[places[~held]] &= ~bits
