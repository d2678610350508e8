"""Binder of queries with changelogs: top-N ranks, EMIT, result schemas, and restrictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from slicemill.binder.windows import duration_us
from slicemill.catalog.catalog import LATE, Catalog, Stream, TimestampKind
from slicemill.catalog.expressions import (
    Call,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from slicemill.catalog.queries import (
    AggregateCall,
    Continuous,
    Corrections,
    EmitClause,
    FrameUnit,
    JoinKind,
    LateTuples,
    QueryInput,
    RankedBy,
    RelationQuery,
    SelectItem,
    SelectQuery,
    UnionQuery,
    schema_below,
)
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import BIGINT, CHANGE, OP, OPS, Column, Schema, changelog

if TYPE_CHECKING:
    from slicemill.binder.calls import ResolvedCall
    from slicemill.binder.from_clause import BoundInput

_LASTING = ("approx_count", "approx_count_if", "priority_sample")
_EXACT = {"approx_count": "count", "approx_count_if": "count_if"}
_FILES = ("json", "jsonl", "parquet", "arrow")
_FLIPPED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "=": "="}
HIDDEN_COUNT = AggregateCall("count", (), False, (Column("count(*)", BIGINT),))


# -- restrictions on queries over changelogs ----------------------------------------------------------------


def refuse_changes(node: exp.Select, entries: Sequence[BoundInput]) -> None:
    """Reject windows and unsupported joins over changelogs.

    The rows of a changelog can be retracted.
    """
    for entry in entries:
        if not entry.input.schema.changelog:
            continue
        name = entry.input.alias
        final = f"end the SELECT of {name} with EMIT FINAL"
        if len(entries) > 1:
            _check_join(entry, entries, node)
        frame = child(entry.node, "frame") or child(node, "window")
        if frame is not None or child(entry.node, "coalesce"):
            raise StatementError(
                f"{name} is a changelog, and a window needs rows that do not change",
                span_of(frame if frame is not None else entry.node),
                f"leave the window out, perhaps for GROUP BY date_trunc('minute', column), or {final}",
            )


def _check_join(entry: BoundInput, entries: Sequence[BoundInput], node: exp.Select) -> None:
    """Check a join with a changelog.

    A changelog can be joined with one other changelog or stream, without windows.
    """
    name = entry.input.alias
    finite = next((other for other in entries if other.input.finite), None)
    if finite is not None:
        raise StatementError(
            f"{name} is a changelog, and rows that it looks up in a table may change later",
            span_of(finite.node),
            f"look {finite.input.alias} up for the stream that {name} is made of",
        )
    if len(entries) > 2:
        raise StatementError(
            f"{name} is a changelog, which can be joined with only one other input",
            span_of(entry.node),
            "join two of them in a stream of their own: CREATE STREAM ab AS SELECT …; then FROM ab",
        )
    for other in entries:
        if other.input.kind in (JoinKind.SEMI, JoinKind.ANTI) or other.side in ("ASOF", "LEFT ASOF"):
            raise StatementError(
                f"{name} is a changelog, which supports only INNER, LEFT, RIGHT and FULL joins",
                span_of(other.node),
                f"use LEFT JOIN … WHERE {entries[1].input.alias}.column IS NULL, or GROUP BY",
            )
        frame = child(other.node, "frame") or child(node, "window")
        if frame is not None:
            raise StatementError(
                f"{name} is a changelog, which is joined without windows",
                span_of(frame),
                "leave the window out",
            )


def refuse_over_changes(node: exp.Select, inputs: Sequence[QueryInput], calls: Iterable[object]) -> None:
    changing = next((i for i in inputs if i.schema.changelog), None)
    if changing is not None and any(True for _ in calls):
        over = next(node.find_all(nodes.Over), node)
        raise StatementError(
            f"{changing.alias} is a changelog, and OVER needs rows that do not change",
            span_of(over),
            f"use GROUP BY, or end the SELECT of {changing.alias} with EMIT FINAL",
        )


def refuse_unretractable(resolved: ResolvedCall, call: exp.Expression, inputs: Sequence[QueryInput]) -> None:
    """Reject aggregates over changelogs if they cannot retract a row.

    User-defined aggregates with TERMINATE are allowed, because they are recomputed from the remaining rows.
    """
    changing = next((i.alias for i in inputs if i.schema.changelog), None)
    if changing is None:
        return
    name, final = resolved.name, f"end the SELECT of {changing} with EMIT FINAL"
    hint = None
    if resolved.builtin and name in _LASTING:
        hint = f"use {_EXACT[name]}, which is exact, or {final}" if name in _EXACT else final
    elif not resolved.builtin and (resolved.base is None or resolved.base.provider is not None):
        hint = (
            final if resolved.base else f"define CREATE AGGREGATE {name} with TERMINATE as well, or {final}"
        )
    elif not resolved.blocking:
        hint = f"let {name} answer in TERMINATE, not at each tuple"
    if hint is not None:
        raise StatementError(
            f"{changing} is a changelog, and {name} cannot retract a row", span_of(call), hint
        )


def check_sink(query: Continuous | RelationQuery, options: Sequence[nodes.Option]) -> None:
    """Reject a sink that cannot store changing results."""
    sink = next((option for option in options if option.this.name.lower() == "sink"), None)
    value = child(sink, "value") if sink is not None else None
    if not isinstance(value, exp.Literal):
        return
    url = value.name
    if isinstance(query, RelationQuery) or not query.schema.changelog or "changelog=true" in url:
        return
    scheme = url.partition(":")[0].lower()
    if scheme in _FILES:
        raise StatementError(
            "these results change, and rows in a file cannot be retracted",
            span_of(value),
            f"write the changes with what they do, '{url}?changelog=true', or end the SELECT with EMIT FINAL",
        )
    if scheme in ("postgres", "postgresql") and query.schema.key is None:
        raise StatementError(
            "these results change, and no columns identify their rows in a table",
            span_of(value),
            "select the columns of the groups, or the rank; or write the changes: changelog=true in the URL",
        )


# -- ranking calls (ROW_NUMBER, RANK, DENSE_RANK) ------------------------------------------------------------


def rank_function_of(
    function: str,
    partition: Sequence[Expr],
    order: Sequence[tuple[Expr, bool]],
    time_columns: frozenset[str],
) -> RankedBy:
    """Return a ranking call, which records whether its ORDER BY is by timestamp.

    Rows of a stream arrive in the order of the stream's timestamp column.
    """
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
    """Split a condition into the highest rank that it allows and the other conditions."""
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
    """Return the highest rank that a condition on the rank allows.

    The result is -1 if all ranks are allowed, and None for all other conditions.
    """
    if not isinstance(part, Call) or len(part.arguments) != 2:
        return None
    left, right = (_without_cast(argument) for argument in part.arguments)
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


def _without_cast(expr: Expr) -> Expr:
    """Return the operand of a cast of a column or literal, or else the expression."""
    return expr.operand if isinstance(expr, Cast) and isinstance(expr.operand, ColumnRef | Literal) else expr


def apply_limit(query: SelectQuery, limit: int, shown: bool) -> SelectQuery:
    """Limit a query with a ranking call to rows with a rank up to `limit`.

    Unless `shown`, the rank column is removed.
    """
    assert query.rank is not None
    items = query.items
    if not shown:
        items = tuple(item for item in items if item.expr != ColumnRef.to(query.rank.column))
    return with_result_schema(replace(query, rank=replace(query.rank, limit=limit, shown=shown), items=items))


def rank_item(query: Continuous | None) -> SelectItem | None:
    """Return the SELECT item with the rank of a query that does not limit the rank yet."""
    if not isinstance(query, SelectQuery) or query.rank is None or query.rank.limit is not None:
        return None
    wanted = ColumnRef.to(query.rank.column)
    return next((item for item in query.items if item.expr == wanted), None)


def refuse_open_rank(query: Continuous | RelationQuery, place: exp.Expression) -> None:
    branches = query.branches if isinstance(query, UnionQuery) else (query,)
    for branch in branches:
        if isinstance(branch, SelectQuery) and branch.rank is not None and branch.rank.limit is None:
            name = branch.rank.by.function
            raise StatementError(
                f"each new tuple could change the {name} of all rows",
                span_of(next((o for o in place.find_all(nodes.Over) if _is_rank(o)), place)),
                f"limit the rank: QUALIFY {name}() OVER (…) <= 10, or WHERE … <= 10 around it",
            )


def _is_rank(over: nodes.Over) -> bool:
    return child(over, "ranked") is not None or over.this.name.lower() in ("row_number", "rank", "dense_rank")


# -- EMIT ----------------------------------------------------------------------------------------------------


def with_emit(query: SelectQuery, node: exp.Select, catalog: Catalog) -> SelectQuery:
    emit = child(node, "emit")
    if emit is None or child(emit, "kind") == "CHANGES":
        return query
    if child(emit, "kind") in ("EARLY", "LATE"):
        return _with_corrections(query, emit, catalog)
    every = duration_us(emit.this) if emit.this is not None else None
    if every is not None and every <= 0:
        raise StatementError("EMIT EVERY takes a length of time above 0", span_of(emit))
    closes = query.slide is not None or query.session is not None or query.rank is not None
    if child(emit, "kind") == "ON WINDOW CLOSE" and (query.schema.changelog or not closes):
        raise StatementError(
            "ON WINDOW CLOSE needs a window",
            span_of(emit),
            "group by one: FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k; or use EMIT FINAL",
        )
    if not query.schema.changelog:
        if every is None and closes:
            return query  # a window emits its results once, so EMIT CHANGES and FINAL have no effect
        raise StatementError(
            "EMIT determines when changes are emitted, and these results do not change",
            span_of(emit),
            "leave it out",
        )
    return with_result_schema(replace(query, emit=EmitClause(every)))


def _with_corrections(query: SelectQuery, emit: exp.Expression, catalog: Catalog) -> SelectQuery:
    """Bind EMIT EARLY … LATE …, for early and corrected results of windows.

    The windows of one stream emit before they end, and again after late tuples.
    """
    given = query.inputs[0]
    if len(query.inputs) > 1 and not query.aggregates:
        raise StatementError(
            "a join emits each pair at once, so EMIT EARLY has no effect",
            span_of(emit),
            "leave EMIT out; or make it a stream, CREATE STREAM ab AS SELECT …, and aggregate over that",
        )
    if query.session is None and (not reads_windows_of_time(query) or given.window is None):
        raise StatementError(
            "EMIT EARLY and LATE need a window of time, which emits all its groups together",
            span_of(emit),
            "use them with a window that slides: FROM stream [RANGE 1 HOUR SLIDE 1 HOUR]",
        )
    if len(query.inputs) > 1 or query.running:
        raise StatementError(
            "EMIT EARLY and LATE need a window of a single stream",
            span_of(emit),
            "make the join, or the stream, first: CREATE STREAM ab AS SELECT …",
        )
    if query.session is not None and child(emit, "late") is not None:
        raise StatementError(
            "a late tuple may merge two sessions that have already been emitted",
            span_of(emit),
            "leave LATE out, and give the stream SLACK, so that late tuples are sorted in",
        )
    if query.rank is not None or query.order is not None or query.distinct:
        raise StatementError(
            "these results are corrected later, and their order may then change",
            span_of(emit),
            "rank them in a query around it: SELECT … FROM (SELECT … EMIT EARLY …) AS w QUALIFY …",
        )
    every = duration_us(emit.this) if emit.this is not None else None
    if every is not None and every <= 0:
        raise StatementError("EMIT EARLY EVERY takes a length of time above 0", span_of(emit))
    late_node = child(emit, "late")
    late = None if late_node is None else late_tuples(given, late_node, catalog)
    return with_result_schema(replace(query, corrections=Corrections(every, late)))


def late_tuples(given: QueryInput, length: nodes.Duration, catalog: Catalog) -> LateTuples:
    """Return the late tuples that a LATE clause accepts."""
    stream = None if given.relation is None else catalog.relation(given.relation)
    if not isinstance(stream, Stream) or stream.kind is not TimestampKind.EXTERNAL:
        raise StatementError(
            f"tuples of {given.alias} are never late: LATE needs a stream with a timestamp column",
            span_of(length),
            "leave LATE out, or read a stream that is declared with ORDER BY and a column",
        )
    assert stream.time_column is not None, "external streams are ordered by a column"
    within_us = duration_us(length)
    if within_us <= 0:
        raise StatementError("a late tuple is later than this", span_of(length), "as in LATE 5 MINUTES")
    return LateTuples(stream.name + LATE, stream.time_column, within_us)


# -- schema of results ---------------------------------------------------------------------------------------


def with_result_schema(query: SelectQuery) -> SelectQuery:
    """Return the query with its result schema.

    If the results change, the schema has an operation column, and a key if one is known.
    """
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
    """Return the changelog flag and the key of a query's rows before projection."""
    below = schema_below(query.inputs)
    if query.changing and not query.aggregates and not below.changelog:
        below = Schema(())  # a query with only distinct rows of a stream never retracts a row
    elif query.corrections is not None:
        below = Schema((), True, query.early_result_key)
    elif query.changing:
        below = Schema((), True, tuple(item.name for item in query.group_by))
    for by, limit, shown in _ranks(query):
        if below.changelog or not by.never_retracts:
            below = Schema((), True, by.key(limit, shown, below))
    return below.changelog, below.key


