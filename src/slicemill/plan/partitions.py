"""Into how many cells a unit can be split, and by which columns of the logs it reads."""

from __future__ import annotations

from slicemill.plan import operators as op
from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.log_keys import Keys, in_log, keys_in_log, partition_keys
from slicemill.plan.logs import log_of
from slicemill.plan.units import Unit


def cell_count(unit: Unit, graph: QueryGraph, wanted: int) -> int:
    """How many cells a unit can be split into.

    More than one if all that it keeps is kept by the same keys, and each result comes from what it keeps.
    """
    computing = _computing(unit, graph)
    if not computing or any(partition_keys(node.operator) is None for node in computing):
        return 1
    in_logs = [keys_in_log(graph, node) for node in computing]
    if len(computing) > 1 and (None in in_logs or len(set(in_logs)) > 1):
        return 1
    ids = {node.id for node in computing}
    return wanted if all(ids & graph.ancestors(node_id) for node_id, _ in unit.outputs) else 1


def exchange_keys(unit: Unit, graph: QueryGraph) -> dict[str, Keys] | None:
    """For each log that a unit reads, the keys by which its rows are spread over the unit's cells.

    None where rows cannot be spread before the unit has read them: it has one cell, its keys are not columns
    of the log, or it reads one log by several keys.
    """
    if cell_count(unit, graph, 2) == 1:
        return None
    found: dict[str, Keys] = {}
    for node in _computing(unit, graph):
        operator = node.operator
        both = operator.keys if isinstance(operator, op.SharedJoin) else (partition_keys(operator) or (),)
        for source, keys in zip(node.inputs, both, strict=True):
            log, own = _log_below(graph, graph[source]), in_log(graph, graph[source], keys)
            if log is None or own is None or found.setdefault(log, own) != own:
                return None
    return found


def _log_below(graph: QueryGraph, node: Node) -> str | None:
    while (log := log_of(node, graph)) is None and node.inputs:
        node = graph[node.inputs[0]]
    return log


def _computing(unit: Unit, graph: QueryGraph) -> list[Node]:
    """What keeps state by which results differ; a drop box lets a share of all keys pass."""
    nodes = (graph[node_id] for node_id in unit.stateful_nodes)
    return [node for node in nodes if not isinstance(node.operator, op.Drop)]
