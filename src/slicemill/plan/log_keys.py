"""The keys of the logs that an operator reads by which its work can be partitioned."""

from __future__ import annotations

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.kind import Keys
from slicemill.operators.registry import kind_of, partition_keys
from slicemill.plan.logs import log_of


def keys_in_log(graph: QueryGraph, node: Node) -> Keys | None:
    """The keys of a node with one input in the columns of the log that it reads; () if it cannot be split.

    None where they are not those of one log: of a table that is looked up, or of several that are joined.
    """
    keys = partition_keys(node.operator)
    found = keys_in_logs(graph, graph[node.inputs[0]], () if keys is None else keys[0])
    return None if found is None or len(found) > 1 else next(iter(found.values()))


def keys_in_logs(graph: QueryGraph, node: Node, keys: Keys) -> dict[str, Keys] | None:
    """Expressions over a node's output by the logs that it is made from, in their columns.

    Rows of these logs with the same keys, and only they, lead to output with these keys: so a log can be
    spread by them though something in between keeps state. None where that is not so, or where a log is read
    twice by different keys.
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
