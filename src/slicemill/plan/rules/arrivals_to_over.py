"""arrivals_to_over: an aggregate over a window of FROM that answers each tuple becomes one with OVER.

    bid ─ γ avg(price) by item, RANGE 60 ─ q       bid ─ avg(price) OVER (item, RANGE 60 - 1 µs) ─ π ─ q

Without SLIDE, a tuple gets a row for its own group, over what the window holds at that moment. OVER says the
same where the window holds tuples of the group alone: a stretch of time does, the last rows of a stream do if
there are no groups. FROM leaves out the tuple that is just as old as the window, OVER has it in; a count of
FROM has the tuple itself in it, one of OVER has not.

GROUP BY runs the base version of an aggregate, OVER its window version. So aggregates where these differ stay
as they are: a user's own with both versions, and those that go by what has left a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import Call, ColumnRef, Expr, Literal
from slicemill.esl.types.query import FrameUnit, Window, WindowCall
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.esl.types.schema import DOUBLE, Column, Kind, Schema
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.over.spec import WindowAggregate
from slicemill.operators.select.spec import Project
from slicemill.operators.windowed_group.spec import RelationAggregate

# In a window they know how many tuples came before it, or left it.
_KNOWS_THE_PAST = ("approx_count_if", "priority_sample")


def arrivals_to_over(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    nodes: dict[str, Node] = {}
    for node in graph:
        operator = node.operator
        if isinstance(operator, RelationAggregate) and (window := _over(operator, catalog)) is not None:
            nodes.update((made.id, made) for made in _rewritten(graph, node, operator, window))
        else:
            nodes[node.id] = node
    return QueryGraph(nodes, graph.streams)


def same_over(call: AggregateCall, catalog: Catalog) -> bool:
    """Does a call give the same over what a window of FROM holds as it does with OVER?"""
    base, own = catalog.aggregates(call.name)
    if base is None and own is None:
        return call.name.lower() not in _KNOWS_THE_PAST
    return own is None or (base is not None and base.model is not None)


def over_calls(operator: RelationAggregate, window: Window) -> tuple[WindowCall, ...]:
    """The calls with OVER; their columns have names that no column of a tuple has."""
    keys = tuple(item.expr for item in operator.group_by)
    return tuple(
        WindowCall(
            call.name,
            call.arguments,
            call.distinct,
            keys,
            window,
            tuple(Column(_over_name(column), column.type) for column in call.columns),
        )
        for call in operator.calls
    )


def shown_items(operator: RelationAggregate) -> tuple[SelectItem, ...]:
    """What is shown of a tuple with the answers of its calls: its group, which has one zero, and these."""
    groups = tuple(SelectItem(item.name, _with_one_zero(item.expr)) for item in operator.group_by)
    columns = (column for call in operator.calls for column in call.columns)
    return (
        *groups,
        *(SelectItem(column.name, ColumnRef(_over_name(column), column.type)) for column in columns),
    )


def _over(operator: RelationAggregate, catalog: Catalog) -> Window | None:
    """The window of OVER that says the same, if there is one."""
    if operator.slide is not None or operator.where is not None:
        return None
    if not all(same_over(call, catalog) for call in operator.calls):
        return None
    (column, window), *others = operator.windows
    if others or column is not None or (window.frame is FrameUnit.ROWS and operator.group_by):
        return None
    assert window.extent is not None, "the binder asks for a window with a beginning"
    return Window(window.frame, window.extent - 1)


def _rewritten(graph: QueryGraph, node: Node, operator: RelationAggregate, window: Window) -> Iterator[Node]:
    calls = over_calls(operator, window)
    columns = tuple(column for call in calls for column in call.columns)
    source = graph[node.inputs[0]]
    over = replace(
        node,
        id=f"{node.id} over",
        operator=WindowAggregate(calls),
        schema=Schema((*source.schema.columns, *columns)),
    )
    yield over
    yield replace(node, operator=Project(shown_items(operator)), inputs=(over.id,))


def _over_name(column: Column) -> str:
    return f"over.{column.name}"


def _with_one_zero(expr: Expr) -> Expr:
    return Call("+", (expr, Literal(0.0, DOUBLE)), DOUBLE) if expr.type.kind is Kind.DOUBLE else expr
