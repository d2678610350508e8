"""Execution of ORDER BY, LIMIT and ranks over the result rows of each window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import TS, to_arrow, with_system_columns
from slicemill.columns.keys import distinct_keys
from slicemill.columns.order import order_codes, renumber, sort_positions
from slicemill.columns.pieces import concat_with_nulls
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Int64s
from slicemill.operators.step import CompiledColumns, StepContext
from slicemill.operators.window.spec import WindowTop
from slicemill.operators.window.step import Emission, WindowOutput
from slicemill.time import END


@stored_as("window_top", version=1)
@dataclass(slots=True)
class WindowTopState:
    """Rows whose timestamp the watermark has not passed, and the sequence number of the next output row."""

    waiting: pa.Table | None = None
    next_seq: int = 0


class TopWindows:
    """Window strategy that ranks the rows of each timestamp when the watermark has passed the timestamp."""

    def __init__(self, operator: WindowTop, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, WindowTopState) else WindowTopState()
        self._limit = operator.limit
        self._by = operator.by
        self._columns = CompiledColumns(
            [operator.by.partition_by, [expr for expr, _ in operator.by.order_by]], schema
        )
        self._falls = [falls for _, falls in operator.by.order_by]
        self._shown = operator.shown
        self.outputs = [WindowOutput(with_system_columns(to_arrow(context.node.schema)))]

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        state = self.state
        if state.waiting is not None:
            rows = concat_with_nulls([state.waiting, rows])
        ts = _times(rows)
        ready = len(ts) if watermark == END else int(np.searchsorted(ts, watermark))
        state.waiting = rows.slice(ready).combine_chunks()
        held = int(ts[ready]) if ready < len(ts) else END
        out = renumber(self._ordered(rows.slice(0, ready).combine_chunks()), state.next_seq)
        state.next_seq += out.num_rows
        return [(out, min(watermark, held))]

    def due(self) -> int | None:
        waiting = self.state.waiting
        return int(_times(waiting)[0]) + 1 if waiting is not None and waiting.num_rows else None

    def _ordered(self, rows: pa.Table) -> pa.Table:
        ts, arrival = _times(rows), np.arange(rows.num_rows)
        keys, columns = self._columns.of(rows)
        codes = [order_codes(column, falls) for column, falls in zip(columns, self._falls, strict=True)]
        groups = [ts]
        if keys:
            found = distinct_keys(keys, len(ts))
            groups.append(np.asarray(found.rows)[found.codes])  # a partition's number is its first row
        order = sort_positions([*groups, *codes], -arrival if self._by.latest_first else arrival)
        if self._limit is None:
            return rows.take(pa.array(order))
        first = _begins(groups, order)
        ranks = _ranks(self._by.function, first, first | _begins(codes, order))
        out = rows.take(pa.array(order))
        if self._shown is not None:
            out = out.append_column(self._shown, pa.array(ranks))
        return out.filter(pa.array(ranks <= self._limit))


def _begins(codes: Sequence[Int64s], order: Int64s) -> NDArray[np.bool_]:
    """Mark the sorted rows that differ from the previous row in at least one of the codes.

    A code is an integer for the value of one column.
    """
    begins = np.zeros(len(order), np.bool_)
    begins[:1] = True
    for code in codes:
        begins[1:] |= code[order][1:] != code[order][:-1]
    return begins


def _ranks(function: str, first: NDArray[np.bool_], other: NDArray[np.bool_]) -> Int64s:
    """Return the rank of each sorted row in its partition.

    `first` marks the first row of each partition. `other` marks rows that differ from the previous row.
    """
    indices = np.arange(len(first))
    starts = np.maximum.accumulate(np.where(first, indices, 0))
    if function == "row_number":
        return indices - starts + 1
    if function == "rank":
        return np.asarray(np.maximum.accumulate(np.where(other, indices, 0)) - starts + 1)
    counted = np.cumsum(other)
    return np.asarray(counted - counted[starts] + 1)


def _times(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(numbers(table.column(TS).combine_chunks()))
