"""Which nodes of a query graph have their output kept in a log."""

from __future__ import annotations

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.specs import Materialize, Scan, Sink, Source


def log_of(node: Node, graph: QueryGraph) -> str | None:
    """The name of the log that a node's output is kept in, if it is kept."""
    if isinstance(node.operator, Source):
        return node.operator.stream
    if isinstance(node.operator, Sink):
        return node.operator.query
    if isinstance(node.operator, (Scan, Materialize)):
        return None
    return graph.stream_of(node.id)
