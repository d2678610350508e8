"""Evaluation of one query over panes: GROUP BY, and OVER with SLIDE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.aggregate.columns import Windows
from slicemill.esl.types.schema import Column
from slicemill.machine_code.kernel import kernel
from slicemill.metrics.due import released_by_time
from slicemill.operators.call_values import Evaluate, WindowRows, aligned
from slicemill.operators.panes.edges import Ints
from slicemill.operators.panes.figures import Figure
from slicemill.operators.panes.partials import Partial, Values
from slicemill.operators.panes.selection import Mask
from slicemill.operators.panes.spans import Places, Spans, spans_at, spans_of
from slicemill.operators.panes.state import BEGINNING, NEVER, MemberState, StoredKeys
from slicemill.operators.panes.view import PaneView
from slicemill.scalar.vectors import fixed_width, numbers

_INSTANT = pa.timestamp("us", tz="UTC")
_SLOT, _KEY = "_slot", "_key"


def first_end_after(ts: int, slide: int) -> int:
    return min((ts // slide + 1) * slide, NEVER)


@dataclass(frozen=True)
class Groups:
    """`GROUP BY` over `[RANGE … SLIDE …]`: one row per non-empty window.

    If `grows` is set, windows begin at multiples of `length` and end at each slide (cumulative windows).
    """

    length: int
    slide: int
    key_names: tuple[str, ...]
    figures: Mapping[str, Figure]  # by the name of the column
    columns: tuple[Column, ...]
    grows: bool = field(default=False, kw_only=True)

    @property
    def partials(self) -> tuple[Partial, ...]:
        return tuple(partial for figure in self.figures.values() for partial in figure.partials)

    def begins(self, end: Any) -> Any:
        """Return the start of windows with these ends."""
        return (end - 1) // self.length * self.length if self.grows else end - self.length

    def holds(self, ts: Ints) -> Mask:
        """Return a mask of the timestamps that lie in a window.

        If slide > length, some timestamps lie in none.
        """
        return np.asarray((ts // self.slide + 1) * self.slide - ts <= self.length)

    def due(self, state: MemberState) -> int | None:
        """Return the end of the next non-empty window, None without tuples."""
        if state.oldest is None or state.newest is None:
            return None
        end = first_end_after(max(state.closed, state.oldest), self.slide)
        return end if state.newest >= self.begins(end) else None

    def since(self, state: MemberState) -> int:
        """Return the start of the earliest pane that is still needed."""
        if state.closed == BEGINNING:
            return BEGINNING
        return int(self.begins(first_end_after(state.closed, self.slide)))

    held = due

    def answer(self, view: PaneView, keys: StoredKeys, state: MemberState, until: int) -> pa.Table:
        spans = self._spans(view, state, until)
        found = {name: figure.over(view, spans) for name, figure in self.figures.items()}
        return self._table(view, keys, spans, found)

    def _spans(self, view: PaneView, state: MemberState, until: int) -> Spans:
        """Return new windows by end, then by first tuple of the group."""
        spans = spans_of(view.begin, view.start, self.length, self.slide, state.closed, until, self.grows)
        seqs = view.columns["seq"][spans.lo]
        falls = (seqs[1:] < seqs[:-1]) & (spans.end[1:] == spans.end[:-1])
        return spans.take(np.lexsort((seqs, spans.end))) if falls.any() else spans

    def _table(self, view: PaneView, keys: StoredKeys, spans: Spans, found: dict[str, pa.Array]) -> pa.Table:
        # The watermark triggers these rows, so they have no arrival time of a tuple.
        arrays: dict[str, Any] = {
            "_ts": spans.end,
            "_seq": view.columns["seq"][spans.lo],
            "_arr": np.zeros(len(spans), np.int64),
        }
        groups = dict(zip(self.key_names, view.shown_keys(keys.values), strict=True))
        for column in self.columns:
            if column.name in groups:
                arrays[column.name] = _taken(groups[column.name], spans.rank)
            elif column.name == "window_end":
                arrays[column.name] = fixed_width(spans.end, None, _INSTANT)
            elif column.name == "window_start":
                arrays[column.name] = fixed_width(self.begins(spans.end), None, _INSTANT)
            else:
                arrays[column.name] = found[column.name]
        return pa.table(arrays)


def _taken(column: pa.Array, places: Places) -> pa.Array:
    plain = pa.types.is_primitive(column.type) and not pa.types.is_boolean(column.type)
    if plain and not column.null_count:
        return fixed_width(numbers(column)[places], None, column.type)
    return column.take(pa.array(places))


@dataclass(frozen=True)
class ValueGroups(Groups):
    """Like `Groups`, for calls that need all values of a window (`call_values`)."""

    values: tuple[Values, ...]  # the arguments of all calls
    evaluates: tuple[Evaluate, ...]

    @property
    def partials(self) -> tuple[Partial, ...]:
        return self.values

    def answer(self, view: PaneView, keys: StoredKeys, state: MemberState, until: int) -> pa.Table:
        spans = self._spans(view, state, until)
        # Kernels require windows with ascending ends, so the windows are ordered by key.
        order = np.argsort(spans.rank, kind="stable")
        windows = Windows(spans.lo[order].astype(np.int64), spans.hi[order].astype(np.int64))
        partitions = np.repeat(np.arange(len(view.keys), dtype=np.int32), np.diff(view.begin))
        rows = WindowRows(partitions, view.index)
        found = aligned([evaluate(rows, windows) for evaluate in self.evaluates], len(order))
        places = order[found.windows]
        back = np.argsort(places, kind="stable")
        taken = {name: array.take(pa.array(back)) for name, array in found.columns.items()}
        return self._table(view, keys, spans.take(places[back]), taken)


@dataclass(frozen=True)
class Yields:
    """`OVER (… RANGE … SLIDE …)`, evaluated at the end of each slot.

    The last tuple of each key in the slot gets the results.
    """

    slide: int
    figures: Mapping[str, tuple[int, Figure]]  # by column: the length of the window, and the aggregate
    columns: tuple[Column, ...]

    @property
    def length(self) -> int:
        return max(length for length, _ in self.figures.values())

    @property
    def partials(self) -> tuple[Partial, ...]:
        return tuple(partial for _, figure in self.figures.values() for partial in figure.partials)

    @property
    def carried(self) -> list[str]:
        """Return the output columns that are copied from the tuple."""
        return [column.name for column in self.columns if column.name not in self.figures]

    def holds(self, ts: Ints) -> Mask:
        """Return True for all timestamps, since any tuple may be emitted."""
        return np.ones(len(ts), np.bool_)

    def due(self, state: MemberState) -> int | None:
        return None if state.waiting is None else int(pc.min(state.waiting.column(_SLOT)).as_py())

    def held(self, state: MemberState) -> int | None:
        """Return the oldest waiting tuple's timestamp, which bounds later output."""
        return None if state.waiting is None else int(state.waiting.column("_ts")[0].as_py())

    def since(self, state: MemberState) -> int:
        if state.closed == BEGINNING:
            return BEGINNING
        return first_end_after(state.closed, self.slide) - self.length

    def take(self, state: MemberState, table: pa.Table, keys: Ints) -> None:
        """Add new tuples.

        Each replaces the waiting tuple of its key and slot.
        """
        chosen = table.select(["_ts", "_seq", *self.carried])
        ends = (chosen.column("_ts").to_numpy() // self.slide + 1) * self.slide
        chosen = chosen.append_column(_SLOT, pa.array(ends)).append_column(_KEY, pa.array(keys))
        if state.waiting is not None:
            chosen = pa.concat_tables([state.waiting, chosen])
        slots, numbers = (chosen.column(name).to_numpy() for name in (_SLOT, _KEY))
        kept = _last_of_slots(slots, numbers, int(numbers.max(initial=0)) + 1)
        state.waiting = chosen.take(pa.array(kept)).combine_chunks() if len(kept) else None

    def answer(self, view: PaneView, state: MemberState, until: int) -> pa.Table:
        assert state.waiting is not None
        ready = state.waiting.column(_SLOT).to_numpy() <= until
        rows = state.waiting.filter(pa.array(ready))
        rest = state.waiting.filter(pa.array(~ready)).combine_chunks()
        state.waiting = rest if rest.num_rows else None
        ranks, ends = view.ranks(rows.column(_KEY).to_numpy()), rows.column(_SLOT).to_numpy()
        spans: dict[int, Spans] = {}
        arrays: dict[str, Any] = {name: rows.column(name) for name in ("_ts", "_seq", *self.carried)}
        arrays["_arr"] = released_by_time(ends)
        for name, (length, figure) in self.figures.items():
            if length not in spans:
                spans[length] = spans_at(view.begin, view.start, length, ranks, ends)
            arrays[name] = figure.over(view, spans[length])
        names = ("_ts", "_seq", "_arr", *(column.name for column in self.columns))
        return pa.table({name: arrays[name] for name in names})


@kernel
def _last_of_slots(slots: Ints, keys: Ints, n_keys: int) -> Ints:
    """Return the position of the last tuple of each key in each slot.

    Tuples are ordered by slot.
    """
    slot_seen = np.full(n_keys, -(2**63), np.int64)
    kept = np.empty(len(slots), np.int64)
    count = 0
    for i in range(len(slots) - 1, -1, -1):
        if slot_seen[keys[i]] != slots[i]:
            slot_seen[keys[i]] = slots[i]
            kept[count] = i
            count += 1
    return kept[:count][::-1].copy()


Member = Groups | Yields
