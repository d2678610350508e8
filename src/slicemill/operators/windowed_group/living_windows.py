"""GROUP BY over windows that tuples leave in any order (operators.over.lives).

Streams of a join have windows of their own: `FROM a [RANGE 9], b [RANGE 5] WHERE … GROUP BY k`. The last rows
of a stream may be looked at now and then: `FROM a [ROWS 9 SLIDE 3] WHERE … GROUP BY k`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.functions import stored_arguments
from slicemill.columns.keys import shown
from slicemill.columns.order import Numbering, renumbered
from slicemill.columns.pieces import kept_from
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit
from slicemill.operators.context import StepContext
from slicemill.operators.panes.step import has_group_kernel
from slicemill.operators.partitioned import Columns
from slicemill.operators.registry import partition_keys
from slicemill.operators.select.step import FilterStep
from slicemill.operators.windowed_group.lives import END, TIME, Lives, LivesState, LivingRows
from slicemill.operators.windowed_group.spec import RelationAggregate
from slicemill.scalar.vectors import fixed_width, numbers
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice

Integers = NDArray[np.int64]
_START, _END = "window_start", "window_end"


@stored_as("living_windows", version=1)
@dataclass(slots=True)
class LivingState:
    """Rows that are alive, and how many results were given.

    Of a window that counts rows also how many tuples have come, and when the last of them did; of these the
    first `passed` are in no window any more.
    """

    lives: LivesState = field(default_factory=LivesState)
    given: int = 0
    arrived: int = 0
    times: list[Slice] = field(default_factory=list)
    passed: int = 0


class _Windows:
    """What both kinds have in common: rows for the kernel, and results from its answers."""

    def __init__(self, operator: RelationAggregate, context: StepContext) -> None:
        schema = context.schemas[0]
        self.state = context.state if isinstance(context.state, LivingState) else LivingState()
        self._names = [item.name for item in operator.group_by]
        keys = [item.expr for item in operator.group_by]
        given = [call.arguments[: stored_arguments(call)] for call in operator.calls]
        exprs: list[Expr] = list(dict.fromkeys(expr for of_call in given for expr in of_call))
        self._columns = Columns([keys, exprs], schema)
        self._key_columns = [f"key {place}" for place in range(len(keys))]
        self._argument_columns = [f"argument {place}" for place in range(len(exprs))]
        places = [[self._argument_columns[exprs.index(expr)] for expr in of_call] for of_call in given]
        self._lives = Lives(operator.calls, self._key_columns, places, operator.slide, self.state.lives)
        self._results = [call.columns[0].name for call in operator.calls]
        self._schema = with_system_columns(to_arrow(context.node.schema))

    def _rows(self, table: pa.Table, times: Integers, ends: Integers) -> pa.Table:
        columns = {
            TIME: pa.array(times),
            END: pa.array(ends),
            SEQ: table.column(SEQ),
            ARRIVAL: table.column(ARRIVAL),
        }
        keys, arguments = self._columns.of(table)
        columns |= dict(zip(self._key_columns, keys, strict=True))
        return pa.table(columns | dict(zip(self._argument_columns, arguments, strict=True))).combine_chunks()

    def _table(
        self, found: LivingRows, times: Integers, arrivals: pa.ChunkedArray, bounds: Sequence[Integers]
    ) -> pa.Table:
        columns = {TS: pa.array(times), SEQ: found.rows.column(SEQ), ARRIVAL: arrivals}
        for name, key in zip(self._names, self._key_columns, strict=True):
            columns[name] = shown(found.rows.column(key))
        columns |= dict(zip(self._results, found.values, strict=True))
        for name, bound in zip((_START, _END), bounds, strict=False):
            columns[name] = fixed_width(bound, None, pa.timestamp("us", tz="UTC"))
        return pa.table(columns).select(self._schema.names).cast(self._schema)

    def _counted(self, out: pa.Table) -> pa.Table:
        first, self.state.given = self.state.given, self.state.given + out.num_rows
        return renumbered(out, first)


class JoinedWindowsStep(_Windows):
    """A joined tuple counts while each of its members is in its own window."""

    def __init__(self, operator: RelationAggregate, context: StepContext) -> None:
        super().__init__(operator, context)
        self._slide = operator.slide
        self._members = [
            (column, window.extent)
            for column, window in operator.windows
            if column is not None and window.extent is not None
        ]
        self._numbering = (
            None if partition_keys(operator) is None else Numbering(context.seq_bits, ranks=True, fans=True)
        )

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, until = tables[0], complete[0]
        times = [numbers(table.column(column).combine_chunks()) + length for column, length in self._members]
        rows = self._rows(table, table.column(TS).to_numpy(), np.min(times, axis=0))
        found = self._lives.run(rows, until)
        if self._slide is None:
            out = self._table(found, found.moments, found.rows.column(ARRIVAL), ())
        else:
            starts = found.moments - max(length for _, length in self._members)
            # Time releases them, when their windows end.
            due = pa.chunked_array([np.zeros(len(starts), np.int64)])
            out = self._table(found, found.moments, due, (starts, found.moments))
        held = self.due()
        out = self._counted(out) if self._numbering is None else self._numbering.applied(out)
        return out, until if held is None else min(until, held)

    def due(self) -> int | None:
        return self._lives.due()


class SlidingRowsStep(_Windows):
    """Every so many tuples, a row for each group among the last ones. Time is counted in tuples."""

    def __init__(self, operator: RelationAggregate, context: StepContext, rows: int) -> None:
        super().__init__(operator, context)
        self._extent = rows
        self._where = None if operator.where is None else FilterStep(operator.where, context.schemas[0])

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, table = self.state, tables[0]
        first, state.arrived = state.arrived, state.arrived + table.num_rows
        clock = pa.table({TIME: table.column(TS), ARRIVAL: table.column(ARRIVAL)}).combine_chunks()
        known = pa.concat_tables([*(piece.table for piece in state.times), clock]).slice(state.passed)
        before = state.arrived - known.num_rows  # tuples that came earlier than these
        place = table.schema.get_field_index(TS)
        numbered = table.set_column(place, TS, pa.array(np.arange(first, state.arrived)))
        if self._where is not None:
            numbered, _ = self._where.run([numbered], complete)
        positions = numbered.column(TS).to_numpy()
        found = self._lives.run(self._rows(numbered, positions, positions + self._extent), state.arrived)
        times = known.column(TIME).to_numpy()
        latest = found.moments - 1 - before
        oldest = np.maximum(found.moments - self._extent, 0) - before
        arrivals = known.column(ARRIVAL).take(pa.array(latest))
        out = self._table(found, times[latest], arrivals, (times[oldest], times[latest]))
        passed = state.passed + max(known.num_rows - self._extent, 0)
        state.times, state.passed = kept_from(state.times, clock, passed)
        return self._counted(out), complete[0]

    def due(self) -> int | None:
        return None


def living_windows(
    operator: RelationAggregate, context: StepContext
) -> JoinedWindowsStep | SlidingRowsStep | None:
    """The step of an aggregate over such windows, unless a call is of a user's own, or has no kernel."""
    if not all(has_group_kernel(call, context.catalog) for call in operator.calls):
        return None
    column, window = operator.windows[0]
    if window.frame is FrameUnit.ROWS:
        assert window.extent is not None, "the binder asks for a window with a beginning"
        return SlidingRowsStep(operator, context, window.extent) if operator.slide is not None else None
    return JoinedWindowsStep(operator, context) if column is not None else None
