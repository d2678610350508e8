"""Partitioning keys of operators, traced back to columns of logs."""

from __future__ import annotations

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.kind import Keys
from slicemill.operators.registry import kind_of, partition_keys
from slicemill.plan.logs import log_of


def keys_in_log(graph: QueryGraph, node: Node) -> Keys | None:
    """Return a node's keys in columns of the log it reads.

    The node has one input.

    The result is () if the node cannot be partitioned. It is None if the keys are not those of one log, as
    with a looked-up table or a join.
    """
    keys = partition_keys(node.operator)
    found = keys_in_logs(graph, graph[node.inputs[0]], () if keys is None else keys[0])
    return None if found is None or len(found) > 1 else next(iter(found.values()))


def keys_in_logs(graph: QueryGraph, node: Node, keys: Keys) -> dict[str, Keys] | None:
    """Translate keys of a node's output into columns of its logs.

    Rows of these logs with equal keys, and no others, contribute to output with these keys. So a log can be
    partitioned by them even if operators in between keep state. None if that does not hold, or if a log is
    read twice by different keys.
    """
    log = log_of(node, graph)
    if log is not None:
        return {log: keys}
    below = kind_of(node.operator).keys_below(node.operator, node, graph, keys)
    found: dict[str, Keys] = {}
    for source, own in below or ():
        in_source = keys_in_logs(graph, graph[source], own)
        if in_source is None or any(found.setdefault(name, by) != by for name, by in in_source.items()):
            return None
    return found or None
