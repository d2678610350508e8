"""Units: the parts of the query graph that the dispatcher runs as one.

Streams are logs: every declared stream, every derived stream and every query result has one. A unit reads
some logs and writes others; between them its operators hand tuples on directly. Many queries are one unit
where that lets a tuple be read once for all of them:

| unit | queries in it |
|---|---|
| select from bid | all that only select, project or look up tables, of the same logs |
| aggregates of bid by item | OVER windows, panes and groups of one log that are split by the same keys |
| joins of open and bid on item = item | window joins that share slices, or one state per stream |
| q | any other query, alone; so is one over rows that change: it begins with their table, whoever is there |

A unit's id says what its queries have in common, so it lasts while queries come and go. State is kept by the
ids of stateful nodes, which last as well (`rules.name_by_content`): whoever comes or goes, nodes that stay
keep their state, nodes that are new start empty (`members.kept_nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from slicemill.esl.render.expressions import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.kind import UnitOf
from slicemill.operators.registry import kind_of
from slicemill.plan.content import quoted, short
from slicemill.plan.log_keys import keys_in_log
from slicemill.plan.logs import log_of


@dataclass(frozen=True, slots=True)
class Unit:
    """`nodes` in topological order, without the inputs; an output is a node and the log it is written to.

    `stateful_nodes` are those of its nodes that keep something from run to run.
    """

    id: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    stateful_nodes: tuple[str, ...] = ()

    @property
    def stateful(self) -> bool:
        return bool(self.stateful_nodes)


@dataclass(slots=True)
class _UnitBuilder:
    """A unit to which outputs are added."""

    nodes: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)
    outputs: list[tuple[str, str]] = field(default_factory=list)


def cut(graph: QueryGraph) -> tuple[Unit, ...]:
    """The units of a graph, those that feed others first."""
    kept = {node.id: log for node in graph if (log := log_of(node, graph)) is not None}
    position = {node_id: number for number, node_id in enumerate(graph.nodes)}
    made: dict[str, _UnitBuilder] = {}
    for node in graph:
        if node.id not in kept or not node.inputs:
            continue
        nodes, inputs = _between_logs(graph, node, kept)
        unit = made.setdefault(_name(graph, node, nodes, inputs, kept), _UnitBuilder())
        unit.nodes |= nodes
        unit.inputs |= inputs
        unit.outputs.append((node.id, kept[node.id]))
    units = []
    for name, unit in made.items():
        ordered = tuple(sorted(unit.nodes, key=position.__getitem__))
        stateful = tuple(keeping_state(graph, ordered))
        units.append(Unit(name, ordered, tuple(sorted(unit.inputs)), tuple(unit.outputs), stateful))
    return tuple(units)


def part_of(graph: QueryGraph, unit: Unit) -> QueryGraph:
    """A unit's part of the graph: it stays the same while other queries come and go."""
    return graph.only(frozenset(node_id for root, _ in unit.outputs for node_id in graph.ancestors(root)))


def keeping_state(graph: QueryGraph, node_ids: Iterable[str]) -> list[str]:
    """Those of some nodes that keep something from run to run."""
    return [node_id for node_id in node_ids if kind_of(graph[node_id].operator).keeps_state]


def _between_logs(graph: QueryGraph, root: Node, kept: dict[str, str]) -> tuple[set[str], set[str]]:
    """Everything between a node and the logs it is computed from, with the node; and these logs."""
    inside: set[str] = set()
    inputs: set[str] = set()
    waiting = [root.id]
    while waiting:
        current = waiting.pop()
        if current in inside:
            continue
        inside.add(current)
        for source in graph[current].inputs:
            if source in kept:
                inputs.add(kept[source])
            else:
                waiting.append(source)
    return inside, inputs


def _name(graph: QueryGraph, root: Node, nodes: set[str], inputs: set[str], kept: dict[str, str]) -> str:
    """The id of the unit that an output belongs to; no two kinds of units have one in common."""
    if any(graph[node_id].schema.changelog for node_id, log in kept.items() if log in inputs):
        # Whoever comes reads the log from its base: others have read that already.
        return quoted(kept[root.id])
    stateful = [graph[node_id] for node_id in keeping_state(graph, nodes)]
    computing = [node for node in stateful if kind_of(node.operator).computes]
    boxes = sorted(node.id for node in stateful if node not in computing)
    behind = f", {', '.join(boxes)}" if boxes else ""
    if not stateful:
        return f"select from {', '.join(sorted(map(quoted, inputs)))}"
    if len(computing) == 1:
        (only,) = computing
        unit = kind_of(only.operator).unit
        if unit is UnitOf.PARTS and graph.has_parts(only.id):
            logs = all(source in kept for source in only.inputs)
            return only.name if logs else only.id
        keys = keys_in_log(graph, only) if unit is UnitOf.KEYS else None
        if keys is not None and len(inputs) == 1:
            (log,) = inputs
            by = f" by {short([render(key) for key in keys], keys)}" if keys else ""
            return f"aggregates of {quoted(log)}{by}{behind}"
    return quoted(kept[root.id])
