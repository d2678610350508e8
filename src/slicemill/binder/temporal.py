"""Binder of temporal queries, which merge successive tuples with equal values (L6, L7).

The input of a temporal query is written as `FROM Stream(attributes) AS S RANGE … SLIDES …`. A merged row is
valid in a period, which the query reads as VALID(S). OPEN(S) is true while the values have not changed yet.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.binder.changelog import late_tuples
from slicemill.binder.context import Context, ErrorCollector
from slicemill.binder.environments import SelectEnvironment, TemporalEnvironment, mentions
from slicemill.binder.expressions import as_key, bind_condition, bind_key
from slicemill.binder.from_clause import BoundInput
from slicemill.binder.scope import Scope
from slicemill.binder.select_list import bind_items, refuse_null_columns, schema_of_items, with_unique_names
from slicemill.catalog.expressions import ColumnRef, Expr, conjunction
from slicemill.catalog.queries import FrameUnit, LateTuples, SelectItem, SelectQuery, TemporalQuery
from slicemill.errors import did_you_mean
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import BOOLEAN, PERIOD, Column, Schema

VALID = ColumnRef("VALID", PERIOD)
OPEN = ColumnRef("OPEN", BOOLEAN)
_OF_RUNS = ("valid", "open")


def bind_temporal(node: exp.Select, entries: list[BoundInput], context: Context) -> SelectQuery:
    if len(entries) > 1:
        raise StatementError(
            "a temporal query reads one stream", span_of(node), "join its results in another query"
        )
    for key in ("group", "having", "window"):
        if child(node, key) is not None:
            raise StatementError(f"a temporal query has no {key.upper()} clause", span_of(child(node, key)))
    entry = entries[0]
    stream = entry.input
    if stream.finite:
        raise StatementError("a temporal query reads a stream", span_of(entry.node))
    assert stream.window is not None, "the grammar asks for RANGE and SLIDES"
    whole = Scope(((stream.alias, stream.schema),), qualified=False)
    row_env = SelectEnvironment(context, whole, place="a temporal query", windows_allowed=False)
    problems = ErrorCollector()

    attributes: list[Column] = []
    for identifier in child(entry.node, "coalesce"):
        with problems.collect():
            column = stream.schema.find(identifier.name)
            if column is None:
                hint = did_you_mean(identifier.name, stream.schema.names)
                raise StatementError(f"there is no column {identifier.name}", span_of(identifier), hint)
            as_key(ColumnRef.to(column), identifier)
            attributes.append(column)
    partition: list[SelectItem] = []
    for part in child(entry.node, "partition_by") or ():
        with problems.collect():
            expr = bind_key(part, row_env)
            partition.append(SelectItem(expr.name if isinstance(expr, ColumnRef) else to_esl(part), expr))
    problems.raise_any()

    keys = [Column(item.name, item.expr.type) for item in partition]
    shown = Schema((*(c for c in keys if c not in attributes), *attributes))
    by_rows = stream.window.frame is FrameUnit.ROWS
    run_scope = Scope(((stream.alias, shown),), qualified=False)
    run_env = TemporalEnvironment(context, run_scope, stream.alias, VALID, OPEN, by_rows)
    before, after = _split_where(node, row_env, run_env, problems)
    bound = bind_items(node.expressions, run_env, run_env.scope, context, problems)
    refuse_null_columns(bound, problems)
    problems.raise_any()
    items = with_unique_names([item for item, _ in bound])
    late = _late(entry, context, by_rows)
    changes = child(entry.node, "changes")
    if changes is not None and by_rows:
        raise StatementError(
            "CHANGES needs a window of time",
            span_of(changes),
            "leave it out, or write RANGE 15 MINUTES SLIDES 1 MINUTE CHANGES",
        )
    flag = (Column(OPEN.name, BOOLEAN),) if run_env.asks_open else ()
    coalesce = TemporalQuery(
        attributes=tuple(column.name for column in attributes),
        partition_by=tuple(partition),
        window=stream.window,
        before=before,
        after=after,
        schema=Schema((*shown.columns, Column(VALID.name, PERIOD), *flag)),
        tells_open=run_env.asks_open,
        changes=changes is not None,
        late=late,
    )
    return SelectQuery((stream,), None, (), (), False, None, (), coalesce, items, schema_of_items(items))


def _late(entry: BoundInput, context: Context, by_rows: bool) -> LateTuples | None:
    """Bind LATE, which selects the late tuples that correct emitted results (L5)."""
    late = child(entry.node, "late")
    if late is None:
        return None
    found = late_tuples(entry.input, late, context.catalog)
    if by_rows or child(entry.node, "changes") is not None:
        what = "windows that count rows" if by_rows else "CHANGES"
        raise StatementError(
            f"late tuples correct all results of a window, which is not possible with {what}",
            span_of(late),
            "write RANGE 15 MINUTES SLIDES 1 MINUTE LATE 5 MINUTES, or give the stream a SLACK",
        )
    return found


def _split_where(
    node: exp.Select, row_env: SelectEnvironment, run_env: TemporalEnvironment, problems: ErrorCollector
) -> tuple[Expr | None, Expr | None]:
    """Split WHERE into conditions on tuples and conditions on merged rows.

    Conditions on VALID or OPEN are evaluated after tuples have been merged (coalescing).
    """
    where = child(node, "where")
    before: list[Expr] = []
    after: list[Expr] = []
    for part in _conjuncts(where.this) if where is not None else ():
        with problems.collect():
            temporal = any(call.name.lower() in _OF_RUNS for call in part.find_all(exp.Anonymous))
            condition = bind_condition(part, run_env if temporal else row_env)
            of_runs = any(mentions(condition, column) for column in (VALID, OPEN))
            (after if temporal and of_runs else before).append(condition)
    return conjunction(tuple(before)), conjunction(tuple(after))


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return _conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]
