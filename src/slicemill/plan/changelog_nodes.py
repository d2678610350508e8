"""Nodes of queries with changelog results: GROUP BY, top-N, DISTINCT and EMIT."""

from __future__ import annotations

from typing import Protocol

from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import RankedBy, SelectItem, SelectQuery
from slicemill.operators.changelog.spec import Distinct, Emit, GroupChanges, TopN
from slicemill.operators.graph import Node
from slicemill.operators.protocol import Operator
from slicemill.operators.specs import Project
from slicemill.operators.window.spec import WindowTop
from slicemill.types import BIGINT, Column, Schema, changelog


class GraphBuilder(Protocol):
    """Builder that adds nodes to a query graph."""

    def add(self, name: str, operator: Operator, inputs: tuple[Node, ...], schema: Schema) -> Node: ...


def add_group_changes(builder: GraphBuilder, select: SelectQuery, node: Node, name: str) -> Node:
    """Add a GROUP BY without a window.

    Without aggregates, over an append-only input, the node is a DISTINCT.
    """
    groups = tuple(Column(item.name, item.expr.type) for item in select.group_by)
    if not select.aggregates and not node.schema.changelog:
        grouped = builder.add(f"{name}: groups", Project(select.group_by), (node,), Schema(groups))
        return builder.add(f"{name}: distinct", Distinct(groups), (grouped,), grouped.schema)
    values = tuple(column for call in select.aggregates for column in call.columns)
    schema = changelog((*groups, *values), (column.name for column in groups))
    operator = GroupChanges(select.group_by, select.aggregates, node.schema.changelog)
    return builder.add(f"{name}: aggregate", operator, (node,), schema)


def add_top_n(builder: GraphBuilder, select: SelectQuery, node: Node, name: str) -> Node:
    """Add the top-N operator of QUALIFY or of ORDER BY … LIMIT.

    The first rows are those of each window, or of all rows so far.
    """
    if select.rank is not None:
        assert select.rank.limit is not None, "the binder rejects a rank without a limit"
        shown = select.rank.column.name if select.rank.shown else None
        if select.rank.by.of_one_time and not node.schema.changelog:
            columns = (*node.schema.own, *((Column(shown, BIGINT),) if shown is not None else ()))
            at_close = WindowTop(select.rank.by, select.rank.limit, shown)
            node = builder.add(f"{name}: top", at_close, (node,), Schema(columns))
        else:
            node = _top(builder, select.rank.by, select.rank.limit, shown, node, name)
    if select.order is None:
        return node
    if select.slide is not None:
        operator = WindowTop(select.order, select.limit)
        return builder.add(f"{name}: top", operator, (node,), node.schema)
    assert select.limit is not None, "the binder rejects ORDER BY without a limit"
    return _top(builder, select.order, select.limit, None, node, name)


def _top(builder: GraphBuilder, by: RankedBy, limit: int, shown: str | None, node: Node, name: str) -> Node:
    operator = TopN(by, limit, shown, node.schema.changelog)
    columns = (*node.schema.own, *((Column(shown, BIGINT),) if shown is not None else ()))
    key = by.key(limit, shown, node.schema)
    schema = Schema(columns) if operator.appends else changelog(columns, key)
    return builder.add(f"{name}: top", operator, (node,), schema)


def select_list_schema(select: SelectQuery, node: Node) -> Schema:
    """Return the schema of a query after its select list and before EMIT."""
    columns = tuple(Column(item.name, item.expr.type) for item in select.items)
    return Schema(columns, select.schema.changelog or node.schema.changelog, select.schema.key)


def add_distinct_and_emit(builder: GraphBuilder, select: SelectQuery, node: Node, name: str) -> Node:
    """Add the nodes of SELECT DISTINCT and of EMIT."""
    if select.distinct:
        columns = node.schema.own.columns
        if node.schema.changelog:
            items = tuple(SelectItem(column.name, ColumnRef.to(column)) for column in columns)
            schema = changelog(columns, (column.name for column in columns))
            node = builder.add(f"{name}: distinct", GroupChanges(items, (), True), (node,), schema)
        else:
            node = builder.add(f"{name}: distinct", Distinct(columns), (node,), node.schema)
    if select.emit is not None:
        key = tuple(column for column in node.schema.own if column.name in (node.schema.key or ()))
        node = builder.add(f"{name}: emit", Emit(select.emit.every, key), (node,), select.schema)
    return node
