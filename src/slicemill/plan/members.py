"""A unit without some of its queries: shared operators lose the members that only these read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeAlias

from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.operators import Part, SharedJoin, SharedModels, SharedWindows
from slicemill.plan.units import Unit

Shared: TypeAlias = SharedJoin | SharedWindows | SharedModels


def without_outputs(unit: Unit, graph: QueryGraph, logs: Collection[str]) -> tuple[Unit, QueryGraph]:
    """The unit and its graph as they are when nobody asks for these logs."""
    outputs = tuple((root, log) for root, log in unit.outputs if log not in logs)
    needed = {node for root, _ in outputs for node in graph.ancestors(root)}
    needed |= graph.nodes.keys() - set(unit.nodes)  # what feeds it stays: its logs are read all the same
    nodes: dict[str, Node] = {}
    for node in graph:
        if node.id not in needed:
            continue
        operator = node.operator
        if isinstance(operator, Shared):
            operator = _with_members(operator, _kept(graph, node, needed))
        elif isinstance(operator, Part):
            operator = Part(_kept(graph, graph[node.inputs[0]], needed).index(operator.index))
        nodes[node.id] = replace(node, operator=operator)
    streams = {name: node for name, node in graph.streams.items() if node in nodes}
    inside = tuple(node for node in unit.nodes if node in nodes)
    return replace(unit, nodes=inside, outputs=outputs), QueryGraph(nodes, streams)


def _with_members(shared: Shared, kept: list[int]) -> Shared:
    if isinstance(shared, SharedJoin):
        return replace(shared, members=tuple(shared.members[index] for index in kept))
    if isinstance(shared, SharedModels):
        return replace(shared, members=tuple(shared.members[index] for index in kept))
    return replace(shared, members=tuple(shared.members[index] for index in kept))


def _kept(graph: QueryGraph, shared: Node, needed: set[str]) -> list[int]:
    """The members of a shared node that somebody reads; all of a node that has no parts."""
    parts = [node for node in graph.consumers(shared.id) if isinstance(node.operator, Part)]
    if not parts:
        assert isinstance(shared.operator, Shared)
        return list(range(len(shared.operator.members)))
    return sorted(
        node.operator.index for node in parts if isinstance(node.operator, Part) and node.id in needed
    )
