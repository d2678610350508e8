"""The keys of the log that an operator reads by which its work can be partitioned."""

from __future__ import annotations

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.kind import Keys
from slicemill.operators.registry import kind_of, partition_keys
from slicemill.plan.logs import log_of


def keys_in_log(graph: QueryGraph, node: Node) -> Keys | None:
    """The keys of a node with one input in the columns of the log that it reads; () if it cannot be split.

    None where they are not the log's: of a table that is looked up, or made by something that keeps state.
    """
    keys = partition_keys(node.operator)
    return in_log(graph, graph[node.inputs[0]], () if keys is None else keys[0])


def in_log(graph: QueryGraph, node: Node, keys: Keys) -> Keys | None:
    """Expressions over a node's output in the columns of the log that it is selected from."""
    while log_of(node, graph) is None:
        below = kind_of(node.operator).keys_below(node.operator, node, graph, keys)
        if below is None:
            return None
        keys, node = below, graph[node.inputs[0]]
    return keys
