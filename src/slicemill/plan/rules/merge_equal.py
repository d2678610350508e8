"""merge_equal: selections and projections that are the same, of the same input, become one node.

A node that a stream is named after stays: its log is that stream's.
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.esl.catalog import Catalog
from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.operators import Filter, Operator, Project


def merge_equal(graph: QueryGraph, catalog: Catalog) -> QueryGraph:  # noqa: ARG001
    named = set(graph.streams.values())
    known: dict[tuple[Operator, tuple[str, ...]], str] = {}
    instead: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    for node in graph:
        inputs = tuple(instead.get(source, source) for source in node.inputs)
        if isinstance(node.operator, (Filter, Project)) and node.id not in named:
            first = known.setdefault((node.operator, inputs), node.id)
            if first != node.id:
                instead[node.id] = first
                continue
        nodes[node.id] = replace(node, inputs=inputs)
    return QueryGraph(nodes, graph.streams)
