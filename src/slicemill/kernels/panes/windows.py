"""Shared windows: many aggregates over one stream, from one set of panes.

Each run takes the new tuples in, answers the windows that have ended, and releases what no window will need.
A member that fails takes no other with it. What a member counts begins with the first tuple that comes in
when it is there: entries know their members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.errors import SlicemillError
from slicemill.esl.expression import Expr
from slicemill.esl.types import Schema
from slicemill.execution.expressions import ExpressionError
from slicemill.kernels.expressions import compile_many
from slicemill.kernels.keys import distinct_keys
from slicemill.kernels.panes.edges import Ints, cut
from slicemill.kernels.panes.entries import entries_of
from slicemill.kernels.panes.members import Member, ValueGroups, Yields
from slicemill.kernels.panes.partials import Columns, Partial
from slicemill.kernels.panes.state import PaneState
from slicemill.kernels.panes.view import View, by_key, view_of
from slicemill.kernels.stateless import WORD_BITS, compile_masks

# Rows, None for none, and how far they are complete; or why there are no more.
Answer = tuple[pa.Table | None, int] | SlicemillError
Selected = NDArray[np.bool_]

_END = 2**63 - 1


@dataclass(frozen=True)
class Input:
    """What the members have in common: the schema of the stream, its keys, and which of them are ours."""

    schema: Schema
    keys: tuple[Expr, ...]
    bucket: int = 0
    buckets: int = 1


class SharedWindows:
    """`conditions` select the tuples of a member, None takes all; `edges` are those of all windows."""

    def __init__(
        self,
        given: Input,
        members: Mapping[str, Member],
        conditions: Mapping[str, Expr | None],
        edges: tuple[tuple[int, int], ...],
        state: PaneState,
    ) -> None:
        self.state = state
        self._given = given
        self._members = members
        self._edges = edges
        self._distinct = list(dict.fromkeys(c for c in conditions.values() if c is not None))
        self._place = {n: None if c is None else self._distinct.index(c) for n, c in conditions.items()}
        self._masks = compile_masks(self._distinct, given.schema)
        self._keys = compile_many(given.keys, given.schema)
        self._partials: dict[str, Partial] = {}
        self._values: dict[str, Partial] = {}
        for member in members.values():
            known = self._values if isinstance(member, ValueGroups) else self._partials
            known.update((partial.name, partial) for partial in member.partials)

    def run(self, table: pa.Table, until: int) -> list[Answer]:
        if table.num_rows:
            self._take(table)
        answers: dict[str, Answer] = {}
        ready = []
        for name, member in self._live():
            due = member.due(self.state.members[name])
            if due is not None and due <= until:
                ready.append(name)
        if ready:
            answers = self._answered(ready, until)
        for name, member in self._live():
            state = self.state.members[name]
            state.closed = max(state.closed, until) if until > -_END else state.closed
            if name not in answers:
                answers[name] = None, until
            held = member.held(state)
            made = answers[name]
            if isinstance(made, tuple):
                answers[name] = made[0], until if held is None else min(until, held)
        if ready:
            self.state.release(
                {name: member.since(self.state.members[name]) for name, member in self._live()}
            )
        failures = {name: SlicemillError(state.failure or "") for name, state in self.state.members.items()}
        return [answers.get(name, failures[name]) for name in self._members]

    def due(self) -> int | None:
        dues = (member.due(self.state.members[name]) for name, member in self._live())
        return min((due for due in dues if due is not None), default=None)

    # -- taking tuples in ------------------------------------------------------------------------------

    def _live(self) -> list[tuple[str, Member]]:
        return [(n, m) for n, m in self._members.items() if self.state.members[n].failure is None]

    def _fail(self, name: str, problem: Exception) -> None:
        self.state.members[name].failure = str(problem)

    def _take(self, table: pa.Table) -> None:
        """Put new tuples into entries."""
        table, words = self._selected(table)
        table, words, keys = self._with_keys(table, words)
        if not table.num_rows:
            return
        state = self.state
        distinct = distinct_keys(keys, table.num_rows)
        numbers = state.keys.number(distinct, keys).astype(np.int64)
        patterns, names = self._patterns(words, table.num_rows)
        ids = np.array([state.pattern(members) for members in names], np.int64)
        panes = cut(table.column("_ts").to_numpy(), self._edges, state.newest)
        columns = self._arguments(table, words)
        places = state.seen + np.arange(table.num_rows)
        state.seen += table.num_rows
        state.newest = int(panes[0][-1])
        self._note(panes, patterns, names)
        if any(not isinstance(member, ValueGroups) for _, member in self._live()):
            cells = _cells(distinct.codes, len(distinct.values), patterns, len(names))
            lifted = {n: p.lift(columns[n], places) for n, p in self._partials.items() if n in columns}
            arrival = table.column("_arr").to_numpy()
            entries, first = entries_of(panes, cells, arrival, lifted, self._partials)
            entries = {**entries, "key": numbers[first], "pattern": ids[patterns[first]]}
            state.entries.append(entries, self._partials)
        if self._values:
            self._take_values(table, panes, numbers, ids[patterns], columns, places)
        for name, member in self._live():
            if isinstance(member, Yields):
                own = self._satisfied(name, words, table.num_rows)
                member.take(state.members[name], table.filter(pa.array(own)), numbers[own])

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
            "arrival": table.column("_arr").to_numpy()[rows],
            "rows": np.ones(len(rows), np.int64),
        }
        for name, partial in self._values.items():
            if name in columns:
                lifted = partial.lift(columns[name].take(pa.array(rows)), places[rows])
                made |= {f"{name}|{field}": values for field, values in lifted.items()}
        self.state.values.append(made, self._values)

    def _selected(self, table: pa.Table) -> tuple[pa.Table, NDArray[np.uint64]]:
        """Tuples that some member takes, and which of the conditions they satisfy."""
        masks = self._masks(table)
        for name, _ in self._live():
            if (place := self._place[name]) in masks.errors:
                self._fail(name, masks.errors[place])
        if any(self._place[name] is None for name, _ in self._live()):
            return table, masks.words
        return self._only(table, masks.words, np.asarray(masks.words.any(axis=0)))

    @staticmethod
    def _only(
        table: pa.Table, words: NDArray[np.uint64], rows: Selected
    ) -> tuple[pa.Table, NDArray[np.uint64]]:
        return (table, words) if rows.all() else (table.filter(pa.array(rows)), words[:, rows])

    def _satisfied(self, name: str, words: NDArray[np.uint64], rows: int) -> Selected:
        place = self._place[name]
        if place is None:
            return np.ones(rows, np.bool_)
        bit = np.uint64(1 << place % WORD_BITS)
        return np.asarray(words[place // WORD_BITS] & bit != 0)

    def _with_keys(
        self, table: pa.Table, words: NDArray[np.uint64]
    ) -> tuple[pa.Table, NDArray[np.uint64], list[pa.ChunkedArray]]:
        """The tuples of our bucket, with their keys."""
        keys = self._keys(table)
        if any(isinstance(key, ExpressionError) for key in keys):
            # Some member's tuples have a key that cannot be computed; the others' may have none such.
            for name, _ in self._live():
                own = table.filter(pa.array(self._satisfied(name, words, table.num_rows)))
                for key in self._keys(own):
                    if isinstance(key, ExpressionError):
                        self._fail(name, key)
            alive = [self._satisfied(name, words, table.num_rows) for name, _ in self._live()]
            rows = np.any(alive, axis=0) if alive else np.zeros(table.num_rows, np.bool_)
            table, words = self._only(table, words, rows)
            keys = self._keys(table)
        columns = [key for key in keys if isinstance(key, pa.ChunkedArray)]
        if self._given.buckets > 1 and columns:
            buckets = distinct_keys(columns, table.num_rows).buckets(self._given.buckets)
            ours = buckets == self._given.bucket
            table, words = self._only(table, words, ours)
            columns = [column.filter(pa.array(ours)) for column in columns]
        return table, words, columns

    def _patterns(self, words: NDArray[np.uint64], rows: int) -> tuple[Ints, list[frozenset[str]]]:
        """The number of each tuple's pattern, and the members that each takes."""
        found = distinct_keys([pa.array(word) for word in words], rows)
        live = [name for name, _ in self._live()]
        names = []
        for value in found.values:
            bits = sum(word << (WORD_BITS * i) for i, word in enumerate(_as_tuple(value)))
            taking = (n for n in live if (place := self._place[n]) is None or bits >> place & 1)
            names.append(frozenset(taking))
        return found.codes, names

    def _arguments(self, table: pa.Table, words: NDArray[np.uint64]) -> dict[str, pa.Array]:
        """The column that each partial is made of."""
        partials = {**self._partials, **self._values}
        exprs = list(dict.fromkeys(partial.expr for partial in partials.values()))
        found: dict[Expr, pa.Array] = {}
        for expr, outcome in zip(exprs, compile_many(exprs, self._given.schema)(table), strict=True):
            if isinstance(outcome, ExpressionError):
                outcome = self._argument_where_needed(expr, table, words)
            if outcome is not None:
                found[expr] = outcome.combine_chunks()
        return {name: found[p.expr] for name, p in partials.items() if p.expr in found}

    def _argument_where_needed(
        self, expr: Expr, table: pa.Table, words: NDArray[np.uint64]
    ) -> pa.ChunkedArray | None:
        """An argument that fails on some tuple, for the members that do not take that tuple."""
        evaluate = compile_many([expr], self._given.schema)
        needed = np.zeros(table.num_rows, np.bool_)
        for name, member in self._live():
            if all(partial.expr != expr for partial in member.partials):
                continue
            own = self._satisfied(name, words, table.num_rows)
            (outcome,) = evaluate(table.filter(pa.array(own)))
            if isinstance(outcome, ExpressionError):
                self._fail(name, outcome)
            else:
                needed |= own
        (outcome,) = evaluate(table.filter(pa.array(needed)))
        if isinstance(outcome, ExpressionError) or not needed.any():
            return None
        return outcome.take(pa.array(np.cumsum(needed) - 1, mask=~needed))

    def _note(self, panes: tuple[Ints, Ints], patterns: Ints, names: Sequence[frozenset[str]]) -> None:
        """Tell members of the first and the last pane that has tuples of theirs."""
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

    # -- answering -------------------------------------------------------------------------------------

    def _answered(self, ready: Sequence[str], until: int) -> dict[str, Answer]:
        """What these members give; those that take the same entries use one view."""
        alike: dict[tuple[bool, tuple[bool, ...]], list[str]] = {}
        for name in ready:
            by_value = isinstance(self._members[name], ValueGroups)
            signature = tuple(name in pattern for pattern in self.state.patterns)
            alike.setdefault((by_value, signature), []).append(name)
        answers: dict[str, Answer] = {}
        stored: dict[bool, Columns] = {}
        for (by_value, signature), names in alike.items():
            store = self.state.values if by_value else self.state.entries
            partials = self._values if by_value else self._partials
            if by_value not in stored:
                # A stream without keys has one, which no run may have numbered yet.
                stored[by_value] = by_key(store.all(partials), max(len(self.state.keys), 1))
            since = min(self._members[n].since(self.state.members[n]) for n in names)
            selected = np.array(signature, np.bool_)
            view = view_of(stored[by_value], selected, since, partials, store.single)
            for name in names:
                try:
                    answers[name] = self._answer(name, view, until), until
                except SlicemillError as problem:
                    self._fail(name, problem)
        return answers

    def _answer(self, name: str, view: View, until: int) -> pa.Table:
        member, state = self._members[name], self.state.members[name]
        if isinstance(member, Yields):
            return member.answer(view, state, until)
        return member.answer(view, self.state.keys, state, until)


def _as_tuple(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _cells(codes: Ints, n_codes: int, patterns: Ints, n_patterns: int) -> tuple[Ints, int]:
    """One number for each combination of key and pattern among some rows, and how many there are."""
    if n_patterns == 1:
        return codes, n_codes
    both = distinct_keys([pa.array(codes), pa.array(patterns)], len(codes))
    return both.codes, len(both.values)
