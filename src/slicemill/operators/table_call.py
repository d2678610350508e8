"""Execution of table functions, with one call per distinct arguments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.aggregates.udf.interpreter import compile_table_call
from slicemill.aggregates.udf.lookup import aggregate_lookup
from slicemill.columns.order import fan_out
from slicemill.columns.rows import to_table
from slicemill.functions.vectors import from_arrow, to_values
from slicemill.operators.specs import TableCall
from slicemill.operators.step import CompiledColumns, StepContext
from slicemill.types import Column, Row, Schema, Timed


class TableCallStep:
    """Calls the function once per run for equal arguments.

    Tables do not change during a run, so that equal arguments have equal results.
    """

    def __init__(self, operator: TableCall, context: StepContext) -> None:
        (stream,) = context.schemas
        prefix = f"{operator.stream_alias}." if operator.stream_alias else ""
        self._renamed = {column.name: prefix + column.name for column in stream}
        qualified = Schema(tuple(Column(prefix + column.name, column.type) for column in stream))
        self._names = [name for name, _ in operator.arguments]
        values = [value for _, value in operator.arguments]
        self._types = [value.type for value in values]
        self._arguments = CompiledColumns([values], qualified)
        self._found = Schema(tuple(context.node.schema.columns[len(stream) :]))
        self._call = compile_table_call(operator.query, aggregate_lookup(context.catalog, context.rows_of))
        self._rows_of = context.rows_of
        self._seq_bits = context.seq_bits

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        names = [self._renamed.get(name, name) for name in tables[0].column_names]
        stream = tables[0].rename_columns(names)
        arrays = self._arguments.of(stream)[0]
        columns = [
            to_values(from_arrow(array, type_), stream.num_rows)
            for array, type_ in zip(arrays, self._types, strict=True)
        ]
        tuples = list(zip(*columns, strict=True)) if columns else [()] * stream.num_rows
        known: dict[str, list[Row]] = {}
        found: list[Row] = []
        counts = np.zeros(stream.num_rows, np.int64)
        for index, values in enumerate(tuples):
            # The key is text, because 1 and 1.0 are different arguments, and NaN is the same argument as NaN.
            key = repr(values)
            if key not in known:
                known[key] = self._call(self._rows_of, dict(zip(self._names, values, strict=True)))
            found += known[key]
            counts[index] = len(known[key])
        rows = to_table([Timed(0, row) for row in found], self._found, [0] * len(found))
        out = stream.take(pa.array(np.repeat(np.arange(stream.num_rows), counts)))
        for name in self._found.names:
            out = out.append_column(name, rows.column(name))
        return fan_out(out, self._seq_bits), complete[0]


def table_call(operator: TableCall, context: StepContext) -> TableCallStep:
    return TableCallStep(operator, context)
