"""Execution of the session windows of all queries with the same stream and key.

Rows of open sessions are stored once, linked by key (`operators.session.state`). A micro-batch reads the
keys with new rows, and the keys with a session whose end the watermark has passed. One pass over the rows
finds the sessions of all queries that read the same rows, for any gaps. Ended sessions are ranges of
neighbouring rows. Window kernels compute the aggregates of all queries over these ranges
(`operators.session.answers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from slicemill.catalog.expressions import Expr, conjunction
from slicemill.catalog.queries import SessionWindow
from slicemill.columns.arrow_schema import SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.keys import extend_array, to_array
from slicemill.errors import SlicemillError
from slicemill.functions.render import render
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.operators.session.answers import PassedSessions, SessionAnswers
from slicemill.operators.session.spec import SessionAggregate, SessionMember, SharedSessions
from slicemill.operators.session.state import (
    FOREVER,
    OpenSessions,
    SessionRows,
    SessionSegments,
    SessionState,
    StoredRows,
    sessions_of_gaps,
    sessions_until,
)
from slicemill.operators.step import StepContext
from slicemill.operators.window.panes import PaneInput, TupleSelection
from slicemill.operators.window.step import Emission, WindowOutput
from slicemill.time import END
from slicemill.types import Schema

_NUMBER = "_number"  # column with the arrival number of each stored row


@dataclass(frozen=True, slots=True)
class _SharedPass:
    """Properties of a pass over the stored rows that finds the sessions of several queries.

    `first` is the number of the first row that the queries read.
    """

    where: Expr | None
    first: int
    session: SessionWindow


class SessionWindows:
    """Window strategy that aggregates the sessions of all queries over shared rows.

    A query that is new in the plan aggregates only tuples that arrive from now on. State that only removed
    queries used is dropped.
    """

    def __init__(
        self,
        keys: Sequence[Expr],
        members: Sequence[SessionMember],
        state: SessionState,
        context: StepContext,
    ) -> None:
        newcomers = context.newcomers.keys()
        state.hand_over({member.name: member for member in members}, context.successors)
        # A query that was dropped and created again must start empty.
        # So the first call drops the state of new queries, and the second call adds empty state.
        state.adopt({member.name: member for member in members if member.name not in newcomers})
        state.adopt({member.name: member for member in members})
        self.state = state
        self.outputs = [
            WindowOutput(with_system_columns(to_arrow(Schema(member.columns)))) for member in members
        ]
        schema = context.schemas[0]
        self._users: dict[Expr, list[str]] = {}
        for member in members:
            for expr in member.operator.exprs:
                self._users.setdefault(expr, []).append(member.name)
        columns = {expr: f"of {render(expr)}" for expr in self._users}
        self._columns = columns
        self._where = {member.name: conjunction(member.conditions) for member in members}
        self._windows = {member.name: member.operator.session for member in members}
        every = dict.fromkeys(self._where, _every)
        self._selection = TupleSelection(PaneInput(schema, tuple(keys)), self._where, every)
        self._keys = [_key(index) for index in range(len(keys))]
        self._answers = SessionAnswers(members, columns, self._keys, context)
        stored = {TS: pa.int64(), SEQ: pa.int64(), _NUMBER: pa.int64()}
        stored |= {_key(index): arrow_type(key.type) for index, key in enumerate(keys)}
        stored |= {name: arrow_type(expr.type) for expr, name in columns.items()}
        stored |= {_where(where): pa.bool_() for where in self._where.values() if where is not None}
        self._schema = pa.schema(list(stored.items()))
        state.fit(self._schema)
        self._nothing, none = self._schema.empty_table(), np.zeros(0, np.int64)
        self._no_rows = StoredRows(self._nothing, none, none, none)
        self._rows = SessionRows.restored(self._keys, state.pieces)
        # Names of the queries of each pass, by gap.
        self._passes: dict[_SharedPass, dict[int, list[str]]]
        self._open: dict[_SharedPass, OpenSessions]
        self._ends: Int64s  # next end of an open session of each key
        self._oldest: int  # lowest arrival number of a stored row
        self._restart()

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        # Rows arrive in order, so the last row's time is a watermark.
        now = max(watermark, int(rows.column(TS)[-1].as_py())) if rows.num_rows else watermark
        touched = self._rows.add(self._taken(rows) if rows.num_rows else self._nothing)
        keys = self._active_keys(touched, now)
        stored = self._rows.of(keys) if self._rows.linked else self._no_rows
        needed = np.zeros(len(stored.keys), np.bool_)
        found = self._sessions(stored, keys, needed, now)
        results: dict[str, Emission] = {}
        for name, made in self._answers.of(stored, found).items():
            state = self.state.members[name]
            if isinstance(made, SlicemillError):
                self._fail({name: made})
            else:
                results[name] = made, watermark if state.held is None else min(watermark, state.held)
        for name, state in self.state.members.items():
            if state.failure is not None:
                results[name] = SlicemillError(state.failure)
        if self._rows.unlink(stored, needed):
            self._restart()
        self.state.pieces = list(self._rows.rows.pieces)
        return [results[name] for name in self._where]

    def _fail(self, failed: Mapping[str, SlicemillError]) -> None:
        for name, problem in failed.items():
            self.state.members[name].failure = str(problem)
            self._passes = {}

    def _restart(self) -> None:
        """Forget the passes, so that the next micro-batch reads all keys.

        The key numbers have changed.
        """
        self._passes = {}
        first = self._rows.rows.at(np.zeros(1, np.int64)) if self._rows.linked else None
        self._oldest = self.state.taken if first is None else first.column(_NUMBER)[0].as_py()

    def _active_keys(self, touched: Int32s, now: int) -> Int64s:
        """Return the keys with new rows and the keys whose sessions have ended.

        Return all keys if queries have begun or failed since the last micro-batch.
        """
        count = len(self._rows.last)
        if not self._passes:
            self._begin_passes(count)
            return np.arange(count)
        self._ends = extend_array(self._ends, count, END)
        active = self._ends < now
        active[touched] = True
        keys = np.flatnonzero(active)
        if self._rows.is_dense(keys):
            keys = np.arange(count)
        self._ends[keys] = END
        return keys

    def _begin_passes(self, count: int) -> None:
        """Group the queries that have not failed into passes.

        A pass reads the stored rows once, and finds the sessions of all its queries.
        """
        for name, where in self._where.items():
            state = self.state.members[name]
            if state.failure is None:
                # Queries that started before the oldest stored row arrived read all rows in one pass.
                first = state.first if state.first > self._oldest else 0
                session = self._windows[name]
                common = _SharedPass(where, first, replace(session, gap_us=None))
                gap = FOREVER if session.gap_us is None else session.gap_us
                self._passes.setdefault(common, {}).setdefault(gap, []).append(name)
        self._open = {
            common: OpenSessions(np.array(sorted(gaps) if common.session.until is None else [0]), count)
            for common, gaps in self._passes.items()
        }
        self._ends = np.full(count, END)

    def due(self) -> int | None:
        members = self.state.members.values()
        held = [m.held for m in members if m.held is not None and m.failure is None and m.held < FOREVER]
        return min(held) + 1 if held else None

    def _sessions(self, rows: StoredRows, keys: Int64s, needed: Bools, now: int) -> list[PassedSessions]:
        """Return the ended sessions that each pass finds, and mark the rows of open sessions in `needed`."""
        out = []
        for common, members in self._passes.items():
            gaps = sorted(members)
            closed = max(self.state.members[name].closed for names in members.values() for name in names)
            taken = self._read_by(rows, common)
            indices = rows.order if taken is None else rows.order[taken]
            keys_of_rows = rows.keys if taken is None else rows.keys[taken]
            found = self._segment_rows(rows, indices, keys_of_rows, common.session, gaps, now, closed)
            if taken is None:
                needed |= found.is_open
            else:
                needed[taken[found.is_open]] = True
            self._open[common].update(keys, found, self._ends, now)
            for gap, held in zip(gaps, self._open[common].held(now), strict=True):
                for name in members[gap]:
                    state = self.state.members[name]
                    state.closed, state.held = max(state.closed, now), held
            out.append(PassedSessions(indices, found.ended, [members[gap] for gap in gaps]))
        return out

    def _read_by(self, rows: StoredRows, common: _SharedPass) -> Int64s | None:
        """Return the positions of the sorted rows that the queries of a pass read; None for all rows."""
        if not common.first and common.where is None:
            return None
        taken = rows.integers(_NUMBER) >= common.first
        if common.where is not None:
            taken &= _true(rows.column(_where(common.where)))
        return np.flatnonzero(taken[rows.order])

    def _segment_rows(
        self,
        rows: StoredRows,
        indices: Int64s,
        keys: Int64s,
        session: SessionWindow,
        gaps: Sequence[int],
        now: int,
        closed: int,
    ) -> SessionSegments:
        times = rows.integers(TS)[indices]
        close, until = session.close, session.until
        closes = np.zeros(len(indices), np.bool_)
        if close is not None:
            closes = _true(rows.column(self._columns[close]))[indices]
        if until is None:
            return sessions_of_gaps(keys, times, closes, np.array(gaps), now, closed)
        column = rows.column(self._columns[until]).cast(pa.int64())
        known = column.is_valid().to_numpy(zero_copy_only=False)[indices]
        ends = np.where(known, column.fill_null(0).to_numpy()[indices], times)
        return sessions_until(keys, times, ends, closes, now, closed)

    def _taken(self, table: pa.Table) -> pa.Table:
        """Return the new tuples that at least one query selects, with the columns that the state stores."""
        live = [name for name in self._where if self.state.members[name].failure is None]
        selected, failed = self._selection.select(table, live)
        users = {expr: [n for n in names if n in live] for expr, names in self._users.items()}
        found, failed_too = self._selection.arguments(selected, {e: n for e, n in users.items() if n})
        self._fail({**failed_too, **failed})
        count = selected.table.num_rows
        first, self.state.taken = self.state.taken, self.state.taken + count
        columns: dict[str, object] = {
            TS: selected.table.column(TS),
            SEQ: selected.table.column(SEQ),
            _NUMBER: np.arange(first, first + count),
        }
        columns |= {_key(index): to_array(key) for index, key in enumerate(selected.keys)}
        columns |= {self._columns[expr]: column for expr, column in found.items()}
        for name, where in self._where.items():
            if where is not None:
                columns[_where(where)] = self._selection.takes(name, selected)
        arrays = [
            pa.nulls(count, column.type)
            if column.name not in columns
            else _cast(columns[column.name], column)
            for column in self._schema
        ]
        return pa.table(arrays, schema=self._schema)


def session_windows(operator: SessionAggregate | SharedSessions, context: StepContext) -> SessionWindows:
    """Return the execution strategy of a session aggregate of one query or several queries."""
    state = context.state if isinstance(context.state, SessionState) else SessionState()
    if isinstance(operator, SharedSessions):
        return SessionWindows(operator.keys, operator.members, state, context)
    member = SessionMember("", (), operator, context.node.schema.columns)
    return SessionWindows(operator.keys, [member], state, context)


def _every(times: Int64s) -> Bools:
    return np.ones(len(times), np.bool_)


def _true(column: pa.Array) -> Bools:
    found: Bools = column.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _cast(column: object, field: pa.Field) -> pa.Array:
    made = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)
    return to_array(made.cast(field.type))


def _key(index: int) -> str:
    return f"key {index}"


def _where(condition: Expr) -> str:
    return f"where {render(condition)}"
