"""Look-back of a query: how far into the past its results depend on input rows.

The look-back determines when the results of a new query are complete.
"""

from __future__ import annotations

from slicemill.operators.graph import QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.plan.tasks import log_of


def history_us(graph: QueryGraph, root: str) -> int | None:
    """Return how many microseconds of input a node's results depend on, None if unbounded."""
    node = graph[root]
    own = kind_of(node.operator).history_us(node.operator, node, graph)
    above = [history_us(graph, source) for source in node.inputs if log_of(graph[source], graph) is None]
    known = [length for length in above if length is not None]
    return own + max(known, default=0) if own is not None and len(known) == len(above) else None
