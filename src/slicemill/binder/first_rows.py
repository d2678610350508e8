"""Binder of QUALIFY, ORDER BY … LIMIT, DISTINCT and EMIT of a SELECT.

These clauses apply after grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from slicemill.binder.changelog import (
    HIDDEN_COUNT,
    apply_limit,
    columns_used,
    rank_function_of,
    rank_item,
    reads_windows_of_time,
    refuse_open_rank,
    take_limit,
    with_emit,
    with_result_schema,
)
from slicemill.binder.dialects.clauses import timestamps_of
from slicemill.binder.environments import SelectEnvironment
from slicemill.binder.expressions import as_key, bind, bind_condition, order_keys
from slicemill.binder.from_clause import BoundInput
from slicemill.binder.select_list import item_at
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import ColumnRef, Expr
from slicemill.catalog.queries import QueryInput, Rank, SelectItem, SelectQuery, reads_changes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of

OverGroups: TypeAlias = Callable[[Expr, exp.Expression], Expr]


@dataclass(frozen=True, slots=True)
class TopNClauses:
    """Bound QUALIFY, ORDER BY and LIMIT.

    `places` are the syntax nodes of the sort keys, for error messages.
    """

    rank: Rank | None
    qualify: Expr | None
    order: tuple[tuple[Expr, bool], ...]
    limit: int | None
    places: tuple[exp.Expression, ...]
    time_columns: frozenset[str]
    catalog: Catalog

    def over_groups(self, read: OverGroups) -> TopNClauses:
        """Return the clauses with group columns in place of input columns.

        Groups are not ordered by time.
        """
        order = tuple(
            (read(expr, place), falls) for (expr, falls), place in zip(self.order, self.places, strict=True)
        )
        rank = self.rank
        if rank is not None:
            place = self.places[0] if self.places else exp.Null()
            partition = [read(expr, place) for expr in rank.by.partition_by]
            keys = [(read(expr, place), falls) for expr, falls in rank.by.order_by]
            if not keys:
                raise StatementError(
                    "groups have no order of their own", span_of(place), "add ORDER BY to the rank"
                )
            rank = replace(rank, by=rank_function_of(rank.by.function, partition, keys, frozenset()))
        qualify = None if self.qualify is None else read(self.qualify, exp.Null())
        return replace(self, rank=rank, qualify=qualify, order=order, time_columns=frozenset())

    def apply_to(self, query: SelectQuery, node: exp.Select, entries: Sequence[BoundInput]) -> SelectQuery:
        """Add QUALIFY, ORDER BY, LIMIT, DISTINCT and EMIT to a query; set its result schema."""
        query = _limit_from_where(query, entries)
        if child(node, "distinct") is not None:
            for item in query.items:
                as_key(item.expr, node)
            query = _distinct(query, node)
        elif query.group_by and not query.aggregates and not query.changing:
            query = replace(query, aggregates=(HIDDEN_COUNT,))
        query = self._ranked(query, node)
        query = self._ordered(query, node)
        query = with_result_schema(query)
        if query.emit is None:
            query = with_emit(query, node, self.catalog)
        return query

    def _ranked(self, query: SelectQuery, node: exp.Select) -> SelectQuery:
        rank = self.rank
        if rank is None:
            if self.qualify is not None:
                raise StatementError(
                    "QUALIFY needs a rank",
                    span_of(child(node, "qualify")),
                    "use WHERE or HAVING, or QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= 3",
                )
            return query
        if reads_changes(query.inputs) and not query.changing:
            rank = replace(rank, by=replace(rank.by, oldest_first=False))
        elif not reads_changes(query.inputs):
            moments = _time_key_columns(query, self.catalog)
            of_one_time = any(isinstance(e, ColumnRef) and e.name in moments for e in rank.by.partition_by)
            rank = replace(rank, by=replace(rank.by, of_one_time=of_one_time))
        _refuse_idle_window(query, node)
        limit, rest = take_limit(self.qualify, rank.column.name)
        query = replace(query, rank=rank, qualify=rest)
        if limit is None:
            if rest is not None:
                refuse_open_rank(query, child(node, "qualify"))
            return query
        _check_limit(limit, child(node, "qualify"))
        shown = rank.column.name in columns_used(query)
        return replace(query, rank=replace(rank, limit=limit, shown=shown))

    def _ordered(self, query: SelectQuery, node: exp.Select) -> SelectQuery:
        order, limit = child(node, "order"), child(node, "limit")
        if order is None:
            if limit is not None:
                raise StatementError(
                    "LIMIT needs an ORDER BY",
                    span_of(limit),
                    "add ORDER BY, or drop the query when you have enough",
                )
            return query
        windowed = reads_windows_of_time(query)
        if query.slide is not None and not windowed:
            raise StatementError(
                "ORDER BY needs a window of time, which emits all its groups together",
                span_of(order),
                "let the window be of time: [RANGE 1 HOUR SLIDE 1 MINUTE]",
            )
        bounded = any(i.window is not None and i.window.extent is not None for i in query.inputs)
        if bounded and not windowed and query.aggregates:
            raise StatementError(
                "this window emits at each tuple, so its groups cannot be ordered",
                span_of(order),
                "add SLIDE to the window, or leave the window out",
            )
        streams = [given for given in query.inputs if not given.finite]
        active = any(call.window.active for call in query.window_calls)
        by_time = rank_function_of("row_number", (), self.order, self.time_columns).oldest_first
        if limit is None and by_time and len(streams) == 1 and not active:
            return query  # results of a stream are already in the order of their timestamp (M28)
        if limit is None and not windowed:
            raise StatementError(
                "ORDER BY needs the end of the input, and a stream has none",
                span_of(order),
                "add LIMIT for the first rows as they change; results are already in timestamp order",
            )
        if limit is not None:
            _refuse_idle_window(query, order)
        if query.rank is not None:
            raise StatementError(
                "a query has one rank or one ORDER BY", span_of(order), "order in a query around it"
            )
        times = self.time_columns if not reads_changes(query.inputs) else frozenset()
        by = rank_function_of("row_number", (), self.order, times)
        if self.limit is not None:
            _check_limit(self.limit, limit)
        return replace(query, order=by, limit=self.limit)


def _refuse_idle_window(query: SelectQuery, node: exp.Expression) -> None:
    """Reject a ranking call in a query with a window in FROM but without aggregates.

    A rank covers all rows so far, so the window would have no effect.
    """
    streams = [given for given in query.inputs if not given.finite]
    if len(streams) > 1 or query.aggregates or query.window_calls or query.session is not None:
        return
    window = streams[0].window if streams else None
    if window is not None and window.extent is not None and window.slide is None:
        raise StatementError(
            "a rank covers all rows so far, so this window has no effect",
            span_of(node),
            "leave the window out; for the first rows of each window, write FROM TUMBLE(s, ts, INTERVAL '5' "
            "MINUTE) QUALIFY row_number() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) <= 3",
        )


def bind_top_n(
    node: exp.Select, env: SelectEnvironment, items: Sequence[tuple[SelectItem, exp.Expression]]
) -> TopNClauses:
    """Bind QUALIFY, ORDER BY and LIMIT.

    These clauses may name columns of the select list.
    """
    named = {item.name.lower(): item.expr for item, _ in items}
    qualify_node = child(node, "qualify")
    qualify = None
    if qualify_node is not None:
        written = {
            item_node.alias.lower(): item_node.this
            for _, item_node in items
            if isinstance(item_node, exp.Alias)
        }
        qualify = bind_condition(_with_items(qualify_node.this, written, env), env)
    order: list[tuple[Expr, bool]] = []
    places: list[exp.Expression] = []
    order_node = child(node, "order")
    for ordered in order_node.expressions if order_node is not None else ():
        key = ordered.this
        expr = named.get(key.name.lower()) if isinstance(key, exp.Column) and not key.table else None
        if isinstance(key, exp.Literal) and not key.is_string:
            expr = item_at(key, items)
        by = as_key(bind(key, env) if expr is None else expr, key)
        # The timestamp of a stream is never NULL.
        timed = isinstance(by, ColumnRef) and by.name in env.time_columns
        keys = [(by, bool(child(ordered, "desc")))] if timed else order_keys(by, ordered)
        order += keys
        places += [key] * len(keys)
    limit_node = child(node, "limit")
    limit = None if limit_node is None else int(limit_node.expression.name)
    catalog = env.context.catalog
    return TopNClauses(env.rank, qualify, tuple(order), limit, tuple(places), env.time_columns, catalog)


def _time_key_columns(query: SelectQuery, catalog: Catalog) -> frozenset[str]:
    """Return the columns whose values determine the timestamp of a result row."""
    if query.aggregates:
        window = query.inputs[0].window
        bounds = set() if query.changing or query.running else {"window_end"}
        if len(query.inputs) == 1 and window is not None and window.slide is not None and not window.grows:
            bounds.add("window_start")
        return frozenset(bounds.difference(item.name for item in query.group_by))
    if len(query.inputs) > 1:
        return frozenset()
    (read,) = query.inputs
    below = read.query if read.query is not None else catalog.relation(read.relation or "")
    known = frozenset[str]() if below is None else timestamps_of(below, catalog)
    return frozenset(column.name for column in read.schema if column.name.lower() in known)


def _with_items(
    node: exp.Expression, written: dict[str, exp.Expression], env: SelectEnvironment
) -> exp.Expression:
    """Replace names of select items in a condition by their expressions.

    Input columns take precedence.
    """
    own = {column.name.lower() for _, schema in env.scope.relations for column in schema}

    def change(part: exp.Expression) -> exp.Expression:
        if isinstance(part, exp.Column) and not part.table and part.name.lower() not in own:
            return written.get(part.name.lower(), part)
        return part

    return node.transform(change)


def _check_limit(limit: int, node: exp.Expression) -> None:
    if limit < 1:
        raise StatementError("LIMIT and ranks must be at least 1", span_of(node), "ask for 1 or more")


def _limit_from_where(query: SelectQuery, entries: Sequence[BoundInput]) -> SelectQuery:
    """Convert `WHERE n <= 3` over a ranking sub-query to a limit of the rank.

    If the outer query does not read the rank n, the rank column is dropped.
    """
    inputs: list[QueryInput] = []
    qualified = len(query.inputs) > 1
    for given, entry in zip(query.inputs, entries, strict=True):
        item = rank_item(given.query)
        if item is not None and isinstance(given.query, SelectQuery):
            name = f"{given.alias}.{item.name}" if qualified else item.name
            limit, where = take_limit(query.where, name)
            if limit is not None:
                _check_limit(limit, entry.node)
                query = replace(query, where=where)
                inner = apply_limit(given.query, limit, name in columns_used(query))
                given = replace(given, query=inner, schema=inner.schema)
        if given.query is not None:
            refuse_open_rank(given.query, entry.node)
        inputs.append(given)
    return replace(query, inputs=tuple(inputs))


def _distinct(query: SelectQuery, node: exp.Select) -> SelectQuery:
    if query.slide is None:
        if any(i.window is not None for i in query.inputs) and query.aggregates:
            raise StatementError(
                "DISTINCT over groups of a window", span_of(node), "select from a stream made of them"
            )
        return replace(query, distinct=True)
    if query.aggregates or query.group_by:
        raise StatementError(
            "DISTINCT over groups of a window", span_of(node), "groups differ already: leave DISTINCT out"
        )
    # The distinct rows of a window are its groups.
    groups = tuple(SelectItem(item.name, item.expr) for item in query.items)
    items = tuple(SelectItem(item.name, ColumnRef(item.name, item.expr.type)) for item in groups)
    return replace(query, group_by=groups, aggregates=(HIDDEN_COUNT,), items=items)
