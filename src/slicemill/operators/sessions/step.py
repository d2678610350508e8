"""Aggregates over sessions, for all queries of one stream and key at once.

Rows of open sessions lie in one store, sorted once a run by key; each member goes over those that it takes,
and its sessions that have ended are stretches of neighbouring rows, which the kernels of windows answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.columns import Windows
from slicemill.columns.intervals import by_partition
from slicemill.columns.keys import distinct_keys, shown, whole
from slicemill.columns.order import Numbering
from slicemill.columns.pieces import kept
from slicemill.errors import SlicemillError
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr, conjunction
from slicemill.esl.types.schema import Schema
from slicemill.operators.call_values import (
    CallValues,
    Evaluate,
    WindowRows,
    aligned,
    evaluators,
    needed_arguments,
)
from slicemill.operators.context import StepContext
from slicemill.operators.panes.selection import PaneInput, Selection
from slicemill.operators.sessions.borders import FOREVER, Integers, Mask, session_borders
from slicemill.operators.sessions.spec import SessionAggregate, SessionMember, SharedSessions
from slicemill.operators.sessions.state import SessionState
from slicemill.operators.step import StepResult
from slicemill.scalar.vectors import arrow_type, fixed_width, numbers
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns

_NUMBER = "_number"  # of a row, in the order of arrival
_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class StoredRows:
    """All stored rows: places sorted by key, and the key of each row."""

    table: pa.Table
    order: Integers
    codes: Integers

    def column(self, name: str) -> pa.Array:
        return whole(self.table.column(name))

    def integers(self, name: str) -> Integers:
        found: Integers = numbers(self.column(name))
        return found


class _Member:
    """One aggregate: which rows it takes, where its sessions end, and what they come to."""

    def __init__(self, member: SessionMember, columns: Mapping[Expr, str], context: StepContext) -> None:
        operator = member.operator
        self.where = conjunction(member.conditions)
        self._session = operator.session
        self._names = [item.name for item in operator.group_by]
        self._columns = columns
        given = {a: columns[a] for call in operator.calls for a in needed_arguments(call, context.catalog)}
        self._evaluates: tuple[Evaluate, ...] = evaluators(operator.calls, given, context)
        self._schema = with_system_columns(to_arrow(Schema(member.columns)))
        self._numbering = Numbering(context.seq_bits, fans=True)

    def sessions(self, rows: StoredRows, first: int) -> tuple[Integers, Integers, Integers]:
        """Places of its rows, sorted; where sessions begin among these, and when they end."""
        taken = rows.integers(_NUMBER) >= first
        if self.where is not None:
            taken &= _true(rows.column(_where(self.where)))
        places = rows.order[taken[rows.order]]
        times = rows.integers(TS)[places]
        closes = np.zeros(len(places), np.bool_)
        if self._session.close is not None:
            closes = _true(rows.column(self._columns[self._session.close]))[places]
        starts, until = session_borders(rows.codes[places], times, self._ends(rows, places, times), closes)
        return places, starts, until

    def _ends(self, rows: StoredRows, places: Integers, times: Integers) -> Integers:
        session = self._session
        if session.until is not None:
            column = rows.column(self._columns[session.until]).cast(pa.int64())
            known = column.is_valid().to_numpy(zero_copy_only=False)[places]
            return np.where(known, column.fill_null(0).to_numpy()[places], times)
        if session.gap_us is None:
            return np.full(len(times), FOREVER)
        return np.minimum(times, FOREVER - session.gap_us) + session.gap_us

    def answer(
        self, rows: StoredRows, places: Integers, starts: Integers, until: Integers, done: Mask
    ) -> pa.Table:
        """What sessions come to that have ended, by their ends, then by their first tuples."""
        sizes = np.diff(starts, append=len(places))
        first = places[starts]
        chosen = np.flatnonzero(done)
        chosen = chosen[np.lexsort((rows.integers(SEQ)[first[chosen]], until[chosen]))]
        stretch = np.repeat(starts[chosen] - np.cumsum(sizes[chosen]) + sizes[chosen], sizes[chosen])
        members = places[stretch + np.arange(len(stretch))]
        found = self._values(rows, members, sizes[chosen])
        shown_of = chosen[found.windows]
        heads = first[shown_of]
        ends = until[shown_of]
        columns: dict[str, pa.Array | NDArray[np.int64]] = {
            TS: pa.array(ends),
            SEQ: rows.column(SEQ).take(pa.array(heads)),
            # Time releases them, when their sessions end.
            ARRIVAL: pa.array(np.zeros(len(heads), np.int64)),
        }
        for place, name in enumerate(self._names):
            columns[name] = shown(rows.column(_key(place)).take(pa.array(heads)))
        columns |= found.columns
        columns["window_start"] = fixed_width(rows.integers(TS)[heads], None, _INSTANT)
        columns["window_end"] = fixed_width(ends, None, _INSTANT)
        made = pa.table({name: columns[name] for name in self._schema.names}).cast(self._schema)
        return self._numbering.applied(made)

    def _values(self, rows: StoredRows, places: Integers, sizes: Integers) -> CallValues:
        ends = np.cumsum(sizes)
        taken: dict[str, pa.Array] = {}

        def column(name: str) -> pa.Array:
            if name not in taken:
                taken[name] = rows.column(name).take(pa.array(places))
            return taken[name]

        side_by_side = WindowRows(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), column)
        found = [evaluate(side_by_side, Windows(ends - sizes, ends)) for evaluate in self._evaluates]
        return aligned(found, len(sizes))

    @property
    def nothing(self) -> pa.Table:
        return self._schema.empty_table()


class SharedSessionsStep:
    """Members that are new in the plan count what comes from now on; what those that left had is released."""

    def __init__(
        self,
        keys: Sequence[Expr],
        members: Sequence[SessionMember],
        state: SessionState,
        context: StepContext,
    ) -> None:
        newcomers = context.newcomers.keys()
        # Twice, since a newcomer is new also if there was one of the same name and form before.
        state.adopt({member.name: member for member in members if member.name not in newcomers})
        state.adopt({member.name: member for member in members})
        self.state = state
        schema = context.schemas[0]
        self._users: dict[Expr, list[str]] = {}
        for member in members:
            for expr in member.operator.exprs:
                self._users.setdefault(expr, []).append(member.name)
        columns = {expr: f"of {render(expr)}" for expr in self._users}
        self._columns = columns
        self._members = {member.name: _Member(member, columns, context) for member in members}
        conditions = {name: member.where for name, member in self._members.items()}
        every = dict.fromkeys(self._members, _every)
        self._selection = Selection(PaneInput(schema, tuple(keys)), conditions, every)
        self._keys = [_key(place) for place in range(len(keys))]
        stored = {TS: pa.int64(), SEQ: pa.int64(), _NUMBER: pa.int64()}
        stored |= {_key(place): arrow_type(key.type) for place, key in enumerate(keys)}
        stored |= {name: arrow_type(expr.type) for expr, name in columns.items()}
        stored |= {_where(where): pa.bool_() for where in conditions.values() if where is not None}
        self._schema = pa.schema(list(stored.items()))
        state.fit(self._schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        table, until = tables[0], complete[0]
        # Rows come in order: what is over for the last one is over for all to come.
        now = max(until, int(table.column(TS)[-1].as_py())) if table.num_rows else until
        new = self._taken(table) if table.num_rows else self._schema.empty_table()
        rows = self._sorted(pa.concat_tables([*(piece.table for piece in self.state.pieces), new]))
        needed = np.zeros(len(rows.order), np.bool_)
        results: dict[str, StepResult] = {}
        for name, member in self._members.items():
            state = self.state.members[name]
            if state.failure is None:
                try:
                    results[name] = self._member(name, member, rows, needed, now), until
                except SlicemillError as problem:
                    state.failure = str(problem)
            if state.failure is not None:
                results[name] = SlicemillError(state.failure)
            elif state.held is not None:
                made = results[name]
                assert isinstance(made, tuple)
                results[name] = made[0], min(until, state.held)
        self.state.pieces = kept(self.state.pieces, new, _to_the_end(rows, needed), exactly=True)
        return [results[name] for name in self._members]

    def due(self) -> int | None:
        members = self.state.members.values()
        held = [m.held for m in members if m.held is not None and m.failure is None and m.held < FOREVER]
        return min(held) + 1 if held else None

    def _member(self, name: str, member: _Member, rows: StoredRows, needed: Mask, now: int) -> pa.Table:
        """The rows of a member; marks the rows that it still needs."""
        state = self.state.members[name]
        if not len(rows.order):
            state.closed, state.held = max(state.closed, now), None
            return member.nothing
        places, starts, until = member.sessions(rows, state.first)
        is_open = (until >= now) | (until >= FOREVER)
        done = ~is_open & (until >= state.closed)
        out = member.answer(rows, places, starts, until, done) if done.any() else member.nothing
        needed[places[np.repeat(is_open, np.diff(starts, append=len(places)))]] = True
        state.closed = max(state.closed, now)
        state.held = int(until[is_open].min()) if is_open.any() else None
        return out

    def _taken(self, table: pa.Table) -> pa.Table:
        """New tuples that somebody takes, as they are stored."""
        live = [name for name in self._members if self.state.members[name].failure is None]
        selected, failed = self._selection.select(table, live)
        users = {expr: [n for n in names if n in live] for expr, names in self._users.items()}
        found, failed_too = self._selection.arguments(selected, {e: n for e, n in users.items() if n})
        for name, problem in {**failed_too, **failed}.items():
            self.state.members[name].failure = str(problem)
        count = selected.table.num_rows
        first, self.state.taken = self.state.taken, self.state.taken + count
        columns: dict[str, object] = {
            TS: selected.table.column(TS),
            SEQ: selected.table.column(SEQ),
            _NUMBER: np.arange(first, first + count),
        }
        columns |= {_key(place): whole(key) for place, key in enumerate(selected.keys)}
        columns |= {self._columns[expr]: column for expr, column in found.items()}
        for name, member in self._members.items():
            if member.where is not None:
                columns[_where(member.where)] = self._selection.takes(name, selected)
        arrays = [
            pa.nulls(count, column.type)
            if column.name not in columns
            else _cast(columns[column.name], column)
            for column in self._schema
        ]
        return pa.table(arrays, schema=self._schema)

    def _sorted(self, table: pa.Table) -> StoredRows:
        found = distinct_keys([whole(table.column(name)) for name in self._keys], table.num_rows)
        order, _, _ = by_partition(found.codes.astype(np.int32), max(len(found.values), 1))
        return StoredRows(table, order, found.codes)


class SessionsStep:
    """The sessions of one aggregate that shares with none."""

    def __init__(self, operator: SessionAggregate, state: SessionState, context: StepContext) -> None:
        member = SessionMember("", (), operator, context.node.schema.columns)
        self._shared = SharedSessionsStep(operator.keys, [member], state, context)

    @property
    def state(self) -> SessionState:
        return self._shared.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (found,) = self._shared.run(tables, complete)
        if isinstance(found, SlicemillError):
            raise found
        return found

    def due(self) -> int | None:
        return self._shared.due()


def shared_sessions(operator: SharedSessions, context: StepContext) -> SharedSessionsStep:
    return SharedSessionsStep(operator.keys, operator.members, _state(context), context)


def sessions(operator: SessionAggregate, context: StepContext) -> SessionsStep:
    return SessionsStep(operator, _state(context), context)


def _state(context: StepContext) -> SessionState:
    return context.state if isinstance(context.state, SessionState) else SessionState()


def _to_the_end(rows: StoredRows, needed: Mask) -> Mask:
    """Rows that are needed, and all of their keys behind them.

    So what stays of a session that is over for somebody is always its end, which still says when it was over.
    """
    sorted_needed = needed[rows.order]
    codes = rows.codes[rows.order]
    places = np.arange(len(codes))
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(codes) else places
    heads = np.repeat(begins, np.diff(begins, append=len(codes)))
    latest = np.maximum.accumulate(np.where(sorted_needed, places, -1)) if len(codes) else places
    out = np.zeros(len(codes), np.bool_)
    out[rows.order] = latest >= heads
    return out


def _every(times: Integers) -> Mask:
    return np.ones(len(times), np.bool_)


def _true(column: pa.Array) -> Mask:
    found: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _cast(column: object, field: pa.Field) -> pa.Array:
    made = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)
    return whole(made.cast(field.type))


def _key(place: int) -> str:
    return f"key {place}"


def _where(condition: Expr) -> str:
    return f"where {render(condition)}"
