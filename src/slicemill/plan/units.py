"""Units: the parts of the query graph that are run, and fall behind, as one (DESIGN §2).

Streams are logs: every declared stream, every derived stream and every query result has one. A unit reads
some logs and writes others; between them its operators hand tuples on directly. Queries that only select and
project from the same stream are one unit, so that a tuple is read once for all of them; so are those that
have an operator in common.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.operators import (
    Filter,
    Lookup,
    Materialize,
    Part,
    Project,
    Scan,
    Sink,
    Source,
    WholeWindows,
)

_STATELESS = (Filter, Project, Lookup, Part, WholeWindows, Sink)


@dataclass(frozen=True, slots=True)
class Unit:
    """`nodes` in topological order, without the inputs; an output is a node and the log it is written to.

    The id lasts while queries come and go: it names the result of a stateful unit, the inputs of a stateless,
    and what is shared where a stateful operator has several queries (`shared`): its state stays when they
    change.
    """

    id: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    stateful: bool
    shared: bool = False


def log_of(node: Node, graph: QueryGraph) -> str | None:
    """The name of the log that a node's output is kept in, if it is kept."""
    if isinstance(node.operator, Source):
        return node.operator.stream
    if isinstance(node.operator, Sink):
        return node.operator.query
    if isinstance(node.operator, (Scan, Materialize)):
        return None
    return next((name for name, node_id in graph.streams.items() if node_id == node.id), None)


def cut(graph: QueryGraph) -> tuple[Unit, ...]:
    """The units of a graph, those that feed others first."""
    kept = {node.id: log for node in graph if (log := log_of(node, graph)) is not None}
    units: list[Unit] = []
    for node in graph:
        if node.id in kept and not isinstance(node.operator, Source):
            units.append(_unit(graph, node, kept))
    return _merged(units)


def _unit(graph: QueryGraph, root: Node, kept: dict[str, str]) -> Unit:
    """Everything between `root` and the logs it is computed from."""
    inside: set[str] = set()
    inputs: list[str] = []
    waiting = [root.id]
    while waiting:
        current = waiting.pop()
        if current in inside:
            continue
        inside.add(current)
        for source in graph[current].inputs:
            if source in kept:
                if kept[source] not in inputs:
                    inputs.append(kept[source])
            else:
                waiting.append(source)
    nodes = tuple(node.id for node in graph if node.id in inside)
    stateful = any(not isinstance(graph[n].operator, (*_STATELESS, Scan)) for n in nodes)
    log = kept[root.id]
    name = log if stateful else f"select from {', '.join(sorted(inputs))}"
    shared = [graph[n].inputs[0] for n in nodes if isinstance(graph[n].operator, Part)]
    if len(set(shared)) == 1:
        name = shared[0]
    return Unit(name, nodes, tuple(sorted(inputs)), ((root.id, log),), stateful, bool(shared))


def _merged(units: list[Unit]) -> tuple[Unit, ...]:
    """Stateless units over the same logs, and those that share an operator, have the same name: one unit."""
    merged: dict[str, Unit] = {}
    for unit in units:
        known = merged.get(unit.id)
        if known is None:
            merged[unit.id] = unit
            continue
        nodes = dict.fromkeys((*known.nodes, *unit.nodes))
        inputs = tuple(sorted({*known.inputs, *unit.inputs}))
        outputs = (*known.outputs, *unit.outputs)
        merged[unit.id] = Unit(unit.id, tuple(nodes), inputs, outputs, known.stateful, known.shared)
    return tuple(merged.values())
