"""Coalescing over windows by time: tuples wait until the slide ends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slicemill.columns.intervals import FOREVER, Numbers, Places
from slicemill.columns.pieces import kept
from slicemill.operators.coalesce.coalescing import KEY, NUMBERED, TIME, Coalescing
from slicemill.operators.coalesce.spans import RunSpans, windows_of_time
from slicemill.scalar.vectors import numbers
from slicemill.storage.slice import Slice

_FEW_KEYS = 1000


class CoalescingByTime(Coalescing):
    """Coalescing with output at each multiple of the slide.

    There is output while the window is not empty.
    """

    def due(self) -> int | None:
        state = self.state
        if state.closed is None or not state.pieces or state.finished:
            return None
        return state.closed + self._slide

    def _report(self, new: pa.Table, arrivals: Places, ended: bool) -> pa.Table | None:  # noqa: ARG002
        state, slide = self.state, self._slide
        if state.closed is None and len(new):
            state.closed = int(new.column(TIME)[0].as_py()) // slide * slide
        if state.closed is None or state.finished:
            return None
        state.finished = ended
        rows = len(new) + sum(len(piece.table) for piece in state.pieces)
        if not rows:
            state.closed = max(state.closed, state.now // slide * slide)
            return None
        if not ended and state.now < state.closed + slide:
            state.pieces = kept(state.pieces, new, np.ones(rows, np.bool_))
            return None
        content = self._content(new)
        runs, first, last = content.runs, state.closed // slide + 1, state.now // slide
        if ended:
            # An unbounded window never becomes empty, but it does not change after the end of the input.
            last = last + 1 if self._extent is None else FOREVER // slide
        extent = FOREVER if self._extent is None else self._extent
        spans = RunSpans(*windows_of_time(runs.partitions, runs.begins, slide, extent, first, last))
        # Partitions are ordered by the first tuple that they show.
        numbered: Places = numbers(content.table.column(NUMBERED).combine_chunks())[content.order]
        seqs = numbered[runs.places[spans.starts]]
        order = np.lexsort((seqs, spans.ends))
        out = self._output(content, spans.take(order), seqs[order], np.zeros(len(order), np.int64))
        state.closed = last * slide
        if self._extent is None:
            self._keep_changes(new, content)
        else:
            self._keep_recent(new, content, content.ts >= (last + 1) * slide - extent)
        self._forget_keys()
        return out

    def _forget_keys(self) -> None:
        """Evict partitions without tuples if there are many."""
        state = self.state
        if len(state.keys) <= 2 * sum(len(piece.table) for piece in state.pieces) + _FEW_KEYS:
            return
        alive = np.zeros(len(state.keys), np.bool_)
        for piece in state.pieces:
            alive[_keys(piece)] = True
        renumbered = state.keys.keep(alive)
        state.pieces = [
            Slice(piece.table.set_column(0, KEY, pa.array(renumbered[_keys(piece)])))
            for piece in state.pieces
        ]


def _keys(piece: Slice) -> Numbers:
    found: Numbers = numbers(piece.table.column(KEY).combine_chunks())
    return found
