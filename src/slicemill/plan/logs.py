"""Nodes of a query graph whose output is stored in a log."""

from __future__ import annotations

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.registry import kind_of


def log_of(node: Node, graph: QueryGraph) -> str | None:
    """Return the log that stores a node's output, if any."""
    kind = kind_of(node.operator)
    if kind.relation is not None:
        return None
    return graph.stream_of(node.id) if kind.own_name is None else kind.own_name(node.operator)
