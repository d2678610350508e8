"""GROUP BY over windows whose tuples expire in any order (operators.over.lives).

One case is a join, where each input has its own window: `FROM a [RANGE 9], b [RANGE 5] WHERE … GROUP BY
k`. The other case is a window by rows with a slide: `FROM a [ROWS 9 SLIDE 3] WHERE … GROUP BY k`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.keys import shown
from slicemill.columns.order import Numbering, renumbered
from slicemill.columns.pieces import kept_from
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit
from slicemill.operators.call_values import evaluators, needed_arguments
from slicemill.operators.context import StepContext
from slicemill.operators.partitioned import Columns
from slicemill.operators.registry import partition_keys
from slicemill.operators.select.step import FilterStep
from slicemill.operators.windowed_group.lives import END, NEVER, TIME, Lives, LivesState, LivingRows
from slicemill.operators.windowed_group.spec import GROUP_BITS, RelationAggregate, numbered_by_place
from slicemill.scalar.vectors import fixed_width, numbers
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice
from slicemill.storage.ties import fanned, tie_name, with_seqs

Integers = NDArray[np.int64]
_START, _END = "window_start", "window_end"


@stored_as("living_windows", version=1)
@dataclass(slots=True)
class LivingState:
    """Unexpired rows, and the number of emitted rows.

    A window by rows also keeps the number of tuples that arrived, and the times of the last ones. The
    first `passed` of these are in no window any more.
    """

    lives: LivesState = field(default_factory=LivesState)
    given: int = 0
    arrived: int = 0
    times: list[Slice] = field(default_factory=list)
    passed: int = 0


def key_column(place: int) -> str:
    """Return the column name of a group key."""
    return f"key {place}"


def argument_column(place: int | str) -> str:
    """Return the column name of a stored argument."""
    return f"argument {place}"


class _Windows:
    """Common part of both steps: input of the kernel, and output rows."""

    def __init__(self, operator: RelationAggregate, context: StepContext) -> None:
        schema = context.schemas[0]
        self.state = context.state if isinstance(context.state, LivingState) else LivingState()
        self._names = [item.name for item in operator.group_by]
        keys = [item.expr for item in operator.group_by]
        given = [needed_arguments(call, context.catalog) for call in operator.calls]
        exprs: list[Expr] = list(dict.fromkeys(expr for of_call in given for expr in of_call))
        self._columns = Columns([keys, exprs], schema)
        self._key_columns = [key_column(place) for place in range(len(keys))]
        self._argument_columns = [argument_column(place) for place in range(len(exprs))]
        columns = dict(zip(exprs, self._argument_columns, strict=True))
        evaluates = evaluators(operator.calls, columns, context)
        self._lives = Lives(evaluates, self._key_columns, operator.slide, self.state.lives)
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
        columns |= found.values
        for name, bound in zip((_START, _END), bounds, strict=False):
            columns[name] = fixed_width(bound, None, pa.timestamp("us", tz="UTC"))
        return pa.table(columns).select(self._schema.names).cast(self._schema)

    def _counted(self, out: pa.Table) -> pa.Table:
        first, self.state.given = self.state.given, self.state.given + out.num_rows
        return renumbered(out, first)


class TimedWindowsStep(_Windows):
    """Windows by time.

    A tuple counts while it is in its window. A joined tuple counts while all its components are in their
    windows.
    """

    def __init__(self, operator: RelationAggregate, context: StepContext) -> None:
        super().__init__(operator, context)
        self._slide = operator.slide
        self._members = [
            (column or TS, window.extent) for column, window in operator.windows if window.extent is not None
        ]
        self._numbering = (
            None if partition_keys(operator) is None else Numbering(context.seq_bits, ranks=True, fans=True)
        )
        self._by_place = numbered_by_place(operator)
        self._cells = context.cell.count

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, until = tables[0], complete[0]
        never = np.full(table.num_rows, NEVER)
        ends = [numbers(table.column(column).combine_chunks()) + length for column, length in self._members]
        rows = self._rows(table, table.column(TS).to_numpy(), np.min([never, *ends], axis=0))
        found = self._lives.run(rows, until)
        if self._slide is None:
            out = self._table(found, found.moments, found.rows.column(ARRIVAL), ())
        else:
            starts = found.moments - max(length for _, length in self._members)
            # The watermark triggers these rows, so they have no arrival time of a tuple.
            due = pa.chunked_array([np.zeros(len(starts), np.int64)])
            out = self._table(found, found.moments, due, (starts, found.moments))
        held = self.due()
        if self._by_place:
            out = self._placed(out, found)
        else:
            out = self._counted(out) if self._numbering is None else self._numbering.applied(out)
        return out, until if held is None else min(until, held)

    def _placed(self, out: pa.Table, found: LivingRows) -> pa.Table:
        """Number rows by their group's position in the window.

        Groups are ordered by their first row. Sequence numbers of joined rows do not increase with time,
        so they cannot define this order.
        """
        out = with_seqs(out, np.zeros(out.num_rows, np.int64))
        if self._cells == 1:
            return fanned(out, GROUP_BITS)
        for place, name in enumerate((TIME, SEQ)):
            out = out.append_column(tie_name(place, GROUP_BITS), found.rows.column(name))
        return out

    def due(self) -> int | None:
        return self._lives.due()


class CountedWindowsStep(_Windows):
    """Windows over the last rows, with the tuple number as time.

    With a slide of n, each n-th tuple causes a row per group in the window. Otherwise each tuple causes a
    row.
    """

    def __init__(self, operator: RelationAggregate, context: StepContext, rows: int) -> None:
        super().__init__(operator, context)
        self._extent, self._slides = rows, operator.slide is not None
        self._where = None if operator.where is None else FilterStep(operator.where, context.schemas[0])

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, table = self.state, tables[0]
        first, state.arrived = state.arrived, state.arrived + table.num_rows
        clock = pa.table({TIME: table.column(TS), ARRIVAL: table.column(ARRIVAL)}).combine_chunks()
        known = pa.concat_tables([*(piece.table for piece in state.times), clock]).slice(state.passed)
        before = state.arrived - known.num_rows  # tuples before the first of `known`
        place = table.schema.get_field_index(TS)
        numbered = table.set_column(place, TS, pa.array(np.arange(first, state.arrived)))
        if self._where is not None:
            numbered, _ = self._where.run([numbered], complete)
        positions = numbered.column(TS).to_numpy()
        found = self._lives.run(self._rows(numbered, positions, positions + self._extent), state.arrived)
        times = known.column(TIME).to_numpy()
        latest = found.moments - self._slides - before
        oldest = np.maximum(found.moments - self._extent, 0) - before
        arrivals = known.column(ARRIVAL).take(pa.array(latest))
        bounds = (times[oldest], times[latest]) if self._slides else ()
        out = self._table(found, times[latest], arrivals, bounds)
        passed = state.passed + max(known.num_rows - self._extent, 0)
        state.times, state.passed = kept_from(state.times, clock, passed)
        return self._counted(out), complete[0]

    def due(self) -> int | None:
        return None


def living_windows(
    operator: RelationAggregate, context: StepContext
) -> TimedWindowsStep | CountedWindowsStep:
    """Return the step of an aggregate over such windows."""
    _, window = operator.windows[0]
    if window.frame is FrameUnit.ROWS:
        assert window.extent is not None, "the binder asks for a window with a beginning"
        return CountedWindowsStep(operator, context, window.extent)
    return TimedWindowsStep(operator, context)
