"""Lookup in a view over a stream, as of the row's time (M40).

view    a   b       c   d           [ROWS 2]          view rows of the same time precede the stream row
stream        x   y       z         x: a b   y: a b   z: c d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.order import fanned_out
from slicemill.columns.pieces import kept_from, together
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.in_turn import Due, borders, due_in_turn
from slicemill.operators.lookup.matching import Matching, Stretch
from slicemill.operators.lookup.spec import Lookup, Materialize
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice
from slicemill.time import END

Places = NDArray[np.int64]
_EARLIEST = -(2**63)


@stored_as("view_lookup", version=1)
@dataclass(slots=True)
class ViewState:
    """Window content of the view, and waiting rows of both inputs.

    The first `passed` rows of `content` have left the window.
    """

    content: list[Slice] = field(default_factory=list)
    passed: int = 0
    waiting: list[pa.Table] = field(default_factory=list)


class ViewLookupStep:
    """Processes rows of both inputs by time, view rows first.

    The result does not depend on the boundaries between runs. `stream` and `view` have the output column
    names.
    """

    def __init__(
        self,
        state: ViewState,
        window: Window,
        matching: Matching,
        stream: Schema,
        view: Schema,
        seq_bits: int,
    ) -> None:
        self.state = state
        assert window.extent is not None, "the binder asks for a window with a beginning"
        self._extent = window.extent
        self._by_rows = window.frame is FrameUnit.ROWS
        self._matching = matching
        self._schemas = [with_system_columns(to_arrow(schema)) for schema in (view, stream)]
        self._seq_bits = seq_bits
        if not state.waiting:
            state.waiting = [schema.empty_table() for schema in self._schemas]

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, until = self.state, min(complete)
        arrived = []
        for waiting, table, schema in zip(state.waiting, tables, self._schemas, strict=True):
            named = table.rename_columns(schema.names).cast(schema)
            arrived.append(together([waiting, named]))
        known = [
            max([told, *_times(table.slice(max(len(table) - 1, 0))).tolist()])
            for told, table in zip(complete, arrived, strict=True)
        ]
        counts = [
            len(table) if border == END else int(np.searchsorted(_times(table), border))
            for table, border in zip(arrived, borders(known), strict=True)
        ]
        new, stream = (table.slice(0, count) for table, count in zip(arrived, counts, strict=True))
        state.waiting = [
            table.slice(count).combine_chunks() for table, count in zip(arrived, counts, strict=True)
        ]
        new = new.drop_columns([SEQ, ARRIVAL]).combine_chunks()
        content = together([*(piece.table for piece in state.content), new]).slice(state.passed)
        out = self._met(stream, content)
        passed = state.passed + self._passed(_times(content), until)
        state.content, state.passed = kept_from(state.content, new, passed)
        return out, until

    def due(self) -> Due | None:
        waiting = self.state.waiting
        return due_in_turn([table.column(TS)[0].as_py() if table.num_rows else None for table in waiting])

    def _met(self, stream: pa.Table, content: pa.Table) -> pa.Table:
        """Join stream rows with view rows, in stream order, oldest view row first."""
        ts, times = _times(stream), _times(content)
        ends = np.searchsorted(times, ts, side="right")
        rows = content.drop_columns([TS])
        joined = self._matching.join(stream, rows, stretch=self._stretch(ts, times, ends))
        return fanned_out(joined, self._seq_bits)

    def _stretch(self, ts: Places, times: Places, ends: Places) -> Stretch:
        if self._by_rows:
            return Stretch(np.maximum(ends - self._extent, 0), ends)
        return Stretch(np.searchsorted(times, ts - self._extent, side="right"), ends)

    def _passed(self, times: Places, until: int) -> int:
        """Count the view rows that no later stream row can match."""
        if self._by_rows:
            return max(len(times) - self._extent, 0)
        return int(np.searchsorted(times, max(until - self._extent, _EARLIEST), side="right"))


def view_lookup(lookup: Lookup, view_of: Materialize, context: StepContext) -> ViewLookupStep:
    columns, own = context.node.schema.columns, len(context.schemas[1])
    stream, view = Schema(columns[:own]), Schema(columns[own:])
    state = context.state if isinstance(context.state, ViewState) else ViewState()
    matching = Matching(stream, view, lookup.condition, lookup.left)
    return ViewLookupStep(state, view_of.window, matching, stream, view, context.seq_bits)


def _times(table: pa.Table) -> Places:
    found: Places = table.column(TS).to_numpy()
    return found
