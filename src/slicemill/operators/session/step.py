"""Step of session aggregates for all queries of one stream and key.

Rows of open sessions are stored once and sorted by key in each run. Queries that read the same rows find
their sessions in one pass, for any gaps (`operators.session.state`). Ended sessions are ranges of
neighbouring rows, over which window kernels compute the aggregates of all queries
(`operators.session.answers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from slicemill.catalog.expressions import Expr, conjunction
from slicemill.catalog.queries import SessionWindow
from slicemill.columns.arrow_schema import SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.keys import distinct_keys, to_array
from slicemill.columns.pieces import keep_needed
from slicemill.columns.ranges import by_partition
from slicemill.errors import SlicemillError
from slicemill.functions.render import render
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.operators.session.answers import PassedSessions, SessionAnswers, StoredRows
from slicemill.operators.session.spec import SessionAggregate, SessionMember, SharedSessions
from slicemill.operators.session.state import (
    FOREVER,
    SessionSegments,
    SessionState,
    sessions_of_gaps,
    sessions_until,
    to_the_end,
)
from slicemill.operators.step import StepContext
from slicemill.operators.window.panes import PaneInput, TupleSelection
from slicemill.operators.window.step import Emission, WindowOutput
from slicemill.types import Schema

_NUMBER = "_number"  # of a row, in the order of arrival


@dataclass(frozen=True, slots=True)
class _SharedPass:
    """Properties common to queries whose sessions are found in one pass."""

    where: Expr | None
    first: int
    closed: int
    session: SessionWindow


class SessionWindows:
    """Strategy of the sessions of all queries.

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
        # Adopt twice, because a query that is dropped and created again must start empty.
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
        self._apart_from_gaps = {n: replace(window, gap_us=None) for n, window in self._windows.items()}
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

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        table, until = rows, watermark
        # Rows arrive in order, so the last row's time is a watermark.
        now = max(until, int(table.column(TS)[-1].as_py())) if table.num_rows else until
        new = self._taken(table) if table.num_rows else self._schema.empty_table()
        stored = self._sorted(pa.concat_tables([*(piece.table for piece in self.state.pieces), new]))
        needed = np.zeros(len(stored.order), np.bool_)
        found = self._sessions(stored, needed, now)
        results: dict[str, Emission] = {}
        for name, made in self._answers.of(stored, found).items():
            state = self.state.members[name]
            if isinstance(made, SlicemillError):
                state.failure = str(made)
            else:
                results[name] = made, until if state.held is None else min(until, state.held)
        for name, state in self.state.members.items():
            if state.failure is not None:
                results[name] = SlicemillError(state.failure)
        behind = to_the_end(stored.order, stored.codes, needed)
        self.state.pieces = keep_needed(self.state.pieces, new, behind, exactly=True)
        return [results[name] for name in self._where]

    def due(self) -> int | None:
        members = self.state.members.values()
        held = [m.held for m in members if m.held is not None and m.failure is None and m.held < FOREVER]
        return min(held) + 1 if held else None

    def _sessions(self, rows: StoredRows, needed: Bools, now: int) -> list[PassedSessions]:
        """Return the ended sessions of each pass, and mark needed rows."""
        together: dict[_SharedPass, list[str]] = {}
        oldest = int(rows.integers(_NUMBER)[0]) if len(rows.order) else self.state.taken
        for name, where in self._where.items():
            state = self.state.members[name]
            if state.failure is None:
                # Queries older than the oldest stored row read all rows, so they share one pass.
                first = state.first if state.first > oldest else 0
                common = _SharedPass(where, first, state.closed, self._apart_from_gaps[name])
                together.setdefault(common, []).append(name)
        out = []
        for common, names in together.items():
            indices = self._indices(rows, common)
            gaps = sorted({self._gap(name) for name in names})
            found = self._segment_rows(rows, indices, common, gaps, now)
            needed[indices[found.is_open]] = True
            members: list[list[str]] = [[] for _ in gaps]
            for name in names:
                which = gaps.index(self._gap(name))
                state = self.state.members[name]
                state.closed, state.held = max(state.closed, now), found.held[which]
                members[which].append(name)
            out.append(PassedSessions(indices, found.ended, members))
        return out

    def _gap(self, name: str) -> int:
        gap = self._windows[name].gap_us
        return FOREVER if gap is None else gap

    def _indices(self, rows: StoredRows, common: _SharedPass) -> Int64s:
        """Return the positions of the sorted rows that these queries read."""
        if not common.first and common.where is None:
            return rows.order
        taken = rows.integers(_NUMBER) >= common.first
        if common.where is not None:
            taken &= _true(rows.column(_where(common.where)))
        return rows.order[taken[rows.order]]

    def _segment_rows(
        self, rows: StoredRows, indices: Int64s, common: _SharedPass, gaps: Sequence[int], now: int
    ) -> SessionSegments:
        keys, times = rows.codes[indices], rows.integers(TS)[indices]
        close, until = common.session.close, common.session.until
        closes = np.zeros(len(indices), np.bool_)
        if close is not None:
            closes = _true(rows.column(self._columns[close]))[indices]
        if until is None:
            return sessions_of_gaps(keys, times, closes, np.array(gaps), now, common.closed)
        column = rows.column(self._columns[until]).cast(pa.int64())
        known = column.is_valid().to_numpy(zero_copy_only=False)[indices]
        ends = np.where(known, column.fill_null(0).to_numpy()[indices], times)
        return sessions_until(keys, times, ends, closes, now, common.closed)

    def _taken(self, table: pa.Table) -> pa.Table:
        """Return the new tuples that some query selects, in stored form."""
        live = [name for name in self._where if self.state.members[name].failure is None]
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

    def _sorted(self, table: pa.Table) -> StoredRows:
        found = distinct_keys([to_array(table.column(name)) for name in self._keys], table.num_rows)
        order, _, _ = by_partition(found.codes.astype(np.int32), max(len(found.values), 1))
        return StoredRows(table, order, found.codes)


def session_windows(operator: SessionAggregate | SharedSessions, context: StepContext) -> SessionWindows:
    """Return the strategy of one query or of several queries."""
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
