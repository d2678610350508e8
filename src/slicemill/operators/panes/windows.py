"""Shared windows: aggregates of many queries, computed from common panes.

Each run adds new tuples to panes, emits the windows that have ended, and evicts entries that no window
will read. An error in one query does not stop other queries. A new query aggregates only tuples that
arrive after its start, because entries store the queries that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from slicemill.columns.keys import distinct_keys
from slicemill.errors import SlicemillError
from slicemill.esl.types.expression import Expr
from slicemill.operators.panes.edges import Ints, cut
from slicemill.operators.panes.entries import cells_of, entries_of
from slicemill.operators.panes.members import Member, ValueGroups, Yields
from slicemill.operators.panes.partials import Columns, Partial
from slicemill.operators.panes.selection import PaneInput, Selected, Selection
from slicemill.operators.panes.state import PaneState
from slicemill.operators.panes.view import PaneView, by_key, view_of

# Rows (None: no rows) and the output watermark; or the error of a failed query.
Answer = tuple[pa.Table | None, int] | SlicemillError


class PaneWindows:
    """Pane windows of several queries.

    `conditions` select the tuples of a query; None selects all. Panes are cut at `edges`.
    """

    def __init__(
        self,
        given: PaneInput,
        members: Mapping[str, Member],
        conditions: Mapping[str, Expr | None],
        edges: tuple[tuple[int, int], ...],
        state: PaneState,
    ) -> None:
        self.state = state
        self._members = members
        self._edges = edges
        holds = {name: member.holds for name, member in members.items()}
        self._selection = Selection(given, conditions, holds)
        self._partials: dict[str, Partial] = {}
        self._values: dict[str, Partial] = {}
        for member in members.values():
            known = self._values if isinstance(member, ValueGroups) else self._partials
            known.update((partial.name, partial) for partial in member.partials)

    def run(self, table: pa.Table, until: int) -> list[Answer]:
        if table.num_rows:
            self._take(table)
        ready = [name for name, due in self._dues() if due <= until]
        made = self._answered(ready, until) if ready else {}
        answers: dict[str, Answer] = {}
        for name, member in self._live():
            state = self.state.members[name]
            state.closed = max(state.closed, until)
            held = member.held(state)
            answers[name] = made.get(name), until if held is None else min(until, held)
        if made:
            self.state.release({n: member.since(self.state.members[n]) for n, member in self._live()})
        failures = {name: SlicemillError(state.failure or "") for name, state in self.state.members.items()}
        return [answers.get(name, failures[name]) for name in self._members]

    def due(self) -> int | None:
        return min((due for _, due in self._dues()), default=None)

    def _dues(self) -> list[tuple[str, int]]:
        dues = ((name, member.due(self.state.members[name])) for name, member in self._live())
        return [(name, due) for name, due in dues if due is not None]

    # -- input -----------------------------------------------------------------------------------------

    def _live(self) -> list[tuple[str, Member]]:
        return [(n, m) for n, m in self._members.items() if self.state.members[n].failure is None]

    def _names(self) -> list[str]:
        return [name for name, _ in self._live()]

    def _fail(self, failed: Mapping[str, SlicemillError]) -> None:
        for name, problem in failed.items():
            self.state.members[name].failure = str(problem)

    def _take(self, table: pa.Table) -> None:
        """Add new tuples to entries."""
        selected, failed = self._selection.select(table, self._names())
        self._fail(failed)
        rows = selected.table.num_rows
        if not rows:
            return
        state = self.state
        columns = self._arguments(selected)
        places = state.seen + np.arange(rows)
        panes = cut(selected.table.column("_ts").to_numpy(), self._edges, state.newest)
        lifted = {n: p.lift(columns[n], places) for n, p in self._partials.items() if n in columns}
        seqs = selected.table.column("_seq").to_numpy()
        state.seen += rows
        numbers, patterns = self._put(selected, panes, seqs, lifted)
        if self._values:
            self._take_values(selected.table, panes, numbers, patterns, columns, places)
        for name, member in self._live():
            if isinstance(member, Yields):
                own = self._selection.takes(name, selected)
                member.take(state.members[name], selected.table.filter(pa.array(own)), numbers[own])

    def _put(
        self,
        selected: Selected,
        panes: tuple[Ints, Ints],
        seqs: Ints,
        lifted: Mapping[str, Columns],
    ) -> tuple[Ints, Ints]:
        """Add rows to their panes.

        Return the key number and pattern number of each row.
        """
        state = self.state
        distinct = distinct_keys(selected.keys, selected.table.num_rows)
        numbers = state.keys.number(distinct, selected.keys).astype(np.int64)
        found, names = self._selection.patterns(selected, self._names())
        patterns = np.array([state.pattern(members) for members in names], np.int64)[found]
        state.newest = int(panes[0][-1])
        self._note(panes, found, names)
        if any(not isinstance(member, ValueGroups) for _, member in self._live()):
            cells = cells_of(distinct.codes, len(distinct.values), found, len(names))
            entries, first = entries_of(panes, cells, seqs, lifted, self._partials)
            entries = {**entries, "key": numbers[first], "pattern": patterns[first]}
            state.entries.append(entries, self._partials)
        return numbers, patterns

    def _arguments(self, selected: Selected) -> dict[str, pa.Array]:
        """Return the argument column of each partial."""
        users: dict[Expr, list[str]] = {}
        for name, member in self._live():
            for expr in dict.fromkeys(partial.expr for partial in member.partials):
                users.setdefault(expr, []).append(name)
        found, failed = self._selection.arguments(selected, users)
        self._fail(failed)
        partials = {**self._partials, **self._values}
        return {name: found[partial.expr] for name, partial in partials.items() if partial.expr in found}

    def _take_values(
        self,
        table: pa.Table,
        panes: tuple[Ints, Ints],
        numbers: Ints,
        patterns: Ints,
        columns: Mapping[str, pa.Array],
        places: Ints,
    ) -> None:
        wanted = np.array(
            [any(isinstance(self._members.get(n), ValueGroups) for n in p) for p in self.state.patterns]
        )
        rows = np.flatnonzero(wanted[patterns])
        if not len(rows):
            return
        made: dict[str, object] = {
            "start": np.repeat(panes[0], np.diff(panes[1]))[rows],
            "key": numbers[rows],
            "pattern": patterns[rows],
            "seq": table.column("_seq").to_numpy()[rows],
            "rows": np.ones(len(rows), np.int64),
        }
        for name, partial in self._values.items():
            if name in columns:
                lifted = partial.lift(columns[name].take(pa.array(rows)), places[rows])
                made |= {f"{name}|{field}": values for field, values in lifted.items()}
        self.state.values.append(made, self._values)

    def _note(self, panes: tuple[Ints, Ints], patterns: Ints, names: Sequence[frozenset[str]]) -> None:
        """Update the first and last pane with tuples, for each query."""
        starts, borders = panes
        for number, taking in enumerate(names):
            rows = np.flatnonzero(patterns == number) if len(names) > 1 else np.array([0, len(patterns) - 1])
            first, last = (
                int(starts[np.searchsorted(borders, row, side="right") - 1]) for row in (rows[0], rows[-1])
            )
            for name in taking:
                member = self.state.members[name]
                member.oldest = first if member.oldest is None else member.oldest
                member.newest = last if member.newest is None else max(member.newest, last)

    # -- output ----------------------------------------------------------------------------------------

    def _answered(self, ready: Sequence[str], until: int) -> dict[str, pa.Table]:
        """Return the output of these queries.

        Queries with the same patterns share a view.
        """
        alike: dict[tuple[bool, tuple[bool, ...]], list[str]] = {}
        for name in ready:
            by_value = isinstance(self._members[name], ValueGroups)
            signature = tuple(name in pattern for pattern in self.state.patterns)
            alike.setdefault((by_value, signature), []).append(name)
        answers: dict[str, pa.Table] = {}
        stored: dict[bool, Columns] = {}
        for (by_value, signature), names in alike.items():
            store = self.state.values if by_value else self.state.entries
            partials = self._values if by_value else self._partials
            if by_value not in stored:
                # Without group keys there is one key, number 0, which may not be stored yet.
                stored[by_value] = by_key(store.all(partials), max(len(self.state.keys), 1))
            since = min(self._members[n].since(self.state.members[n]) for n in names)
            selected = np.array(signature, np.bool_)
            view = view_of(stored[by_value], selected, since, partials, store.single)
            for name in names:
                try:
                    answers[name] = self._answer(name, view, until)
                except SlicemillError as problem:
                    self._fail({name: problem})
        return answers

    def _answer(self, name: str, view: PaneView, until: int) -> pa.Table:
        member, state = self._members[name], self.state.members[name]
        if isinstance(member, Yields):
            return member.answer(view, state, until)
        return member.answer(view, self.state.keys, state, until)
