"""Chain of binary joins for three or more streams with outer joins.

    a ── LEFT ── LEFT ── …
    b ────┘       │
    c ────────────┘

A joined row carries the timestamps of its input rows, `a._ts` and `b._ts`. `_until` is the first time at
which one of these rows leaves its window. After it, the joined row finds no more matches. `_since` is the
timestamp of the newest input row minus the window of the next stream.

Any two input rows of a result are in each other's windows, as in a single n-way join. This depends only on
their timestamps, so the order in which joined rows arrive does not matter. An unmatched row is emitted late,
at the end of its window, so later joins keep their rows for that delay too. Inner joins at the beginning of
FROM stay a single join of all their streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slicemill.catalog.expressions import (
    Call,
    ColumnRef,
    Expr,
    Literal,
    as_in_input,
    columns_of,
    conjunction,
    conjuncts,
)
from slicemill.catalog.queries import ExpiryColumn, FrameUnit, JoinKind, QueryInput, SelectItem, Window
from slicemill.operators.graph import Node
from slicemill.operators.join.spec import WindowJoin
from slicemill.operators.specs import Filter, Project
from slicemill.plan.changelog_nodes import GraphBuilder
from slicemill.types import BOOLEAN, INTERVAL, TIMESTAMP, Column, Schema

# alias of the joined rows, whose columns keep the aliases of the streams
JOINED = ""
_UNTIL, _SINCE = Column("_until", TIMESTAMP), Column("_since", TIMESTAMP)
_LEFT_ONLY = (JoinKind.SEMI, JoinKind.ANTI)
_KEEPS_WHERE = (JoinKind.INNER, JoinKind.LEFT, *_LEFT_ONLY)


def join_chain(
    builder: GraphBuilder,
    streams: Sequence[QueryInput],
    inputs: Sequence[Node],
    pending: list[Expr],
    name: str,
) -> Node:
    """Add the binary joins of a join with outer joins to the query graph, and return the last join.

    Each WHERE condition is evaluated as early as the outer joins after it allow.
    """
    first = next(index for index, entry in enumerate(streams) if entry.kind is not JoinKind.INNER)
    chain = _Chain(builder, name, list(zip(streams, inputs, strict=True)), pending)
    node = chain.inner(first) if first > 1 else chain.begun()
    for index in range(first, len(streams)):
        node = chain.step(node, index)
    return node


@dataclass
class _Chain:
    builder: GraphBuilder
    name: str
    streams: list[tuple[QueryInput, Node]]
    # WHERE conditions that no graph node evaluates yet
    pending: list[Expr]
    # streams whose columns the joined rows have so far
    members: list[QueryInput] = field(default_factory=list)
    # streams in `members` whose columns no outer join fills with NULLs
    always: list[QueryInput] = field(default_factory=list)
    # maximum delay of a joined row after its newest input row, in microseconds
    late_us: int = 0

    def begun(self) -> Node:
        """Return the node of the first stream, filtered by WHERE conditions where outer joins allow it."""
        entry, node = self.streams[0]
        self.members, self.always = [entry], [entry]
        return self._filter_input(node, entry) if self._keeps_where(1) else node

    def inner(self, count: int) -> Node:
        """Return a graph node with the inner join of the first `count` streams in FROM."""
        streams = self.streams[:count]
        self.members = [entry for entry, _ in streams]
        self.always = list(self.members)
        schema = Schema(
            tuple(c for entry, node in streams for c in _qualify_columns(entry, node))
            + tuple(_time_of(entry) for entry in self.members)
        )
        on = [part for entry in self.members for part in conjuncts(entry.on)]
        on += self._where(schema) if self._keeps_where(count) else ()
        join = WindowJoin(
            tuple(entry.alias for entry in self.members),
            tuple(_window(entry) for entry in self.members),
            conjunction(tuple(on)),
            member_times=True,
        )
        inputs = tuple(node for _, node in streams)
        return self.builder.add(f"{self.name}: join", join, inputs, schema)

    def step(self, left: Node, index: int) -> Node:
        """Join the rows of the chain so far with the stream at position `index` in FROM."""
        entry, right = self.streams[index]
        alone = len(self.members) == 1 and _time_of(self.members[0]).name not in left.schema.names
        selects = self._keeps_where(index + 1)
        if entry.kind is JoinKind.RIGHT and selects:
            right = self._filter_input(right, entry)
        on = list(conjuncts(entry.on))
        if alone:
            first = self.members[0]
            columns = (*_qualify_columns(first, left), *_qualify_columns(entry, right), _time_of(first))
            alias, windows = first.alias, (_window(first), _window(entry))
        else:
            left = self._with_ends(left, entry)
            columns = (*left.schema.columns, *_qualify_columns(entry, right), Column("_joined", TIMESTAMP))
            kept = Window(FrameUnit.RANGE, _length(entry) + self.late_us)
            lives = Window(FrameUnit.RANGE, self._reach_us(), expires=ExpiryColumn(_UNTIL.name))
            alias, windows = JOINED, (lives, kept)
            if self.late_us:
                on.append(Call(">", (ColumnRef.to(_time_of(entry)), ColumnRef.to(_SINCE)), BOOLEAN))
        schema = Schema((*columns, _time_of(entry)))
        if entry.kind is JoinKind.INNER and selects:
            on += self._where(schema)
        join = WindowJoin(
            (alias, entry.alias), windows, conjunction(tuple(on)), member_times=True, kind=entry.kind
        )
        node = self.builder.add(f"{self.name}: join {entry.alias}", join, (left, right), schema)
        self._count(entry)
        if index + 1 == len(self.streams):
            return node
        where = self._where(self._visible(node)) if selects else ()
        condition = conjunction(tuple(where))
        if condition is not None:
            node = self.builder.add(
                f"{self.name}: where joined with {entry.alias}", Filter(condition), (node,), node.schema
            )
        return node

    def _count(self, entry: QueryInput) -> None:
        """Update the streams of the joined rows, and the maximum delay of joined rows.

        An unmatched row is emitted when the windows of its input rows end, or one microsecond after its
        arrival if they have ended before. A semi join can have the same delay, because it emits a row at its
        first match.
        """
        waits = max(self.late_us + 1, self._reach_us())
        if entry.kind is JoinKind.RIGHT:
            self.late_us += _length(entry)
        elif entry.kind is JoinKind.FULL:
            self.late_us = max(waits, self.late_us + _length(entry))
        elif entry.kind is not JoinKind.INNER:
            self.late_us = waits
        if entry.kind not in _LEFT_ONLY:
            self.members.append(entry)
        if entry.kind in (JoinKind.RIGHT, JoinKind.FULL):
            self.always = []
        if entry.kind in (JoinKind.INNER, JoinKind.RIGHT):
            self.always.append(entry)

    def _reach_us(self) -> int:
        """Return the number of microseconds for which a joined row can find matches.

        The time is counted from the newest input row of the joined row.
        """
        if self.always:
            return min(map(_length, self.always))
        return max(map(_length, self.members))

    def _with_ends(self, node: Node, entry: QueryInput) -> Node:
        """Add the columns `_until` and `_since`: time bounds of rows that match a joined row."""
        visible = self._visible(node)
        times = [ColumnRef.to(_time_of(member)) for member in self.members]
        ends = [
            Call("+", (time, _interval(_length(member))), TIMESTAMP)
            for time, member in zip(times, self.members, strict=True)
        ]
        added: list[tuple[Column, Expr]] = [(_UNTIL, _one("least", ends))]
        if self.late_us:
            newest = _one("greatest", times)
            added.append((_SINCE, Call("-", (newest, _interval(_length(entry))), TIMESTAMP)))
        items = [SelectItem(column.name, ColumnRef.to(column)) for column in visible]
        items += [SelectItem(column.name, expr) for column, expr in added]
        schema = Schema((*visible.columns, *(column for column, _ in added)))
        return self.builder.add(f"{self.name}: before {entry.alias}", Project(tuple(items)), (node,), schema)

    def _visible(self, node: Node) -> Schema:
        """Return the columns of the streams joined so far, including the timestamps of their rows."""
        aliases = {member.alias for member in self.members}
        return Schema(tuple(c for c in node.schema if c.origin is not None and c.origin.input in aliases))

    def _keeps_where(self, index: int) -> bool:
        """Return True if WHERE conditions may run before the joins with stream `index` and later streams.

        This is the case if none of these joins is a RIGHT or FULL join.
        """
        return all(entry.kind in _KEEPS_WHERE for entry, _ in self.streams[index:])

    def _where(self, schema: Schema) -> list[Expr]:
        ready = [part for part in self.pending if columns_of(part) <= set(schema.names)]
        self.pending[:] = [part for part in self.pending if part not in ready]
        return ready

    def _filter_input(self, node: Node, entry: QueryInput) -> Node:
        condition = conjunction(tuple(self._where(Schema(_qualify_columns(entry, node)))))
        if condition is None:
            return node
        where = Filter(as_in_input(condition))
        return self.builder.add(f"{self.name}: where {entry.alias}", where, (node,), node.schema)


def _window(entry: QueryInput) -> Window:
    assert entry.window is not None, "the binder asks for one"
    return entry.window


def _length(entry: QueryInput) -> int:
    extent = _window(entry).extent
    assert extent is not None, "the binder asks for a window that ends"
    return extent


def _qualify_columns(entry: QueryInput, node: Node) -> tuple[Column, ...]:
    return tuple(column.of(entry.alias) for column in node.schema)


def _time_of(entry: QueryInput) -> Column:
    return Column("_ts", TIMESTAMP).of(entry.alias)


def _interval(length_us: int) -> Literal:
    return Literal(length_us, INTERVAL)


def _one(function: str, values: Sequence[Expr]) -> Expr:
    """Return the only value, or a call of `function` (least or greatest) on several values."""
    return values[0] if len(values) == 1 else Call(function, tuple(values), TIMESTAMP)
