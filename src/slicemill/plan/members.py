"""Changes of a unit's queries: which state is kept, and the unit without some of its outputs.

State is kept by the ids of stateful nodes and, in a shared node, by the names of its members. Both are made
of content and of the name of the query (`rules.name_by_content`), so nothing of another query can have them.
Only a query that is dropped and registered again, with the same words, has the names of before: whoever
adopts it has to say that it is a newcomer (`names_of_state`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.models.spec import ModelMember
from slicemill.operators.operator import SharedOperator, with_members
from slicemill.operators.part.spec import Part
from slicemill.operators.registry import kind_of
from slicemill.plan.units import Unit

if TYPE_CHECKING:
    from slicemill.plan.planner import Plan


def without_outputs(unit: Unit, graph: QueryGraph, logs: Collection[str]) -> tuple[Unit, QueryGraph]:
    """The unit and its graph as they are when nobody asks for these logs."""
    outputs = tuple((root, log) for root, log in unit.outputs if log not in logs)
    needed = {node for root, _ in outputs for node in graph.ancestors(root)}
    needed |= graph.nodes.keys() - set(unit.nodes)  # what feeds it stays: its logs are read all the same
    nodes: dict[str, Node] = {}
    for node in graph:
        if node.id not in needed:
            continue
        if isinstance(node.operator, SharedOperator):
            kept = _kept(graph, node, needed)
            members = [member for member in node.operator.members if member.name in kept]
            node = replace(node, operator=with_members(node.operator, members))
        nodes[node.id] = node
    streams = {name: node for name, node in graph.streams.items() if node in nodes}
    inside = tuple(node for node in unit.nodes if node in nodes)
    stateful = tuple(node for node in unit.stateful_nodes if node in nodes)
    reduced = replace(unit, nodes=inside, outputs=outputs, stateful_nodes=stateful)
    return reduced, QueryGraph(nodes, streams)


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """Stateful nodes that keep their state, that are new and start empty, and whose state goes."""

    kept: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]


def node_changes(before: Collection[str], unit: Unit) -> NodeChanges:
    """What becomes of the state of some nodes when a unit is changed to be this one."""
    return NodeChanges(
        kept_nodes(before, unit),
        tuple(node for node in unit.stateful_nodes if node not in before),
        tuple(node for node in before if node not in unit.stateful_nodes),
    )


def kept_nodes(before: Collection[str], unit: Unit) -> tuple[str, ...]:
    """The nodes among those of before whose state goes on in a unit."""
    return tuple(node for node in unit.stateful_nodes if node in before)


def names_of_state(graph: QueryGraph, unit: Unit, root: str) -> list[str]:
    """The names under which a unit keeps state for one of its results alone.

    Its parts of shared nodes, and the stateful nodes that are its own.
    """
    behind = graph.ancestors(root)
    own = [node for node in unit.stateful_nodes if node in behind and graph[node].owner]
    parts = [node for node in unit.nodes if node in behind and isinstance(graph[node].operator, Part)]
    return [*own, *parts]


def serves(before: QueryGraph, after: QueryGraph, name: str) -> bool:
    """Has what is kept under a name all columns that are read of it from now on?

    Joins and models keep of a row what somebody reads of it.
    """
    was, now = _member(before, name), _member(after, name)
    if not isinstance(was, (JoinMember, ModelMember)) or not isinstance(now, (JoinMember, ModelMember)):
        return True
    return set(now.columns) <= set(was.columns)


def successors(
    before: QueryGraph, after: QueryGraph, was: Collection[str], now: Collection[str]
) -> dict[str, str]:
    """Return, for new names of a query's state, the names of before whose state has all they need.

    q: aggregate #1f…    sum(v), count(*)                 before
    q: aggregate #9a…    sum(v), count(*), avg(v)         takes over #1f…
    """
    left, found = [name for name in was if name not in now], {}
    for name in now:
        kept = next((one for one in left if name not in was and _holds(before, after, one, name)), None)
        if kept is not None:
            found[name] = kept
            left.remove(kept)
    return found


def _holds(before: QueryGraph, after: QueryGraph, kept: str, name: str) -> bool:
    """Return True if what is kept for a member of a shared node has all that a new member needs."""
    was, now = _member(before, kept), _member(after, name)
    if was is None or type(was) is not type(now) or before[kept].inputs != after[name].inputs:
        return False
    member = kind_of(after[after[name].inputs[0]].operator).member
    return member is not None and member.holds(was, now)


def state_is_kept(before: Plan, after: Plan, log: str) -> bool:
    """Return True if all state that a query has in one plan is there in another plan."""
    return kept_state(before, after, log) == state_of(after, log)[1]


def kept_state(before: Plan, after: Plan, log: str) -> list[str]:
    """Return the names in one plan of the state that a query keeps from another plan."""
    was, now = state_of(before, log), state_of(after, log)
    if was[0] != now[0]:
        return []
    taken = successors(before.graph, after.graph, was[1], now[1])
    return [
        name
        for name in now[1]
        if name in taken or (name in was[1] and serves(before.graph, after.graph, name))
    ]


def state_of(plan: Plan, log: str) -> tuple[str, list[str]]:
    """Return the unit that writes a log in a plan, and the names of the state that it keeps for it."""
    for unit in plan.units:
        for root, written in unit.outputs:
            if written == log:
                return unit.id, names_of_state(plan.graph, unit, root)
    return "", []


def _member(graph: QueryGraph, name: str) -> object:
    part = graph.nodes.get(name)
    if part is None or not isinstance(part.operator, Part):
        return None
    shared = graph[part.inputs[0]].operator
    assert isinstance(shared, SharedOperator), "it is a part of one"
    return next(member for member in shared.members if member.name == part.operator.member)


def _kept(graph: QueryGraph, shared: Node, needed: Collection[str]) -> set[str]:
    """The members of a shared node that somebody reads; all of a node that has no parts."""
    assert isinstance(shared.operator, SharedOperator)
    parts = {
        part.id: part.operator.member
        for part in graph.consumers(shared.id)
        if isinstance(part.operator, Part)
    }
    if not parts:
        return {member.name for member in shared.operator.members}
    return {member for part, member in parts.items() if part in needed}
