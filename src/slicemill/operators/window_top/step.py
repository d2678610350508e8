"""ORDER BY and LIMIT for each result of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.columns.order import renumbered
from slicemill.columns.ranking import order_codes, ordered_by
from slicemill.operators.context import StepContext
from slicemill.operators.partitioned import Columns
from slicemill.operators.window_top.spec import WindowTop
from slicemill.scalar.vectors import numbers
from slicemill.storage.arrow_schema import TS
from slicemill.storage.codec import stored_as
from slicemill.time import END


@stored_as("window_top", version=1)
@dataclass(slots=True)
class WindowTopState:
    """Rows of windows that may get more of them, and the next number."""

    waiting: pa.Table | None = None
    next_seq: int = 0


class WindowTopStep:
    def __init__(self, operator: WindowTop, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, WindowTopState) else WindowTopState()
        self._limit = operator.limit
        self._order = Columns([[expr for expr, _ in operator.by.order_by]], schema)
        self._falls = [falls for _, falls in operator.by.order_by]

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, until = self.state, complete[0]
        rows = tables[0] if state.waiting is None else pa.concat_tables([state.waiting, tables[0]])
        ts = _times(rows)
        ready = len(ts) if until == END else int(np.searchsorted(ts, until))
        state.waiting = rows.slice(ready).combine_chunks()
        held = int(ts[ready]) if ready < len(ts) else END
        out = renumbered(self._ordered(rows.slice(0, ready).combine_chunks()), state.next_seq)
        state.next_seq += out.num_rows
        return out, min(until, held)

    def due(self) -> int | None:
        waiting = self.state.waiting
        return int(_times(waiting)[0]) + 1 if waiting is not None and waiting.num_rows else None

    def _ordered(self, rows: pa.Table) -> pa.Table:
        ts = _times(rows)
        columns = zip(self._order.of(rows)[0], self._falls, strict=True)
        codes = [order_codes(column, falls) for column, falls in columns]
        order = ordered_by([ts, *codes], np.arange(len(ts)))
        if self._limit is not None:
            order = order[np.arange(len(ts)) - np.searchsorted(ts, ts) < self._limit]
        return rows.take(pa.array(order))


def _times(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(numbers(table.column(TS).combine_chunks()))


def window_top(operator: WindowTop, context: StepContext) -> WindowTopStep:
    return WindowTopStep(operator, context)
