"""drop_boxes: insert a load-shedding operator (drop box) before queries with a load budget.

Queries without a budget bypass the drop box, so they never lose rows. Queries with equal budgets share a drop
box, so they can also share the operators after it.
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.catalog.catalog import Catalog, QueryDefinition
from slicemill.catalog.queries import AGE, WINDOWS, SelectQuery
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import AgeLimit, WindowJoin
from slicemill.operators.specs import Drop, Scan, WholeWindows
from slicemill.plan.content import digest
from slicemill.plan.tasks import log_of


def drop_boxes(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    for query in catalog.queries.values():
        if query.load is not None and query.name in graph.nodes:
            with_limit = _with_age_limit if query.load.method == AGE else _with_box
            graph = with_limit(graph, query)
    return graph


def _with_age_limit(graph: QueryGraph, query: QueryDefinition) -> QueryGraph:
    """Shed load in a query's joins: let them skip pairs of rows that are far apart in time.

    The joins skip pairs instead of dropping rows, because other queries share the stored rows.
    """
    assert query.load is not None
    limit = AgeLimit(query.load, query.options.weight)
    own = _own_nodes(graph, query.name)
    nodes = {
        node.id: replace(node, operator=replace(node.operator, limit=limit))
        if node.id in own and isinstance(node.operator, WindowJoin)
        else node
        for node in graph
    }
    return QueryGraph(nodes, graph.streams)


def _with_box(graph: QueryGraph, query: QueryDefinition) -> QueryGraph:
    own = _own_nodes(graph, query.name)
    operator = _box(query)
    nodes: dict[str, Node] = {}
    box_id = ""
    for node in graph:
        if node.id not in own:
            nodes[node.id] = node
            continue
        inputs = []
        for source in map(graph.__getitem__, node.inputs):
            if source.id in own or isinstance(source.operator, Scan):
                inputs.append(source.id)
                continue
            box_id = f"drop box #{digest(operator)} of {source.id}"
            nodes[box_id] = Node(box_id, operator, (source.id,), source.schema, source.kind)
            inputs.append(box_id)
        if node.id == query.name and operator.budget.method == WINDOWS:
            whole = f"{query.name}: whole windows"
            nodes[whole] = Node(whole, WholeWindows(box_id), tuple(inputs), node.schema, node.kind)
            inputs = [whole]
        nodes[node.id] = replace(node, inputs=tuple(inputs))
    return QueryGraph(nodes, graph.streams)


def _box(query: QueryDefinition) -> Drop:
    assert query.load is not None
    range_us = None
    if query.load.method == WINDOWS:
        assert isinstance(query.query, SelectQuery) and query.query.inputs[0].window is not None
        range_us = query.query.inputs[0].window.extent
    return Drop(query.load, query.options.weight, query.utility, range_us)


def _own_nodes(graph: QueryGraph, sink: str) -> set[str]:
    """Return the ids of the graph nodes that compute one query from the logs and sources that it reads."""
    own: set[str] = set()
    waiting = [sink]
    while waiting:
        current = waiting.pop()
        own.add(current)
        for source in graph[current].inputs:
            if log_of(graph[source], graph) is None and not isinstance(graph[source].operator, Scan):
                waiting.append(source)
    return own
