"""Execution of UNNEST: flatten lists, and repeat rows by list length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.arrow_schema import to_arrow
from slicemill.columns.order import fan_out
from slicemill.operators.specs import Unnest
from slicemill.operators.step import CompiledColumns, StepContext
from slicemill.types import Column, Schema


class UnnestStep:
    def __init__(self, operator: Unnest, context: StepContext) -> None:
        (stream,) = context.schemas
        prefix = f"{operator.stream_alias}." if operator.stream_alias else ""
        self._renamed = {column.name: prefix + column.name for column in stream}
        qualified = Schema(tuple(Column(prefix + column.name, column.type) for column in stream))
        self._lists = CompiledColumns([[operator.list]], qualified)
        self._element = to_arrow(Schema(context.node.schema.columns[len(stream) :])).field(0)
        self._left = operator.left
        self._seq_bits = context.seq_bits

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        names = [self._renamed.get(name, name) for name in tables[0].column_names]
        stream = tables[0].rename_columns(names)
        lists = self._lists.of(stream)[0][0]
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        elements = pc.list_flatten(lists)
        if self._left:
            # A row without elements gets a NULL, because its index into the elements is masked.
            indices = np.repeat(np.cumsum(counts) - counts, np.maximum(counts, 1))
            counts, lacking = np.maximum(counts, 1), np.repeat(counts == 0, np.maximum(counts, 1))
            indices += np.arange(len(indices)) - np.repeat(np.cumsum(counts) - counts, counts)
            elements = elements.take(pa.array(indices, mask=lacking))
        out = stream.take(pa.array(np.repeat(np.arange(stream.num_rows), counts)))
        out = out.append_column(self._element, elements.cast(self._element.type))
        return fan_out(out, self._seq_bits), complete[0]


def unnest(operator: Unnest, context: StepContext) -> UnnestStep:
    return UnnestStep(operator, context)
