"""Binder of sub-queries over tables outside FROM: scalar values, EXISTS and IN.

In a continuous query the sub-query becomes a table function call, which runs once for each row of the stream.
The columns that the sub-query reads are the arguments of the call:

    SELECT k FROM s WHERE v > (SELECT max(v) FROM t WHERE t.k = s.k)
        →  FROM s, TABLE(f(s.k)) AS "query 1" WHERE s.v > "query 1".value
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from slicemill.binder.context import Context
from slicemill.binder.expressions import comparable
from slicemill.binder.scope import Scope
from slicemill.catalog.catalog import queries_in
from slicemill.catalog.expressions import (
    Argument,
    Call,
    Case,
    ColumnRef,
    ExistsQuery,
    Expr,
    Literal,
    ScalarQuery,
    walk,
)
from slicemill.catalog.queries import RelationInput, RelationQuery, SelectItem
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import span_of
from slicemill.types import BOOLEAN, INT, Column, Kind, Schema

_MEMBER = "member"  # name of the call's argument that has the left side of an IN


@dataclass(frozen=True, slots=True)
class SubQueryCall:
    """Sub-query that is used as a value, in EXISTS or in IN.

    `scalar` is set for a value. For IN, `value` is the left side, bound from the syntax node `member`.
    """

    node: exp.Expression
    scalar: bool
    value: Expr | None = None
    member: exp.Expression | None = None


def call_of(sub_query: SubQueryCall, context: Context, scope: Scope, alias: str) -> RelationInput:
    """Bind a sub-query over tables to a function call that runs for each stream row.

    The arguments of the call are the columns of the stream that the sub-query reads, and the left side of an
    IN.
    """
    given = Scope(scope.relations, qualified=True, merged=scope.merged, as_arguments=True)
    from slicemill.binder.relations import bind_relation  # imported here because of a circular import

    inner = bind_relation(sub_query.node, replace(context, in_body=True), outer=given)
    columns = [ColumnRef.to(column.of(name)) for name, schema in scope.relations for column in schema]
    read = {part.name for expr in _exprs_of(inner) for part in walk(expr) if isinstance(part, Argument)}
    arguments: list[tuple[str, Expr]] = [(column.name, column) for column in columns if column.name in read]
    if sub_query.value is not None:
        arguments.append((_MEMBER, sub_query.value))
        sub_query = replace(sub_query, value=Argument(_MEMBER, sub_query.value.type))
    result = value_of(sub_query, inner)
    if result.type.kind is Kind.NULL:
        raise StatementError("this NULL has no type", span_of(sub_query.node), "write CAST(NULL AS …)")
    schema = Schema((Column("value", result.type),))
    one = RelationQuery((), None, (), (), None, (SelectItem("value", result),), False, (), None, schema)
    return RelationInput("sub-query", alias, schema, one, tuple(arguments))


def _exprs_of(query: RelationQuery) -> Iterator[Expr]:
    """Yield all expressions of a query over tables, including nested queries."""
    for part in queries_in(query):
        assert isinstance(part, RelationQuery), "it reads tables"
        yield from (item.expr for item in (*part.group_by, *part.items))
        yield from (argument for call in part.aggregates for argument in call.arguments)
        yield from (expr for expr, _ in part.order_by)
        yield from (value for entry in part.inputs for _, value in entry.arguments or ())
        yield from (expr for expr in (part.where, part.having) if expr is not None)


def value_of(sub_query: SubQueryCall, inner: RelationQuery) -> Expr:
    """Return the expression that evaluates a sub-query as a value, EXISTS or IN.

    `inner` is the bound sub-query.
    """
    if sub_query.member is None and not sub_query.scalar:
        return ExistsQuery(inner)
    if len(inner.schema) != 1:
        what = (
            "a query used as a value selects one column"
            if sub_query.scalar
            else "IN compares with one column"
        )
        raise StatementError(what, span_of(sub_query.node))
    if sub_query.member is None or sub_query.value is None:
        return ScalarQuery(inner, inner.schema.columns[0].type)
    return _is_member(inner, sub_query.node, sub_query.value, sub_query.member)


def _is_member(inner: RelationQuery, node: exp.Expression, value: Expr, member: exp.Expression) -> Expr:
    """Return `value IN (query)` with SQL's three-valued logic.

    The value is NULL if no row is equal but the comparison with a row is NULL.
    """
    (column,) = inner.schema.columns
    left, right = comparable(value, ColumnRef.to(column.of("in")), member, node)
    same = Call("=", (left, right), BOOLEAN)
    entry = RelationInput("in", "in", inner.schema, inner)
    one = (SelectItem("one", Literal(1, INT)),)

    def exists(condition: Expr) -> ExistsQuery:
        schema = Schema((Column("one", INT),))
        return ExistsQuery(RelationQuery((entry,), condition, (), (), None, one, False, (), None, schema))

    unknown = Call("isnull", (same,), BOOLEAN)
    branches = ((exists(same), Literal(True, BOOLEAN)), (exists(unknown), Literal(None, BOOLEAN)))
    return Case(branches, Literal(False, BOOLEAN), BOOLEAN)
