"""Binder of queries: WITH, UNION, and continuous queries or queries over tables."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slicemill import types as t
from slicemill.binder import relations, select
from slicemill.binder.changelog import as_changelog, refuse_open_rank
from slicemill.binder.context import Context, ErrorCollector, is_finite
from slicemill.binder.dialects import set_operations as ends
from slicemill.binder.from_clause import from_entries
from slicemill.catalog.expressions import Cast, Expr
from slicemill.catalog.queries import Continuous, RelationQuery, SelectItem, SelectQuery, UnionQuery
from slicemill.errors import format_count
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import Column, Schema, Type


def bind_query(node: exp.Expression, context: Context) -> Continuous | RelationQuery:
    from slicemill.binder.dialects.rewrite import (
        normalize_select,  # imported here because of a cycle: `normalize_select` binds sub-queries
    )

    definitions = child(node, "with_")
    for definition in definitions.expressions if definitions is not None else ():
        name = definition.args["alias"].name
        context = context.with_local(name, bind_query(definition.this, context))
    if isinstance(node, exp.Subquery):
        return bind_query(node.this, context)
    if isinstance(node, exp.Union):
        around = ends.wrap_union(node)
        return _bind_union(node, context) if around is None else bind_query(around, context)
    assert isinstance(node, exp.Select), "the grammar has no other queries"
    node = normalize_select(node, context)
    if not isinstance(node, exp.Select):
        return bind_query(node, context)
    if reads_a_stream(node, context):
        around = ends.wrap_distinct(node)
        return select.bind_select(node, context) if around is None else bind_query(around, context)
    return relations.bind_select(node, context)


def reads_a_stream(node: exp.Select, context: Context) -> bool:
    """Return True if FROM has a stream.

    This function also reports all unknown names in FROM.
    """
    problems = ErrorCollector()
    streams = False
    for entry, _ in from_entries(node):
        with problems.collect():
            if isinstance(entry.this, exp.Identifier):
                streams |= not is_finite(context.relation(entry.this))
            elif not isinstance(entry.this, nodes.TableFunctionCall | nodes.ListElements):
                streams |= not isinstance(bind_query(entry.this, context), RelationQuery)
    problems.raise_any()
    return streams


def _bind_union(node: exp.Union, context: Context) -> UnionQuery | RelationQuery:
    problems = ErrorCollector()
    branches: list[tuple[Continuous | RelationQuery, exp.Expression]] = []
    for branch in ends.branches_of(node):
        with problems.collect():
            branches.append((bind_query(branch, context), branch))
    over_tables = [(query, branch) for query, branch in branches if isinstance(query, RelationQuery)]
    bound: list[tuple[SelectQuery, exp.Expression]] = []
    for query, branch in branches:
        with problems.collect():
            if not isinstance(query, RelationQuery):
                bound += [(select_, branch) for select_ in _selects(query)]
            elif len(over_tables) < len(branches):
                raise StatementError(
                    "UNION merges streams by timestamp; a table has none",
                    span_of(branch),
                    "make a union of streams, or one of tables",
                )
    problems.raise_any()
    if over_tables:
        return relations.union_of(over_tables)
    for branch_query, branch in bound:
        refuse_open_rank(branch_query, branch)
    if any(query.schema.changelog for query, _ in bound):
        bound = [(as_changelog(query), branch) for query, branch in bound]
    columns = union_columns([(query.schema, branch) for query, branch in bound])
    schema = Schema(columns, changelog=bound[0][0].schema.changelog)
    return UnionQuery(
        tuple(select.rename_columns(query, branch_items(query, schema)) for query, _ in bound), schema
    )


def union_columns(branches: Sequence[tuple[Schema, exp.Expression]]) -> tuple[Column, ...]:
    """Return the columns of a UNION of queries.

    The names are those of the first branch, and the types are common to all branches.
    """
    first = branches[0][0]
    types: list[Type] = [column.type for column in first]
    for schema, branch in branches[1:]:
        if len(schema) != len(first):
            raise StatementError(
                f"this branch has {format_count(len(schema), 'column')}, the first has {len(first)}",
                span_of(branch),
                "select the same columns in each branch",
            )
        for index, column in enumerate(schema):
            merged = t.common(types[index], column.type)
            if merged is None:
                raise StatementError(
                    f"column {column.name} is {column.type} here and {types[index]} before",
                    span_of(branch),
                    "convert one of them with CAST",
                )
            types[index] = merged
    return tuple(Column(c.name, type_) for c, type_ in zip(first, types, strict=True))


def _selects(query: Continuous) -> list[SelectQuery]:
    return (
        [query]
        if isinstance(query, SelectQuery)
        else [s for branch in query.branches for s in _selects(branch)]
    )


def branch_items(query: SelectQuery | RelationQuery, schema: Schema) -> tuple[SelectItem, ...]:
    """Return the select list of a UNION branch, with the names and types of the UNION."""
    # The select list of a query with EMIT FINAL begins with items of a changelog that are not in the
    # query's schema.
    hidden = len(query.items) - len(query.schema)
    shown = tuple(
        SelectItem(column.name, _cast(item.expr, column.type))
        for item, column in zip(query.items[hidden:], schema, strict=True)
    )
    return (*query.items[:hidden], *shown)


def _cast(expr: Expr, type_: Type) -> Expr:
    return expr if expr.type == type_ else Cast(expr, type_)
