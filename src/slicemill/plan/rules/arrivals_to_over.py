"""arrivals_to_over: replace an aggregate over a window in FROM by an OVER window with the same results.

The aggregate emits one row for each input row.

    bid ─ γ avg(price) by item, RANGE 60 ─ q       bid ─ avg(price) OVER (item, RANGE 60 - 1 µs) ─ π ─ q

Without SLIDE, each tuple emits a row for its group over the current window. OVER gives the same result if the
window can be kept per group. This is the case for RANGE windows, and for ROWS windows without groups.

FROM excludes a tuple that is exactly as old as the window, and OVER includes it. A ROWS count includes the
current tuple in FROM, but not in OVER. So the rule subtracts 1 from either length.

GROUP BY runs the base version of an aggregate, and OVER its window version. So the rule skips aggregates for
which these differ: user-defined aggregates with both versions, and aggregates that read expired tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.specs import Project
from slicemill.operators.window.spec import (
    RelationAggregate,
    WindowAggregate,
    output_items,
    over_calls,
    same_over,
)
from slicemill.types import Schema


def arrivals_to_over(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    nodes: dict[str, Node] = {}
    for node in graph:
        operator = node.operator
        if isinstance(operator, RelationAggregate) and (window := _over(operator, catalog)) is not None:
            nodes.update((made.id, made) for made in _rewrite_node(graph, node, operator, window))
        else:
            nodes[node.id] = node
    return QueryGraph(nodes, graph.streams)


def _over(operator: RelationAggregate, catalog: Catalog) -> Window | None:
    """Return the OVER window that gives the results of an aggregate over a window in FROM, or None."""
    if operator.slide is not None or operator.where is not None:
        return None
    if not all(same_over(call, catalog) for call in operator.calls):
        return None
    (column, window), *others = operator.windows
    if others or column is not None or (window.frame is FrameUnit.ROWS and operator.group_by):
        return None
    assert window.extent is not None, "the binder rejects an unbounded window"
    return Window(window.frame, window.extent - 1)


def _rewrite_node(
    graph: QueryGraph, node: Node, operator: RelationAggregate, window: Window
) -> Iterator[Node]:
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
    yield replace(node, operator=Project(output_items(operator)), inputs=(over.id,))
