"""The history of a query: how far back its results depend on tuples, so when a new one is complete (S23)."""

from __future__ import annotations

from slicemill.operators.graph import QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.plan.logs import log_of


def history_us(graph: QueryGraph, root: str) -> int | None:
    """The length of time, within the unit that computes a node; None where no length of time says it."""
    node = graph[root]
    own = kind_of(node.operator).history_us(node.operator, node, graph)
    above = [history_us(graph, source) for source in node.inputs if log_of(graph[source], graph) is None]
    known = [length for length in above if length is not None]
    return own + max(known, default=0) if own is not None and len(known) == len(above) else None
