"""GROUP BY over the last n rows of a stream, per tuple.

In `FROM s [ROWS n] WHERE … GROUP BY k` the window contains rows of all groups, and WHERE filters the
window. So a row counts while its number in the stream is high enough. So the query has an OVER window with
row numbers in place of timestamps.

    number    1  2  3  4  5  6                ROWS 3
    group     a  b  a  a  b  a
    of a               [a     a)              tuple 6 aggregates the rows of a from number 4 on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.columns.order import renumbered
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.over.builtin_step import WindowsStep
from slicemill.operators.over.compiled_step import WindowCallsStep
from slicemill.operators.over.spec import WindowAggregate
from slicemill.operators.over.step import over as over_step
from slicemill.operators.select.step import FilterStep, ProjectStep
from slicemill.operators.windowed_group.as_over import counting_window, over_calls, shown_items
from slicemill.operators.windowed_group.spec import RelationAggregate
from slicemill.storage.arrow_schema import TS
from slicemill.storage.codec import stored_as


@stored_as("count_window", version=1)
@dataclass(slots=True)
class CountWindowState:
    """Counts of tuples read and rows emitted; state of OVER calls."""

    arrived: int = 0
    given: int = 0
    calls: Any = None


class CountWindowStep:
    """Step that evaluates the aggregate by OVER calls over tuple numbers."""

    def __init__(
        self,
        state: CountWindowState,
        calls: WindowCallsStep | WindowsStep,
        where: FilterStep | None,
        project: ProjectStep,
    ) -> None:
        self._state = state
        self._calls = calls
        self._where = where
        self._project = project

    @property
    def state(self) -> CountWindowState:
        return replace(self._state, calls=self._calls.state)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, times = self._state, tables[0].column(TS)
        first, state.arrived = state.arrived, state.arrived + len(times)
        table = _at(tables[0], np.arange(first, state.arrived))
        if self._where is not None:
            table, _ = self._where.run([table], complete)
        table, _ = self._calls.run([table], [state.arrived])
        numbers = table.column(TS).to_numpy()
        answered = _at(table, times.to_numpy()[numbers - first])
        out, _ = self._project.run([answered], complete)
        out = renumbered(out, state.given)
        state.given += out.num_rows
        return out, complete[0]

    def due(self) -> int | None:
        return None


def count_windows(operator: RelationAggregate, context: StepContext) -> CountWindowStep | None:
    """Return a step based on OVER, or None if results would differ."""
    window = counting_window(operator, context.catalog)
    if window is None:
        return None
    state = context.state if isinstance(context.state, CountWindowState) else CountWindowState()
    over = over_calls(operator, window)
    (source,) = context.schemas
    schema = Schema((*source.columns, *(column for call in over for column in call.columns)))
    calls = WindowAggregate(over)
    node = replace(context.node, operator=calls, schema=schema)
    step = over_step(calls, replace(context, node=node, state=state.calls))
    where = None if operator.where is None else FilterStep(operator.where, source)
    return CountWindowStep(state, step, where, ProjectStep(shown_items(operator), schema))


def _at(table: pa.Table, times: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
    place = table.schema.get_field_index(TS)
    return table.set_column(place, table.schema.field(place), pa.array(times))
