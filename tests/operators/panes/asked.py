"""Members of shared windows, what each should give for a stream, and random ones of both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from operators.panes.brute import Event, grouped_windows, shown, yielding_tuples
from operators.panes.values import call, plain
from slicemill import types as t
from slicemill.aggregates.columns import Windows
from slicemill.aggregates.functions import function_of
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal
from slicemill.catalog.queries import AggregateCall
from slicemill.columns.rows import to_table
from slicemill.errors import SlicemillError
from slicemill.functions.vectors import from_arrow, to_values
from slicemill.operators.call_values import CallValues, Evaluate, WindowRows, _kernel_values
from slicemill.operators.window.pane_answers import PaneAggregate, pane_aggregate_of
from slicemill.operators.window.pane_state import PaneState
from slicemill.operators.window.panes import (
    GroupWindows,
    Member,
    OverWindows,
    PaneInput,
    PaneWindows,
    ValueGroupWindows,
)
from slicemill.operators.window.partial_aggregates import ValueList
from slicemill.operators.window.spec import edge_grids
from slicemill.operators.window.step import Emission
from slicemill.time import END
from slicemill.types import Column, Schema, Timed

SCHEMA = Schema(
    tuple(
        Column(*pair)
        for pair in zip("kgvwd", (t.INT, t.VARCHAR, t.BIGINT, t.DOUBLE, t.decimal(12, 2)), strict=True)
    )
)
COLUMNS = [ColumnRef(column.name, column.type) for column in SCHEMA]
K, G, V, W, D = range(5)
CALLS: list[tuple[str, int | None]] = [
    ("count", None), ("count", V), ("sum", V), ("avg", V), ("min", V), ("max", V), ("variance", V),
    ("first", V), ("last", G), ("min", G), ("max", G), ("sum", W), ("avg", W), ("min", W), ("max", W),
    ("stddev_pop", W), ("last", W), ("sum", D), ("min", D), ("max", D),
]  # fmt: skip
Runs = list[tuple[list[Event], int]]  # tuples, and how far the stream is complete with them


@dataclass(frozen=True)
class Asked:
    """A member: its figures, its windows, `v > above` as its condition, and the runs that it lives in."""

    kind: str
    calls: tuple[tuple[str, int | None], ...]
    window: tuple[int, int]
    above: int | None = None
    first: int = 0
    last: int = 99

    def takes(self, event: Event) -> bool:
        value = event.row[V]
        return self.above is None or (value is not None and value > self.above)

    @property
    def condition(self) -> Expr | None:
        if self.above is None:
            return None
        return Call(">", (COLUMNS[V], Literal(self.above, t.INT)), t.BOOLEAN)

    @property
    def lengths(self) -> list[int]:
        """Calls with OVER have windows of their own: each is longer than the one before."""
        return [self.window[0] * (index + 1) for index in range(len(self.calls))]

    @property
    def windows(self) -> list[tuple[int, int]]:
        length, slide = self.window
        return [(own, slide) for own in self.lengths] if self.kind == "over" else [(length, slide)]

    def member(self, keys: Sequence[int]) -> Member:
        length, slide = self.window
        names = tuple(SCHEMA.names[key] for key in keys)
        made = [aggregate_call(name, index, f"c{n}") for n, (name, index) in enumerate(self.calls)]
        results = tuple(made_call.columns[0] for made_call in made)
        own = tuple(SCHEMA.columns[key] for key in keys)
        end = Column("window_end", t.TIMESTAMP)
        if self.kind == "over":
            figures = {c.name: (n, figure(m)) for c, n, m in zip(results, self.lengths, made, strict=True)}
            return OverWindows(slide, figures, (SCHEMA.columns[V], *results))
        if self.kind == "groups":
            figures_ = {
                column.name: figure(made_call) for column, made_call in zip(results, made, strict=True)
            }
            return GroupWindows(length, slide, names, figures_, (*own, *results, end))
        value = (ValueList(COLUMNS[V]),)
        if self.kind == "medians":
            column = Column("c0", t.DOUBLE)
            median = AggregateCall("median", (COLUMNS[V],), False, (column,))
            by_kernel = _kernel_values(function_of(median), [(value[0].name, value[0].type)], column)
            return ValueGroupWindows(length, slide, names, {}, (*own, column, end), value, (by_kernel,))
        column = Column("c0", t.BIGINT)
        evaluates = (rising_values(value[0], column.name),)
        return ValueGroupWindows(length, slide, names, {}, (*own, column, end), value, evaluates)

    def expected(self, events: list[Event], keys: Sequence[int], after: int, until: int) -> list[str]:
        """The rows of the windows that end up to `until`, but not up to `after`."""
        events = [event for event in events if self.takes(event)]

        def key(event: Event) -> tuple[Any, ...]:
            return tuple(event.row[index] for index in keys)

        if self.kind == "over":
            figures = [(name, index, n) for (name, index), n in zip(self.calls, self.lengths, strict=True)]
            rows = yielding_tuples(events, key, self.window[1], figures, until)
            return [shown([e.ts, e.seq, e.row[V], *found]) for end, e, found in rows if end > after]
        made = []
        calls = self.calls if self.kind == "groups" else []
        for end, seq, values, found in grouped_windows(events, key, self.window, calls, until):
            inside = [e for e in events if end - self.window[0] <= e.ts < end and same(key(e), values)]
            for returned in self._returned(found, [event.row[V] for event in inside]):
                made += [shown([end, seq, *values, *returned, end])] if end > after else []
        return made

    def _returned(self, found: list[Any], values: list[int | None]) -> list[Sequence[Any]]:
        if self.kind == "groups":
            return [found]
        if self.kind == "values":
            return list(rising([(value,) for value in values]))
        known = [value for value in values if value is not None]
        return [[float(statistics.median(known)) if known else None]]


def same(key: tuple[Any, ...], shown_key: tuple[Any, ...]) -> bool:
    return shown([v + 0.0 if isinstance(v, float) else v for v in key]) == shown(list(shown_key))


def rising(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """An aggregate that returns any number of rows: the values that are greater than all before."""
    kept: list[tuple[Any, ...]] = []
    for row in rows:
        if row[0] is not None and (not kept or row[0] > kept[-1][0]):
            kept.append(row)
    return kept


def rising_values(values: ValueList, column: str) -> Evaluate:
    """The same for the windows of a view."""

    def found(given: WindowRows, windows: Windows) -> CallValues:
        column_ = from_arrow(given.column(values.name), values.type)
        rows = [(value,) for value in to_values(column_, len(given.partitions))]
        numbers, returned = [], []
        for number, (lo, hi) in enumerate(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)):
            made = rising(rows[lo:hi])
            numbers += [number] * len(made)
            returned += [value for (value,) in made]
        return CallValues(np.array(numbers, np.int64), {column: pa.array(returned, pa.int64())})

    return found


def aggregate_call(name: str, index: int | None, result: str) -> AggregateCall:
    if index is None:
        return AggregateCall(name, (), False, (Column(result, t.BIGINT),))
    return call(name, SCHEMA.columns[index].type, SCHEMA.names[index], result)


def figure(made: AggregateCall) -> PaneAggregate:
    found = pane_aggregate_of(made)
    assert found is not None
    return found


def table_of(events: Sequence[Event]) -> pa.Table:
    rows = [Timed(event.ts, event.row) for event in events]
    return to_table(rows, SCHEMA, [0] * len(rows), [event.seq for event in events])


def windows_of(asked: dict[str, Asked], keys: Sequence[int], state: PaneState) -> PaneWindows:
    state.adopt({name: repr(member) for name, member in asked.items()})
    return PaneWindows(
        PaneInput(SCHEMA, tuple(COLUMNS[key] for key in keys)),
        {name: member.member(keys) for name, member in asked.items()},
        {name: member.condition for name, member in asked.items()},
        edge_grids(window for member in asked.values() for window in member.windows),
        state,
    )


def rows_of(answer: Emission, member: Member) -> list[str]:
    assert not isinstance(answer, SlicemillError), answer
    table, _ = answer
    if table is None:
        return []
    columns = [plain(table.column(name), t.BIGINT) for name in ("_ts", "_seq")]
    columns += [plain(table.column(column.name), column.type) for column in member.columns]
    return [shown(row) for row in zip(*columns, strict=True)]


# -- random members and streams ---------------------------------------------------------------------------

lengths, slides = st.sampled_from([1, 3, 5, 10, 20]), st.sampled_from([1, 2, 5, 7, 10, 30])


@st.composite
def members(draw: st.DrawFn) -> Asked:
    first = draw(st.sampled_from([0, 0, 0, 1, 2]))
    return Asked(
        draw(st.sampled_from(["groups", "groups", "groups", "over", "values", "medians"])),
        tuple(draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True))),
        (draw(lengths), draw(slides)),
        draw(st.sampled_from([None, None, 0, 3])),
        first,
        draw(st.sampled_from([99, 99, first, first + 1])),
    )


rows = st.tuples(
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from(["a", "b", "", "ä"]),
    st.none() | st.integers(0, 5) | st.sampled_from([2**40, -(2**60)]),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, 0.1, math.nan, math.inf, -math.inf, 1e16, 5e-324]),
    st.none() | st.integers(-999, 10**11).map(lambda cents: Decimal(cents) / 100),
)


@st.composite
def streams(draw: st.DrawFn) -> Runs:
    """Runs may be empty, and tuples may be later than what the stream is complete with."""
    gaps, made, now, until, seq = (
        st.sampled_from([0, 0, 1, 2, 5, 13, 60]),
        [],
        draw(st.integers(-9, 9)),
        -END,
        0,
    )
    for _ in range(draw(st.integers(1, 4))):
        events = []
        for _ in range(draw(st.integers(0, 7))):
            now += draw(gaps)
            events.append(Event(now, seq, draw(rows)))
            seq += 1
        until = max(until, now + draw(st.sampled_from([-5, -1, 0, 0, 1, 30])))
        now = max(now, until)
        made.append((events, until))
    return [*made[:-1], (made[-1][0], draw(st.sampled_from([made[-1][1], END])))]


def simple(*ts: int, value: Any = 1, first: int = 0) -> list[Event]:
    return [Event(time, first + n, (0, "a", value, 0.0, None)) for n, time in enumerate(ts)]
