"""Filter, project, look-up and sink: kernels on whole tables that keep nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.columns.order import SEQ_BITS, fanned_out
from slicemill.columns.rows import to_table
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.relation import SelectItem
from slicemill.esl.types.schema import Column, Schema
from slicemill.operators import specs as op
from slicemill.operators.join.order import in_order
from slicemill.operators.lookup.matching import Lookup
from slicemill.operators.select.kernels import filter_table, project_table
from slicemill.rows import Row, Timed
from slicemill.scalar.columns import compile_many, compile_vector
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS


class FilterStep:
    def __init__(self, condition: Expr, schema: Schema) -> None:
        self._condition = compile_vector(condition, schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return filter_table(tables[0], self._condition), complete[0]


class ProjectStep:
    def __init__(self, items: Sequence[SelectItem], schema: Schema) -> None:
        self._names = [item.name for item in items]
        self._columns = compile_many([item.expr for item in items], schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return project_table(tables[0], self._names, self._columns), complete[0]


class LookupStep:
    """Joins a stream with a table that stays as it is."""

    def __init__(
        self,
        lookup: op.Lookup,
        stream: Schema,
        table: Schema,
        rows: Sequence[Row],
        left: bool,
        seq_bits: int = SEQ_BITS,
    ) -> None:
        self._seq_bits = seq_bits
        self._names = [_qualified(lookup.stream_alias, column.name) for column in stream]
        self._own = [column.name for column in stream]
        qualified = Schema(tuple(Column(n, c.type) for n, c in zip(self._names, stream, strict=True)))
        found = Schema(tuple(Column(_qualified(lookup.alias, c.name), c.type) for c in table))
        stored = to_table([Timed(0, row) for row in rows], found, [0] * len(rows))
        self._join = Lookup(qualified, found, lookup.condition, stored.select(list(found.names)), left).join

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        renamed = dict(zip(self._own, self._names, strict=True))
        stream = tables[0].rename_columns([renamed.get(name, name) for name in tables[0].column_names])
        return fanned_out(self._join(stream), self._seq_bits), complete[0]


class InOrderStep:
    """Joined rows in the order of one join of all their streams, without what only that needed."""

    def __init__(self, operator: op.InOrder, output: Schema, seq_bits: int) -> None:
        self._members = operator.members
        self._columns = [TS, SEQ, ARRIVAL, *output.names]
        self._seq_bits = seq_bits

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return in_order(tables[0], self._members, self._seq_bits).select(self._columns), complete[0]


class SinkStep:
    """Hands on what reaches it: its log is what keeps it."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return tables[0], complete[0]


def _qualified(alias: str, name: str) -> str:
    return f"{alias}.{name}" if alias else name
