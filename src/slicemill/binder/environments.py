"""Resolution of names and calls in a continuous or temporal SELECT.

A call that is not allowed in its clause is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp

from slicemill.binder import sub_queries
from slicemill.binder import windows as durations
from slicemill.binder.calls import (
    ResolvedCall,
    callable_names,
    check_call_windows,
    function_call,
    is_aggregate,
    read_field,
    resolve_calls,
    single_column,
)
from slicemill.binder.changelog import rank_function_of
from slicemill.binder.context import BrokenDependency, Context
from slicemill.binder.expressions import bind, bind_key, order_keys
from slicemill.binder.scope import Scope
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.expressions import ColumnRef, Expr, walk
from slicemill.catalog.queries import AggregateCall, FrameUnit, Rank, RelationInput, Window, WindowCall
from slicemill.errors import did_you_mean
from slicemill.functions.signatures import ELSEWHERE
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar.windows import RANKS
from slicemill.sql.nodes import child, span_of
from slicemill.types import BIGINT, TIMESTAMP, Column

WINDOW_BOUNDS = ("window_start", "window_end")


@dataclass(slots=True)
class SelectEnvironment:
    """Name resolution that collects the aggregates and window calls of one SELECT.

    `place` names the clause being bound if aggregates are not allowed there, and is empty otherwise.
    `queries_allowed` is set in clauses that read columns of the input, because sub-queries over tables are
    computed before aggregates.
    """

    context: Context
    scope: Scope
    time_columns: frozenset[str] = frozenset()
    place: str = ""
    windows_allowed: bool = True
    bounds_allowed: bool = False
    resolved: dict[str, ResolvedCall] = field(default_factory=dict)
    window_calls: dict[str, WindowCall] = field(default_factory=dict)
    rank: Rank | None = None
    queries_allowed: bool = False
    _columns: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    _asked: dict[str, RelationInput] = field(default_factory=dict)

    @property
    def aggregates(self) -> tuple[AggregateCall, ...]:
        return tuple(
            AggregateCall(r.name, r.arguments, r.distinct, r.columns) for r in self.resolved.values()
        )

    def call_columns(self) -> frozenset[str]:
        """Return the names of the columns that aggregates and window calls provide."""
        columns = [c for call in self.resolved.values() for c in call.columns]
        columns += [c for call in self.window_calls.values() for c in call.columns]
        columns += [self.rank.column] if self.rank is not None else []
        return frozenset(column.name for column in columns) | frozenset(WINDOW_BOUNDS)

    @contextmanager
    def use_scope(self, scope: Scope) -> Iterator[None]:
        """Resolve names in another scope within a with-block."""
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    def column(self, node: exp.Column) -> Expr:
        return self.scope.resolve(node)

    def call_names(self) -> list[str]:
        return callable_names(self.context.catalog)

    def call(self, node: exp.Anonymous) -> Expr | None:
        name = node.name.lower()
        if name in WINDOW_BOUNDS and not node.expressions:
            if not self.bounds_allowed:
                raise StatementError(
                    f"{name}() belongs to aggregates over a sliding window of FROM",
                    span_of(node),
                    "write FROM stream [RANGE … SLIDE …] and GROUP BY",
                )
            return ColumnRef(name, TIMESTAMP)
        if name == "valid":
            raise StatementError(
                "VALID belongs to temporal queries",
                span_of(node),
                "write FROM stream (attributes) AS S RANGE … SLIDES …",
            )
        if not is_aggregate(name, self.context.catalog):
            return function_call(node, self.context, self)
        return single_column(node, self._aggregate(node))

    def _aggregate(self, node: exp.Anonymous) -> tuple[Column, ...]:
        """Resolve an aggregate call; return the columns with its results."""
        if self.place:
            hint = "use HAVING" if self.place == "WHERE" else "compute it in a stream of its own first"
            raise StatementError(f"an aggregate cannot stand in {self.place}", span_of(node), hint)
        text = to_esl(node)
        if text not in self._columns:
            found = resolve_calls(node, self._arguments(node), self.context.catalog)
            self.resolved |= {one.columns[0].name: one for one in found}
            self._columns[text] = tuple(column for one in found for column in one.columns)
        return self._columns[text]

    def _arguments(self, node: exp.Anonymous) -> list[Expr]:
        before, self.place = self.place, "the argument of an aggregate"
        try:
            return [bind(a, self) for a in node.expressions if not isinstance(a, exp.Star)]
        finally:
            self.place = before

    def field(self, node: exp.Dot) -> Expr:
        return read_field(node, self.returned_columns(node.this))

    def returned_columns(self, node: exp.Expression) -> tuple[Column, ...] | None:
        """Return the columns with the results of an aggregate or window call, or None."""
        if isinstance(node, nodes.Over):
            return self._window_call(node)
        if isinstance(node, exp.Anonymous) and is_aggregate(node.name, self.context.catalog):
            return self._aggregate(node)
        return None

    def over(self, node: nodes.Over) -> Expr:
        columns = self._window_call(node)
        if len(columns) > 1:
            raise StatementError(
                "this aggregate returns several columns", span_of(node), "put it alone into the select list"
            )
        return ColumnRef.to(columns[0])

    def _window_call(self, node: nodes.Over) -> tuple[Column, ...]:
        """Resolve a call with OVER; return the columns with its results."""
        call = node.this
        if call.name.lower() in RANKS:
            return (self._rank(node).column,)
        if not is_aggregate(call.name, self.context.catalog):
            if call.name.lower() in self.context.broken:
                raise BrokenDependency
            self.context.refuse_later(call.name, span_of(call))
            near = did_you_mean(call.name, self.call_names())
            hint = ELSEWHERE.get(call.name.lower()) or near or "OVER goes with aggregates"
            raise StatementError(f"there is no aggregate {call.name}", span_of(call), hint)
        if self.place or not self.windows_allowed:
            place = self.place or "this query"
            raise StatementError(
                f"OVER cannot stand in {place}", span_of(node), "compute it in a stream of its own first"
            )
        text = to_esl(node)
        if text in self._columns:
            return self._columns[text]
        found = resolve_calls(call, self._arguments(call), self.context.catalog, text)
        partition = tuple(self._partition(part) for part in child(node, "partition_by") or ())
        order = child(node, "order")
        if order is not None:
            self._check_order(order)
        frame = child(node, "frame")
        window = durations.over_window(frame) if frame is not None else Window(FrameUnit.RANGE, None)
        for one in found:
            _check_versions(one, window, node)
            made = WindowCall(one.name, one.arguments, one.distinct, partition, window, one.columns)
            self.window_calls[one.columns[0].name] = made
        self._columns[text] = tuple(column for one in found for column in one.columns)
        return self._columns[text]

    def _rank(self, node: nodes.Over) -> Rank:
        """Bind ROW_NUMBER, RANK or DENSE_RANK, of which a SELECT has at most one."""
        name = node.this.name.lower()
        if self.place or not self.windows_allowed:
            place = self.place or "this query"
            hint = f"use QUALIFY {name}() OVER (…) <= 10, or compute it in a query inside"
            raise StatementError(f"{name} cannot stand in {place}", span_of(node), hint)
        if node.this.expressions or child(node, "frame") is not None:
            raise StatementError(
                f"{name} takes no argument and no window",
                span_of(node),
                f"write {name}() OVER (PARTITION BY … ORDER BY …)",
            )
        column = Column(to_esl(node), BIGINT)
        if self.rank is not None and self.rank.column != column:
            raise StatementError(
                "a query has one rank", span_of(node), "compute the other one in a query inside"
            )
        if self.rank is None:
            partition = [bind_key(part, self) for part in child(node, "partition_by") or ()]
            keys = child(node, "ranked") or ()
            if not keys and name != "row_number":
                raise StatementError(f"{name} says nothing without an order", span_of(node), "add ORDER BY")
            order = [one for key in keys for one in order_keys(bind_key(key.this, self), key)]
            self.rank = Rank(rank_function_of(name, partition, order, self.time_columns), column)
        return self.rank

    def _partition(self, node: exp.Expression) -> Expr:
        before, self.place = self.place, "PARTITION BY"
        try:
            return bind_key(node, self)
        finally:
            self.place = before

    def _check_order(self, node: exp.Expression) -> None:
        order = bind(node, self)
        if not (isinstance(order, ColumnRef) and order.name in self.time_columns):
            known = ", ".join(sorted(self.time_columns))
            hint = f"leave ORDER BY out, or write ORDER BY {known}" if known else "leave ORDER BY out"
            raise StatementError("a window over a stream follows its timestamp", span_of(node), hint)

    def query(self, node: exp.Expression, scalar: bool, member: exp.Expression | None = None) -> Expr:
        """Return the column of the table call that computes a sub-query."""
        if not self.queries_allowed:
            raise StatementError(
                "a sub-query cannot stand here",
                span_of(node),
                "select its value in a query inside: FROM (SELECT *, (SELECT …) AS x FROM s) AS t",
            )
        text = f"{scalar} {to_esl(node)} {to_esl(member) if member is not None else ''}"
        if text not in self._asked:
            value = None if member is None else bind(member, self)
            alias = f"query {len(self._asked) + 1}"
            asked = sub_queries.SubQueryCall(node, scalar, value, member)
            self._asked[text] = sub_queries.call_of(asked, self.context, self.scope, alias)
        call = self._asked[text]
        return ColumnRef.to(call.schema.columns[0].of(call.alias))

    @property
    def sub_query_calls(self) -> list[RelationInput]:
        """Return the table calls that compute sub-queries over tables."""
        return list(self._asked.values())


def _check_versions(resolved: ResolvedCall, window: Window, node: nodes.Over) -> None:
    """Check that an aggregate is defined for the kind of its window (M37).

    A sliding window needs a WINDOW AGGREGATE. A tumbling or unbounded window needs an aggregate without
    WINDOW.
    """
    if resolved.builtin:
        return
    name = resolved.name
    check_call_windows(resolved.window, [window], node, over=True)
    if window.active:
        definition = resolved.window
        if definition is None or not definition.returns_on_expiry:
            raise StatementError(
                f"{name} returns nothing when a tuple expires",
                span_of(node),
                "define it as a WINDOW AGGREGATE whose EXPIRE inserts into RETURN",
            )
    needs_base = window.extent is None or window.tumbles
    if needs_base and resolved.base is None and name.lower() not in BUILTINS:
        raise StatementError(
            f"this window needs an aggregate without WINDOW, and {name} is a WINDOW AGGREGATE",
            span_of(node),
            f"add CREATE AGGREGATE {name}",
        )


@dataclass(slots=True)
class TemporalEnvironment:
    """Name resolution in a temporal query (L6).

    The names are attributes, partition columns, VALID(alias) and OPEN(alias). `asks_open` is set if the query
    reads OPEN(alias), which only windows of time compute.
    """

    context: Context
    scope: Scope
    alias: str
    valid: ColumnRef
    open: ColumnRef
    by_rows: bool
    asks_open: bool = False

    def column(self, node: exp.Column) -> Expr:
        return self.scope.resolve(node)

    def call_names(self) -> list[str]:
        return ["valid", "open", *(function.name for function in self.context.catalog.functions.values())]

    def call(self, node: exp.Anonymous) -> Expr | None:
        name = node.name.lower()
        if name in ("valid", "open"):
            named = [a.name for a in node.expressions]
            if len(named) != 1 or named[0].lower() != self.alias.lower():
                word = name.upper()
                raise StatementError(
                    f"{word} takes the alias of the stream", span_of(node), f"write {word}({self.alias})"
                )
            return self.valid if name == "valid" else self._open(node)
        if is_aggregate(name, self.context.catalog):
            raise StatementError(
                "a temporal query selects; it does not aggregate",
                span_of(node),
                "aggregate over a stream made from it",
            )
        return function_call(node, self.context, self)

    def _open(self, node: exp.Anonymous) -> Expr:
        if self.by_rows:
            raise StatementError(
                "a window that counts rows emits when a tuple arrives, so a row never stays open",
                span_of(node),
                "let the window be of time, as in RANGE 15 MINUTES SLIDES 1 MINUTE",
            )
        self.asks_open = True
        return self.open

    def field(self, node: exp.Dot) -> Expr:
        raise StatementError(
            "this expression has no fields", span_of(node), "use BEGIN(VALID(…)) or END(VALID(…))"
        )

    def over(self, node: nodes.Over) -> Expr:
        raise StatementError("a temporal query has its window in FROM", span_of(node))

    def query(self, node: exp.Expression, scalar: bool, member: exp.Expression | None = None) -> Expr:
        del scalar, member
        raise StatementError("a temporal query has no sub-query", span_of(node))


def mentions(expr: Expr, column: ColumnRef) -> bool:
    return any(part == column for part in walk(expr))
