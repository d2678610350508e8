"""Results that change: first rows by rank, DISTINCT, ORDER BY … LIMIT, EMIT, and what may read changelogs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from slicemill.esl.binder.durations import duration_us
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.expression import (
    Call,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from slicemill.esl.types.query import (
    Continuous,
    EmitClause,
    FrameUnit,
    QueryInput,
    RankedBy,
    SelectQuery,
    UnionQuery,
)
from slicemill.esl.types.relation import AggregateCall, RelationQuery, SelectItem
from slicemill.esl.types.schema import BIGINT, CHANGE, OP, OPS, Column, Schema, changelog

if TYPE_CHECKING:
    from slicemill.esl.binder.calls import Resolved
    from slicemill.esl.binder.inputs import BoundInput

_LASTING = ("approx_count", "approx_count_if", "priority_sample")
_FILES = ("json", "jsonl", "parquet", "arrow")
_FLIPPED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "=": "="}
HIDDEN_COUNT = AggregateCall("count", (), False, (Column("count(*)", BIGINT),))


# -- what reads changelogs ----------------------------------------------------------------------------------


def refuse_changes(node: exp.Select, entries: Sequence[BoundInput]) -> None:
    """Joins, windows and temporal queries want rows that only come."""
    for entry in entries:
        if not entry.input.schema.changelog:
            continue
        name = entry.input.alias
        final = f"end the SELECT of {name} with EMIT FINAL"
        if len(entries) > 1:
            raise Mistake(
                f"{name} is a table that changes, and a join reads rows that stay",
                span_of(entry.node),
                f"join first and aggregate the result, or {final}",
            )
        frame = child(entry.node, "frame") or child(node, "window")
        if frame is not None or child(entry.node, "coalesce"):
            raise Mistake(
                f"{name} is a table that changes, and a window holds rows that stay",
                span_of(frame if frame is not None else entry.node),
                f"leave the window out, or {final}",
            )


def refuse_over_changes(node: exp.Select, inputs: Sequence[QueryInput], calls: Iterable[object]) -> None:
    changing = next((i for i in inputs if i.schema.changelog), None)
    if changing is not None and any(True for _ in calls):
        over = next(node.find_all(nodes.Over), node)
        raise Mistake(
            f"{changing.alias} is a table that changes, and OVER reads rows that stay",
            span_of(over),
            f"use GROUP BY, or end the SELECT of {changing.alias} with EMIT FINAL",
        )


def refuse_lasting(resolved: Resolved, call: exp.Expression, inputs: Sequence[QueryInput]) -> None:
    """Aggregates that cannot take a row out again."""
    changing = next((i.alias for i in inputs if i.schema.changelog), None)
    if changing is not None and (not resolved.builtin or resolved.name in _LASTING):
        raise Mistake(
            f"{changing} is a table that changes, and {resolved.name} cannot take a row out again",
            span_of(call),
            f"use count, sum, min and the like, or end the SELECT of {changing} with EMIT FINAL",
        )


def check_sink(query: Continuous | RelationQuery, options: Sequence[nodes.Option]) -> None:
    """What a sink cannot take is told where it is named."""
    sink = next((option for option in options if option.this.name.lower() == "sink"), None)
    value = child(sink, "value") if sink is not None else None
    if not isinstance(value, exp.Literal):
        return
    url = value.name
    if isinstance(query, RelationQuery) or not query.schema.changelog or "changelog=true" in url:
        return
    scheme = url.partition(":")[0].lower()
    if scheme in _FILES:
        raise Mistake(
            "these results change, and a file takes no row back",
            span_of(value),
            f"write the changes with what they do, '{url}?changelog=true', or end the SELECT with EMIT FINAL",
        )
    if scheme in ("postgres", "postgresql") and query.schema.key is None:
        raise Mistake(
            "these results change, and no columns tell their rows apart in a table",
            span_of(value),
            "select the columns of the groups, or the rank; or write the changes: changelog=true in the URL",
        )


# -- ranks ---------------------------------------------------------------------------------------------------


def ranked_by(
    function: str,
    partition: Sequence[Expr],
    order: Sequence[tuple[Expr, bool]],
    time_columns: frozenset[str],
) -> RankedBy:
    """An order of rows; among rows of streams, that of time is known to be the order of arrival."""
    by_time = [isinstance(expr, ColumnRef) and expr.name in time_columns for expr, _ in order]
    oldest = not order or (len(order) == 1 and by_time[0] and not order[0][1])
    return RankedBy(
        function,
        tuple(partition),
        tuple(order),
        oldest_first=oldest and function == "row_number",
        latest_first=any(timed and falls for timed, (_, falls) in zip(by_time, order, strict=True)),
    )


def take_limit(condition: Expr | None, column: str) -> tuple[int | None, Expr | None]:
    """How many first rows a condition asks for by the column of their rank, and what else it asks for."""
    limits: list[int] = []
    others: list[Expr] = []
    for part in conjuncts(condition):
        limit = _limit(part, column)
        if limit is None:
            others.append(part)
        else:
            limits.append(limit)
    known = [limit for limit in limits if limit >= 0]
    return (min(known), conjunction(tuple(others))) if known else (None, condition)


def _limit(part: Expr, column: str) -> int | None:
    """The last rank that a condition allows; -1 if it allows all; None if it is about something else."""
    if not isinstance(part, Call) or len(part.arguments) != 2:
        return None
    left, right = (_plain(argument) for argument in part.arguments)
    function = part.function
    if isinstance(right, ColumnRef):
        left, right, function = right, left, _FLIPPED.get(function, "")
    if not (isinstance(left, ColumnRef) and left.name == column and isinstance(right, Literal)):
        return None
    value = right.value
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if function in ("<=", "<"):
        return max(value - (function == "<"), 0)
    if function == "=" and value == 1:
        return 1
    return -1 if (function == ">=" and value <= 1) or (function == ">" and value <= 0) else None


def _plain(expr: Expr) -> Expr:
    """A constant or column, whatever number it is read as."""
    return expr.operand if isinstance(expr, Cast) and isinstance(expr.operand, ColumnRef | Literal) else expr


def limited(query: SelectQuery, limit: int, shown: bool) -> SelectQuery:
    """A query with a rank, of which so many first rows are asked for."""
    assert query.rank is not None
    items = query.items
    if not shown:
        items = tuple(item for item in items if item.expr != ColumnRef.to(query.rank.column))
    return completed(replace(query, rank=replace(query.rank, limit=limit, shown=shown), items=items))


def rank_item(query: Continuous | None) -> SelectItem | None:
    """The column of a sub-query that is a rank without a limit."""
    if not isinstance(query, SelectQuery) or query.rank is None or query.rank.limit is not None:
        return None
    wanted = ColumnRef.to(query.rank.column)
    return next((item for item in query.items if item.expr == wanted), None)


def refuse_open_rank(query: Continuous | RelationQuery, place: exp.Expression) -> None:
    branches = query.branches if isinstance(query, UnionQuery) else (query,)
    for branch in branches:
        if isinstance(branch, SelectQuery) and branch.rank is not None and branch.rank.limit is None:
            name = branch.rank.by.function
            raise Mistake(
                f"each tuple could change the {name} of all others",
                span_of(next((o for o in place.find_all(nodes.Over) if _is_rank(o)), place)),
                f"ask for the first ones: QUALIFY {name}() OVER (…) <= 10, or WHERE … <= 10 around it",
            )


def _is_rank(over: nodes.Over) -> bool:
    return child(over, "ranked") is not None or over.this.name.lower() in ("row_number", "rank", "dense_rank")


# -- EMIT ----------------------------------------------------------------------------------------------------


def with_emit(query: SelectQuery, node: exp.Select) -> SelectQuery:
    emit = child(node, "emit")
    if emit is None or child(emit, "kind") == "CHANGES":
        return query
    every = duration_us(emit.this) if emit.this is not None else None
    if every is not None and every <= 0:
        raise Mistake("EMIT EVERY takes a length of time above 0", span_of(emit))
    if not query.schema.changelog:
        if every is None and query.slide is not None:
            return query  # a window tells its results once
        raise Mistake(
            "EMIT says when changes are told, and these results do not change", span_of(emit), "leave it out"
        )
    return completed(replace(query, emit=EmitClause(every)))


# -- the schema of results -----------------------------------------------------------------------------------


def completed(query: SelectQuery) -> SelectQuery:
    """A query with its schema: whether its results change, and by which columns their rows are told apart."""
    items = tuple(item for item in query.items if item.name != OP)
    columns = tuple(Column(item.name, item.expr.type) for item in items)
    changes, key = _shape(query)
    if not changes:
        return replace(query, items=items, schema=Schema(columns))
    names = {item.expr.name: item.name for item in reversed(items) if isinstance(item.expr, ColumnRef)}
    shown = None
    if key is not None and all(name in names for name in key):
        shown = tuple(names[name] for name in key)
    if query.distinct:
        shown = tuple(column.name for column in columns)
    schema = changelog(columns, shown)
    if query.emit is not None and query.emit.every is None:
        schema = Schema(columns, key=shown)
    return replace(query, items=(SelectItem(OP, ColumnRef(OP, CHANGE)), *items), schema=schema)


def _shape(query: SelectQuery) -> tuple[bool, tuple[str, ...] | None]:
    """Do the rows below the select list change? And the key they have there."""
    below = query.inputs[0].schema
    if query.changing and not query.aggregates and not below.changelog:
        below = Schema(())  # what is there stays: distinct rows
    elif query.changing:
        below = Schema((), True, tuple(item.name for item in query.group_by))
    for by, limit, shown in _ranks(query):
        if below.changelog or not by.oldest_first:
            below = Schema((), True, by.key(limit, shown, below))
    return below.changelog, below.key


def _ranks(query: SelectQuery) -> Iterable[tuple[RankedBy, int | None, str | None]]:
    if query.rank is not None:
        yield query.rank.by, query.rank.limit, query.rank.column.name if query.rank.shown else None
    if query.order is not None and query.slide is None:
        yield query.order, query.limit, None


def as_changes(query: SelectQuery) -> SelectQuery:
    """A query whose rows only come, as a changelog of inserts: for a union with one that changes."""
    if query.schema.changelog:
        return query
    items = (SelectItem(OP, Literal(OPS[0], CHANGE)), *query.items)
    return replace(query, items=items, schema=changelog(query.schema, None))


def reads_windows_of_time(query: SelectQuery) -> bool:
    """Does a sliding window of time report groups, all of one window at one moment?"""
    window = next((i.window for i in query.inputs if i.window and i.window.slide is not None), None)
    return window is not None and window.frame is FrameUnit.RANGE and bool(query.aggregates)


def columns_used(query: SelectQuery) -> frozenset[str]:
    """The columns of the inputs that a query reads."""
    exprs = [item.expr for item in (*query.items, *query.group_by)]
    exprs += [argument for call in query.aggregates for argument in call.arguments]
    for call in query.window_calls:
        exprs += [*call.arguments, *call.partition_by]
    for by, _, _ in _ranks(query):
        exprs += [*by.partition_by, *(expr for expr, _ in by.order_by)]
    exprs += [expr for expr in (query.where, query.having, query.qualify) if expr is not None]
    return frozenset(name for expr in exprs for name in columns_of(expr))
