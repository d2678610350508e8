"""Execution steps of lookups in tables and in views (`view`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.columns.order import fanned_out
from slicemill.columns.rows import to_table
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.schema import Column, Schema
from slicemill.operators.context import StepContext
from slicemill.operators.lookup.matching import TableLookup
from slicemill.operators.lookup.spec import Lookup, Materialize
from slicemill.operators.lookup.view import ViewLookupStep, view_lookup
from slicemill.operators.streams.spec import Scan
from slicemill.rows import Row, Timed


class LookupStep:
    """Lookup join of a stream with a table that does not change."""

    def __init__(
        self,
        lookup: Lookup,
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
        self._join = TableLookup(
            qualified, found, lookup.condition, stored.select(list(found.names)), left
        ).join

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        renamed = dict(zip(self._own, self._names, strict=True))
        stream = tables[0].rename_columns([renamed.get(name, name) for name in tables[0].column_names])
        return fanned_out(self._join(stream), self._seq_bits), complete[0]


def lookup(operator: Lookup, context: StepContext) -> LookupStep | ViewLookupStep:
    found = context.graph[context.node.inputs[1]]
    if isinstance(found.operator, Materialize):
        return view_lookup(operator, found.operator, context)
    assert isinstance(found.operator, Scan), "no other relation is finite"
    rows = context.rows_of(found.operator.relation)
    return LookupStep(operator, context.schemas[0], found.schema, rows, operator.left, context.seq_bits)


def _qualified(alias: str, name: str) -> str:
    return f"{alias}.{name}" if alias else name
