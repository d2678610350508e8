"""Partitioning of units: the number of cells, and the keys of the logs that a unit reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.kind import Keys
from slicemill.operators.registry import kind_of, partition_keys
from slicemill.plan.content import digest
from slicemill.plan.log_keys import in_log
from slicemill.plan.logs import log_of
from slicemill.plan.units import Unit

# The number of a cell is stored in two bytes.
MOST_CELLS = 1 << 16


@dataclass(frozen=True, slots=True)
class Exchange:
    """How the rows of a log are spread over cells: by keys, which are expressions over its columns."""

    keys: Keys
    cells: int

    @property
    def id(self) -> str:
        """Names it among all exchanges of a log."""
        return digest(self.keys, self.cells)


def exchanges_of(unit: Unit, graph: QueryGraph, cells: int) -> dict[str, Exchange]:
    """How the rows of each log that a unit reads are spread over so many cells; none if it has one cell.

    It can have several if all that it keeps is kept by keys that are expressions over its logs' columns, one
    set of keys for a log, and each result comes from what it keeps.
    """
    computing = _computing(unit, graph)
    ids = {node.id for node in computing}
    if cells == 1 or not all(ids & graph.ancestors(node_id) for node_id, _ in unit.outputs):
        return {}
    found: dict[str, Exchange] = {}
    for node in computing:
        keys = partition_keys(node.operator)
        if keys is None:
            return {}
        for source, of_source in zip(node.inputs, keys, strict=True):
            log, own = _log_below(graph, graph[source]), in_log(graph, graph[source], of_source)
            if log is None or own is None or found.setdefault(log, Exchange(own, cells)).keys != own:
                return {}
    return found if found.keys() == set(unit.inputs) else {}


def needed_by_log(readers: Iterable[Mapping[str, Exchange]]) -> dict[str, tuple[Exchange, ...]]:
    """By which exchanges each log is read, of all units."""
    found: dict[str, dict[Exchange, None]] = {}
    for exchanges in readers:
        for log, exchange in exchanges.items():
            found.setdefault(log, {})[exchange] = None
    return {log: tuple(by) for log, by in found.items()}


def _log_below(graph: QueryGraph, node: Node) -> str | None:
    while (log := log_of(node, graph)) is None and node.inputs:
        node = graph[node.inputs[0]]
    return log


def _computing(unit: Unit, graph: QueryGraph) -> list[Node]:
    """What keeps state by which results differ; a drop box lets a share of all keys pass."""
    nodes = (graph[node_id] for node_id in unit.stateful_nodes)
    return [node for node in nodes if kind_of(node.operator).computes]
