"""Temporal queries with late tuples, which split and merge later runs (L5).

Late tuples are in the input at the time of their arrival. The output of a slide shows the tuples that
arrived before it, each from its own time on. So output depends on arrival, and not on how the input is
split.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.intervals import Numbers, Places
from slicemill.esl.types.schema import Schema
from slicemill.operators.coalesce.by_time import CoalescingByTime
from slicemill.operators.coalesce.coalescing import BEGINNING, TIME, TS, CoalescingState, Content
from slicemill.operators.coalesce.spec import Coalesce
from slicemill.scalar.vectors import numbers


class CoalescingWithLate(CoalescingByTime):
    """Like `CoalescingByTime`, for tuples sorted by their own times."""

    def __init__(
        self, operator: Coalesce, schema: Schema, names: Sequence[str], state: CoalescingState
    ) -> None:
        super().__init__(operator, schema, names, state)
        assert operator.late is not None, "the caller has looked"
        self._column, self._within = operator.late.column, operator.late.within_us

    def run(
        self, table: pa.Table, complete: int, latest_elsewhere: int = BEGINNING
    ) -> tuple[pa.Table | None, int]:
        arrived, begun = _integers(table.column(TS)), self._own_times(table)
        in_time = arrived - begun <= self._within
        if not in_time.all():
            table, arrived, begun = table.filter(pa.array(in_time)), arrived[in_time], begun[in_time]
        if self.state.closed is None and len(arrived):
            self.state.closed = int(arrived[0]) // self._slide * self._slide
        reports, start = [], 0
        for place in self._first_of_slides(arrived, begun):
            # Output up to the tuple's arrival must not include it.
            before = int(arrived[place]) // self._slide * self._slide
            reports.append(super().run(table.slice(start, place - start), before)[0])
            start = place
        last, until = super().run(table.slice(start), complete, latest_elsewhere)
        made = [report for report in (*reports, last) if report is not None]
        return (pa.concat_tables(made) if made else None), until

    def _own_times(self, table: pa.Table) -> Places:
        return _integers(table.column(self._column).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))

    def _first_of_slides(self, arrived: Places, begun: Places) -> list[int]:
        """Return the first late tuple of each slide that has any."""
        late = np.flatnonzero(begun < arrived)
        _, firsts = np.unique(arrived[late] // self._slide, return_index=True)
        return [int(place) for place in late[firsts]]

    def _taken(self, table: pa.Table) -> tuple[pa.Table, Places]:
        new, arrivals = super()._taken(table)
        return new.set_column(
            new.schema.get_field_index(TIME), TIME, pa.array(self._own_times(table))
        ), arrivals

    def _sorted(self, keys: Numbers, times: Places) -> tuple[Places, Numbers]:
        order = np.lexsort((times, keys))
        return order, keys[order]

    def _keep_changes(self, new: pa.Table, content: Content) -> None:
        """Keep tuples unmerged while a late tuple may arrive between them."""
        assert self.state.closed is not None, "something was reported"
        needed = content.changes() | (content.ts >= self.state.closed - self._within)
        self._keep(new, content, needed)


def _integers(column: pa.ChunkedArray) -> Places:
    found: Places = numbers(pc.fill_null(column, 0).combine_chunks())
    return found
