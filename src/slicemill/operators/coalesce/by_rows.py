"""Coalescing over windows by rows: the last n tuples, at every m-th tuple."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slicemill.columns.intervals import Numbers, Places, by_partition, running
from slicemill.operators.coalesce.coalescing import KEY, NUMBER, NUMBERED, Coalescing
from slicemill.operators.coalesce.spans import RunSpans
from slicemill.scalar.vectors import numbers


class CoalescingByRows(Coalescing):
    """Coalescing with output at each tuple that completes a slide.

    The output has this tuple's timestamp. The tuple itself is not shown, because its period is still
    empty.
    """

    def due(self) -> int | None:
        return None

    def _report(self, new: pa.Table, arrivals: Places, ended: bool) -> pa.Table | None:  # noqa: ARG002
        state, count = self.state, max(len(self.state.keys), 1)
        if not len(new):
            return None
        state.arrived = np.concatenate([state.arrived, np.zeros(count - len(state.arrived), np.int64)])
        keys: Numbers = numbers(new.column(KEY).combine_chunks())
        order, partitions, _ = by_partition(keys, count)
        number = np.empty(len(new), np.int64)
        number[order] = running(partitions, np.ones(len(new), np.int64), state.arrived)
        new = new.append_column(NUMBER, pa.array(number))
        state.arrived = state.arrived + np.bincount(keys, minlength=count)

        content = self._content(new)
        counted: Places = numbers(content.table.column(NUMBER).combine_chunks())[content.order]
        old = len(content.table) - len(new)
        reports = np.flatnonzero((content.order >= old) & (counted % self._slide == 0))
        begin = np.searchsorted(content.partitions, content.partitions[reports], "left")
        if self._extent is not None:
            begin = np.maximum(begin, reports - (self._extent - 1))
        starts, stops = (np.searchsorted(content.runs.places, edge, "left") for edge in (begin, reports))
        some = stops > starts
        arrived = content.order[reports][some] - old
        spans = RunSpans(starts[some], stops[some], content.ts[reports][some]).in_order(arrived)
        arrived = np.sort(arrived)
        seqs: Places = numbers(new.column(NUMBERED).combine_chunks())
        out = self._output(content, spans, seqs[arrived], arrivals[arrived])
        if self._extent is None:
            self._keep_changes(new, content)
        else:
            self._keep_recent(new, content, counted > state.arrived[content.partitions] - self._extent)
        return out
