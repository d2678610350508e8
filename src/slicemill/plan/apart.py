"""Queries apart: one that begins in the past has a unit of its own until it is where the others are.

    bid ─┬─ windows of bid by auction ─┬─ q1           bid ─┬─ windows of bid by auction ─┬─ q1
         │                             └─ q2     ──►        │                             ├─ q2
         └─ q apart ── q                                    │                             └─ q (joining)
                                                            └─ q apart ── q

What keeps state is shared by those who read a log from the same epoch on. So the nodes of a query apart have
names of their own, and none of them is shared. When it has caught up, the same query is planned with the
others as well, under a name that no log has: nobody sees its results until it knows all that it would have
known had it always been there. Then that one goes on under the query's name, and the unit apart goes.
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.esl.types.catalog import JOINING
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.operators.streams.spec import QueryResults
from slicemill.plan.content import quoted
from slicemill.plan.units import Unit


def unit_apart(query: str) -> str:
    """The id of the unit that a query has for itself."""
    return f"{quoted(query)} apart"


def begins_alone(unit: Unit, query: str) -> bool:
    """Is it a unit of this query alone, whether apart or because nobody could share it?"""
    return unit.id in (unit_apart(query), quoted(query))


def is_alone(units: tuple[Unit, ...], query: str) -> bool:
    """Is the unit of a query its own by nature, as nobody could share it?"""
    return unit_of(units, query).id == quoted(query)


def set_apart(graph: QueryGraph, units: tuple[Unit, ...], query: str) -> tuple[dict[str, Node], Unit]:
    """Of the plan of one query, its unit and the nodes of that, under names of their own."""
    unit = unit_of(units, query)
    names = {
        node: f"{node} of {quoted(query)} apart"
        for node in unit.nodes
        if kind_of(graph[node].operator).own_name is None
    }
    nodes = {names.get(node, node): _renamed(graph[node], names) for node in unit.nodes}
    own = Unit(
        unit_apart(query),
        tuple(nodes),
        unit.inputs,
        unit.outputs,
        tuple(names.get(node, node) for node in unit.stateful_nodes),
    )
    return nodes, own


def joining(graph: QueryGraph, units: tuple[Unit, ...], query: str) -> tuple[QueryGraph, tuple[Unit, ...]]:
    """The plan of one query under a name that no log has."""
    unit, name = unit_of(units, query), query + JOINING
    end = replace(graph[query], id=name, operator=QueryResults(name), label=name)
    nodes = {(name if node.id == query else node.id): (end if node.id == query else node) for node in graph}
    muted = replace(
        unit,
        nodes=tuple(name if node == query else node for node in unit.nodes),
        outputs=((name, name),),
    )
    return QueryGraph(nodes, graph.streams), tuple(muted if one is unit else one for one in units)


def unit_of(units: tuple[Unit, ...], query: str) -> Unit:
    """The unit that gives a query's results."""
    return next(unit for unit in units if any(log == query for _, log in unit.outputs))


def _renamed(node: Node, names: dict[str, str]) -> Node:
    refer, operator = kind_of(node.operator).refer, node.operator
    if refer is not None:
        operator = refer(operator, lambda other: names.get(other, other))
    inputs = tuple(names.get(source, source) for source in node.inputs)
    return replace(node, id=names.get(node.id, node.id), operator=operator, inputs=inputs)