def _ranks(query: SelectQuery) -> Iterable[tuple[RankedBy, int | None, str | None]]:
    if query.rank is not None:
        yield query.rank.by, query.rank.limit, query.rank.column.name if query.rank.shown else None
    if query.order is not None and query.slide is None:
        yield query.order, query.limit, None


def as_changelog(query: SelectQuery) -> SelectQuery:
    """Convert an insert-only query to a changelog with inserts, for UNION."""
    if query.schema.changelog:
        return query
    items = (SelectItem(OP, Literal(OPS[0], CHANGE)), *query.items)
    return replace(query, items=items, schema=changelog(query.schema, None))


def reads_windows_of_time(query: SelectQuery) -> bool:
    """Return True for aggregates over sliding time windows in FROM."""
    window = next((i.window for i in query.inputs if i.window and i.window.slide is not None), None)
    return window is not None and window.frame is FrameUnit.RANGE and bool(query.aggregates)


def columns_used(query: SelectQuery) -> frozenset[str]:
    """Return the input columns that the expressions of a query read."""
    exprs = [item.expr for item in (*query.items, *query.group_by)]
    exprs += [argument for call in query.aggregates for argument in call.arguments]
    for call in query.window_calls:
        exprs += [*call.arguments, *call.partition_by]
    for by, _, _ in _ranks(query):
        exprs += [*by.partition_by, *(expr for expr, _ in by.order_by)]
    exprs += [expr for expr in (query.where, query.having, query.qualify) if expr is not None]
    return frozenset(name for expr in exprs for name in columns_of(expr))
