"""Rewrite of [NOT] EXISTS and [NOT] IN over streams to SEMI and ANTI joins.

    FROM a [RANGE 1 MINUTE]                                FROM a [RANGE 1 MINUTE]
    WHERE EXISTS (SELECT 1 FROM b [RANGE 5 SECONDS]   →    SEMI JOIN b [RANGE 5 SECONDS] ON b.k = a.k
                  WHERE b.k = a.k)

If the outer stream has no window, each row of the outer stream is tested on arrival against the current
window of the inner stream. A group of a sliding window is valid for one slide, until the next window is
emitted:

    WHERE k IN (SELECT k FROM b [RANGE 1 HOUR SLIDE 1 MINUTE]   →    SEMI JOIN (SELECT …) AS asked_1
                GROUP BY k HAVING count(*) > 3)                      [RANGE 1 MINUTE] ON a.k = asked_1.k

In a SELECT over window functions, rows join rows of the same window. Window functions are
rewritten to joins before their windows get lengths:

    FROM TUMBLE(a, …) AS L WHERE k IN (SELECT k FROM              FROM TUMBLE(a, …) AS L
      TUMBLE(b, …) AS R WHERE L.window_start = R.window_start  →  SEMI JOIN TUMBLE(b, …) AS R
      AND L.window_end = R.window_end)                            ON L.k = R.k AND L.window_start = …
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from slicemill.binder.calls import is_aggregate
from slicemill.binder.changelog import reads_windows_of_time
from slicemill.binder.context import Context, is_finite, schema_of
from slicemill.binder.dialects.windows import BOUND_COLUMNS, window_function_of
from slicemill.binder.from_clause import from_entries
from slicemill.catalog.queries import SelectQuery
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar import windows
from slicemill.sql.nodes import at, child, span_of
from slicemill.types import TIMESTAMP, Column, Schema

_PLAIN = (
    "make a stream of it first: CREATE STREAM b AS SELECT …; then ask what came in the last minute: "
    "IN (SELECT k FROM b [RANGE 1 MINUTE])"
)


def as_joins(node: exp.Select, context: Context) -> exp.Select:
    """Rewrite sub-queries over streams in WHERE to joins."""
    where = child(node, "where")
    if where is None or not any(_reads_stream(q, context) for q in where.find_all(exp.Select)):
        return node
    changed = node.copy()
    if not _join_sub_queries(changed, context, same_window=False):
        return changed
    entries = child(changed, "entries")
    first = entries[0].this if isinstance(entries[0], nodes.JoinInput) else entries[0]
    if child(first, "frame") is None and child(changed, "window") is None:
        first.set("frame", windows.now(span_of(first)))
    return changed


def join_same_windows(select: exp.Select, context: Context) -> None:
    """Rewrite sub-queries over rows of the outer row's window to joins.

    The sub-queries are rewritten before `rows_with_windows` replaces the window functions.
    """
    where = child(select, "where")
    if where is not None and child(select, "group") is None and any(map(_same_window, _queries_in(where))):
        _join_sub_queries(select, context, same_window=True)


def _queries_in(node: exp.Expression) -> Iterator[exp.Select]:
    return node.find_all(exp.Select)


def _same_window(query: exp.Select) -> bool:
    """Return True for a sub-query over rows of the window of the outer row.

    The sub-query then compares window_start.
    """
    where, entries = child(query, "where"), from_entries(query)
    if where is None or child(query, "group") is not None or len(entries) != 1:
        return False
    return window_function_of(entries[0][0]) is not None and any(
        _is_start(pair.this) and _is_start(pair.expression) for pair in where.find_all(exp.EQ)
    )


def _is_start(node: exp.Expression) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == "window_start"


def _join_sub_queries(select: exp.Select, context: Context, *, same_window: bool) -> bool:
    """Rewrite sub-queries over streams to joins.

    With `same_window`, only sub-queries over the window of the outer row are rewritten.
    """
    kept: list[exp.Expression] = []
    entries = list(child(select, "entries"))
    before = len(entries)
    taken = {_alias(entry).lower() for entry, _ in from_entries(select)}
    outside = [
        (_alias(entry), _schema(entry, context))
        for entry, join in from_entries(select)
        if not isinstance(entry.this, (nodes.TableFunctionCall, nodes.ListElements))
        and (join is None or child(join, "side") not in ("SEMI", "ANTI"))
    ]
    for part in _conjuncts(child(select, "where").this):
        asked = None
        if not same_window or any(map(_same_window, _queries_in(part))):
            asked = _find_sub_query(part, context)
        if asked is None:
            kept.append(part)
            continue
        query, negated, value = asked
        if not same_window:
            _refuse_equal_windows(query, part, negated=negated, grouped=child(select, "group") is not None)
        if value is not None:
            value = _qualify_outer_value(value, outside)
        rows = _in_windows(query) if same_window else _prepare_sub_query(query, taken, outside, context)
        entries.append(_join(part, rows, taken, context, negated=negated, value=value))
    select.set("entries", entries)
    select.set("where", exp.Where(this=_conjunction(kept)) if kept else None)
    return len(entries) > before


def _in_windows(query: exp.Select) -> exp.Select:
    entry, _ = from_entries(query)[0]
    if child(entry, "alias") is None:
        entry.set("alias", exp.Identifier(this=_alias(entry), quoted=True))
    return query


def _refuse_equal_windows(query: exp.Select, part: exp.Expression, *, negated: bool, grouped: bool) -> None:
    bounds = {column.name.lower() for column in query.find_all(exp.Column)}
    if "window_start" not in bounds or child(query, "group") is not None:
        return
    kind = "ANTI" if negated else "SEMI"
    hint = (
        f"write L {kind} JOIN (SELECT * FROM TUMBLE(b, ts, INTERVAL '5' MINUTE)) AS R "
        "ON L.k = R.k AND L.window_start = R.window_start AND L.window_end = R.window_end"
    )
    if grouped:
        hint = "ask without GROUP BY in a stream, CREATE STREAM s AS SELECT …, and aggregate FROM s [RANGE …]"
    raise StatementError(
        "a sub-query over the window of the outer row must become a join", span_of(part), hint
    )


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        inner = _conjuncts(node.this)
        return inner if len(inner) > 1 else [node]
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]


def _conjunction(parts: list[exp.Expression]) -> exp.Expression:
    whole = parts[0]
    for part in parts[1:]:
        whole = at(exp.And(this=whole, expression=part), span_of(whole))
    return whole


def _find_sub_query(
    part: exp.Expression, context: Context
) -> tuple[exp.Select, bool, exp.Expression | None] | None:
    """Find the sub-query over a stream in a condition.

    Return the sub-query, True if it is negated, and the left side of an IN.
    """
    inner, negated = part, False
    while isinstance(inner, (exp.Not, exp.Paren)):
        negated ^= isinstance(inner, exp.Not)
        inner = inner.this
    value: exp.Expression | None = None
    query: exp.Expression | None = None
    if isinstance(inner, exp.Exists):
        query = inner.this
    elif isinstance(inner, exp.In) and child(inner, "query") is not None:
        query, value = child(inner, "query"), inner.this
    while isinstance(query, exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select) and _reads_stream(query, context):
        return query, negated, value
    asked = next((q for q in part.find_all(exp.Select) if _reads_stream(q, context)), None)
    if asked is None:
        return None
    if isinstance(query, exp.Union):
        raise StatementError("a sub-query in WHERE must read one stream", span_of(asked), _PLAIN)
    if isinstance(asked.parent, exp.Subquery) and not isinstance(asked.parent.parent, exp.In):
        raise StatementError(
            "a sub-query over a stream has no single value",
            span_of(asked),
            "join it: FROM a [NOW] AS a, (SELECT max(x) AS m FROM b [RANGE 1 MINUTE SLIDE 1 MINUTE]) AS q "
            "[RANGE 1 MINUTE] WHERE a.x > q.m",
        )
    raise StatementError(
        "a sub-query over a stream must be a condition of WHERE, joined by AND",
        span_of(part),
        "write WHERE EXISTS (…) AND …, or make two queries of an OR",
    )


def _reads_stream(query: exp.Select, context: Context) -> bool:
    for entry, _ in from_entries(query):
        named = entry.this.this if isinstance(entry.this, nodes.WindowFunction) else entry.this
        if isinstance(named, exp.Identifier):
            if not is_finite(context.relation(named)):
                return True
        elif any(_reads_stream(inner, context) for inner in entry.this.find_all(exp.Select)):
            return True
    return False


def _join(
    part: exp.Expression,
    query: exp.Select,
    taken: set[str],
    context: Context,
    *,
    negated: bool,
    value: exp.Expression | None,
) -> nodes.JoinInput:
    (entry, _), *others = from_entries(query)
    if others:
        raise StatementError("a sub-query in WHERE must read one stream", span_of(query), _PLAIN)
    if child(query, "window") is not None and child(entry, "frame") is None:
        entry.set("frame", child(query, "window"))
    alias = _alias(entry)
    if alias.lower() in taken:
        raise StatementError(
            f"{alias} is also an alias in the outer FROM", span_of(entry), "give it an alias: AS other"
        )
    taken.add(alias.lower())
    inner = child(query, "where")
    parts = [inner.this] if inner is not None else []
    if value is not None:
        parts.append(_equals(part, query, value, negated=negated))
    condition = _conjunction(parts) if parts else at(exp.Boolean(this=True), span_of(query))
    if inner is not None:
        _qualify(inner, alias, _schema(entry, context))
    side = "ANTI" if negated else "SEMI"
    return at(nodes.JoinInput(this=entry, side=side, on=condition), span_of(part))


def _prepare_sub_query(
    query: exp.Select, taken: set[str], outside: list[tuple[str, Schema]], context: Context
) -> exp.Select:
    """Prepare a sub-query for a join.

    Groups of a sliding window get a window of one slide, in which they are valid.
    """
    from slicemill.binder.queries import bind_query  # imported here because `bind_query` binds conditions

    if not _has_groups(query, context):
        # SEMI and ANTI joins ignore duplicates, so groups without HAVING are not needed.
        query.set("group", None)
        return query
    _refuse_outside(query, taken, outside, context)
    bound = bind_query(query, context)
    if not isinstance(bound, SelectQuery) or bound.schema.changelog or not reads_windows_of_time(bound):
        raise StatementError(
            "groups in a sub-query need a sliding window",
            span_of(query),
            "give the stream one: b [RANGE 1 HOUR SLIDE 1 MINUTE]",
        )
    assert bound.slide is not None, "windows of time slide"
    frame = nodes.FrameClause(kind="RANGE", this=windows.duration_of(bound.slide))
    alias = exp.Identifier(this=f"asked_{len(taken)}", quoted=True)
    results = nodes.StreamInput(this=query, alias=alias, frame=at(frame, span_of(query)))
    names = [exp.Identifier(this=name, quoted=True) for name in bound.schema.names]
    around = exp.Select(expressions=[at(exp.Column(this=name), span_of(query)) for name in names])
    around.set("entries", [at(results, span_of(query))])
    return at(around, span_of(query))


def _has_groups(query: exp.Select, context: Context) -> bool:
    if any(child(query, key) is not None for key in ("having", "order", "limit", "qualify", "with_")):
        return True
    frames = [child(query, "window"), *(child(entry, "frame") for entry, _ in from_entries(query))]
    return (
        any(isinstance(entry.this, nodes.WindowFunction) for entry, _ in from_entries(query))
        or any(
            frame is not None and (child(frame, "slide") or frame.args["kind"] == "SESSION")
            for frame in frames
        )
        or any(
            is_aggregate(call.name, context.catalog)
            for item in query.expressions
            for call in item.find_all(exp.Anonymous)
        )
    )


def _refuse_outside(
    query: exp.Select, taken: set[str], outside: list[tuple[str, Schema]], context: Context
) -> None:
    inside = {name.lower() for entry, _ in from_entries(query) for name in _schema(entry, context).names}
    known = {name.lower() for _, schema in outside for name in schema.names} - inside
    for column in query.find_all(exp.Column):
        if column.table.lower() in taken or (not column.table and column.name.lower() in known):
            raise StatementError(
                "groups in a sub-query cannot read columns of the outer row",
                span_of(column),
                "use IN: k IN (SELECT k FROM b [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k HAVING count(*) > 3)",
            )


def _schema(entry: nodes.StreamInput, context: Context) -> Schema:
    from slicemill.binder.queries import bind_query  # imported here because `bind_query` binds conditions

    if isinstance(entry.this, exp.Identifier):
        return schema_of(context.relation(entry.this))
    if isinstance(entry.this, nodes.WindowFunction):
        own = schema_of(context.relation(entry.this.this))
        return Schema((*own, *(Column(name, TIMESTAMP) for name in BOUND_COLUMNS)))
    return bind_query(entry.this, context).schema


def _equals(
    part: exp.Expression, query: exp.Select, value: exp.Expression, *, negated: bool
) -> exp.Expression:
    """Return the join condition that IN or NOT IN tests.

    For NOT IN, the condition is also true if either side is NULL, as in SQL.
    """
    items = query.expressions
    if len(items) != 1 or isinstance(items[0], exp.Star):
        raise StatementError(
            "IN compares with one column", span_of(query), "or write EXISTS (SELECT 1 FROM b … WHERE …)"
        )
    entry, _ = from_entries(query)[0]
    item = items[0].this if isinstance(items[0], exp.Alias) else items[0]
    for column in [item, *item.find_all(exp.Column)]:
        if isinstance(column, exp.Column) and not column.table:
            column.set("table", exp.Identifier(this=_alias(entry), quoted=True))
    place = span_of(part)
    same: exp.Expression = at(exp.EQ(this=value.copy(), expression=item.copy()), place)
    if not negated:
        return same
    for one in (value, item):
        unknown = at(exp.Is(this=one.copy(), expression=exp.Null()), place)
        same = at(exp.Or(this=same, expression=unknown), place)
    return at(exp.Paren(this=same), place)


def _qualify(where: exp.Expression, alias: str, schema: Schema) -> None:
    """Qualify columns in the WHERE of a sub-query with the alias of its relation."""
    for column in where.find_all(exp.Column):
        if not column.table and schema.find(column.name) is not None:
            column.set("table", exp.Identifier(this=alias, quoted=True))


def _qualify_outer_value(value: exp.Expression, outside: list[tuple[str, Schema]]) -> exp.Expression:
    """Qualify the left side of an IN with the alias of its outer relation.

    The inner relation could have a column of the same name.
    """
    for column in [value, *value.find_all(exp.Column)]:
        if isinstance(column, exp.Column) and not column.table:
            owners = [alias for alias, schema in outside if schema.find(column.name) is not None]
            if len(owners) == 1:
                column.set("table", exp.Identifier(this=owners[0], quoted=True))
    return value


def _alias(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    if alias is not None:
        return str(alias.name)
    named = entry.this.this if isinstance(entry.this, nodes.WindowFunction) else entry.this
    return str(named.name) if isinstance(named, exp.Identifier) else ""
