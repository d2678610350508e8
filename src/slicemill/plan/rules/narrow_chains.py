"""narrow_chains: prune unused columns between the binary joins of a join chain.

a ─ ⋈ ─ π a.*, b.* ─ ⋈ ─ π a.v      a ─ ⋈ ─ π a.k, a.v ─ ⋈ ─ π a.v
b ──┘            c ──┘              b ──┘            c ──┘
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import columns_of
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import WindowJoin
from slicemill.operators.specs import Project
from slicemill.plan.join_chain import JOINED
from slicemill.plan.rules.sharing import columns_read
from slicemill.types import Schema


def narrow_chains(graph: QueryGraph, catalog: Catalog) -> QueryGraph:  # noqa: ARG001
    nodes = {node.id: node for node in graph}
    # Consumers precede their inputs in this loop, so that a join is pruned before its inputs.
    for node in reversed(list(graph)):
        join = node.operator
        if isinstance(join, WindowJoin) and join.aliases[0] == JOINED:
            before = nodes[node.inputs[0]]
            assert isinstance(before.operator, Project), "a join chain projects the columns of each join"
            read = columns_read(QueryGraph(nodes, graph.streams), node) | {
                window.expires.column for window in join.windows if window.expires is not None
            }
            if join.condition is not None:
                read |= columns_of(join.condition)
            items = tuple(item for item in before.operator.items if item.name in read)
            dropped = {item.name for item in before.operator.items} - {item.name for item in items}
            nodes[before.id] = replace(_without_columns(before, dropped), operator=Project(items))
            nodes[node.id] = _without_columns(node, dropped)
    return QueryGraph(nodes, graph.streams)


def _without_columns(node: Node, names: set[str]) -> Node:
    return replace(node, schema=Schema(tuple(column for column in node.schema if column.name not in names)))
