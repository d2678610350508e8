"""Results of each query, built from the pairs that a run has found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from slicemill.esl.types.schema import BIGINT, TIMESTAMP, Schema, Type
from slicemill.operators.join.conditions import Residuals
from slicemill.operators.join.pairs import Pairs, fetch
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.join.unmatched import Unmatched
from slicemill.operators.join.windows import QueryBits
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import arrow_type

_TS, _NUMBER = "_ts", "_number"  # column names of a row's timestamp and row number

# Columns that order the pairs of one row across cells.
Ties: TypeAlias = Callable[[Pairs], Mapping[str, pa.Array]]

# Result of a query in a run: rows, or an error.
Answer: TypeAlias = pa.Table | ExpressionError


# Results of a run so far, by query.
Collected: TypeAlias = dict[str, list[pa.Table]]
# Memory limit for the results of a query in one run.
MOST_BYTES = 2 << 30


class Answers:
    """Builds the results of all queries from pairs."""

    def __init__(
        self,
        members: Sequence[JoinMember],
        schemas: Sequence[Schema],
        seats: QueryBits,
        ties: Ties,
        unmatched: Unmatched,
    ) -> None:
        self._ties = ties
        self._unmatched = unmatched
        self._members = members
        self._schemas = schemas
        self._seats = seats
        self._residuals = Residuals(members, schemas, seats)
        self._bytes: dict[str, int] = {}  # by query, of its results in this run

    def add(self, pairs: Pairs, collected: Collected, errors: dict[str, ExpressionError]) -> None:
        """Append each query's results of some pairs; record failed conditions."""
        self._residuals.test(pairs, errors)
        if self._unmatched:
            self._unmatched.note(pairs)
        pairs = pairs.dropped()
        for member in self._members:
            places = pairs.of(self._seats.bits[member.name])
            if not len(places) or member.name in errors:
                continue
            columns = {"_ts": pairs.moments(), "_seq": pairs.seqs(), "_arr": pairs.arrivals()}
            columns |= self._ties(pairs)
            columns |= {name: self._value(pairs, side, column) for name, side, column in member.columns}
            table = pa.table({name: fetch(column, places) for name, column in columns.items()})
            parts = collected.setdefault(member.name, [])
            parts.append(table)
            self._bytes[member.name] = self._bytes.get(member.name, 0) + table.nbytes
            if self._bytes[member.name] > MOST_BYTES:
                rows = sum(part.num_rows for part in parts)
                del collected[member.name]
                errors[member.name] = too_many_rows(rows)

    def all_of(self, collected: Collected, errors: dict[str, ExpressionError]) -> list[Answer]:
        """Return the result of each query at the end of a run."""
        self._bytes.clear()
        return [
            errors.get(member.name) or _joined(collected.get(member.name) or [self._empty(member)])
            for member in self._members
        ]

    def _value(self, pairs: Pairs, side: int, column: str) -> pa.Array:
        if column == _TS:
            return pairs.times(side).view(arrow_type(TIMESTAMP))
        if column == _NUMBER:
            return pairs.numbers(side)
        return pairs.data(side, column, arrow_type(self._type_of(side, column)))

    def _type_of(self, side: int, column: str) -> Type:
        own = {_TS: TIMESTAMP, _NUMBER: BIGINT}
        schema = self._schemas[side]
        return own[column] if column in own else schema.columns[schema.index(column)].type

    def _empty(self, member: JoinMember) -> pa.Table:
        types = dict.fromkeys(("_ts", "_seq", "_arr"), pa.int64())
        for name, side, column in member.columns:
            types[name] = arrow_type(self._type_of(side, column))
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})


def too_many_rows(rows: int) -> ExpressionError:
    """Return the error for a result that exceeds the memory limit."""
    return ExpressionError(
        f"a join makes {rows:,} rows and more of one batch of input, which take more than "
        f"{MOST_BYTES >> 20:,} MB of memory; give it smaller windows or a more selective condition"
    )


def _joined(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
