"""Reuse of operator state when queries are added to or removed from a task.

State is stored by the ids of stateful nodes and, in a shared node, by the names of its members
(specifications of single queries). Both names contain a digest of the content and the name of the query
(`plan.rules.name_by_content`), so two queries never share a name. The exception is a query that is dropped
and registered again with the same text. The caller must mark it as new, so that it does not adopt the old
state (`names_of_state`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import SharedOperator, with_members
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import Part
from slicemill.plan.tasks import Task

if TYPE_CHECKING:
    from slicemill.plan.planner import Plan


def without_outputs(task: Task, graph: QueryGraph, logs: Collection[str]) -> tuple[Task, QueryGraph]:
    """Remove the outputs to some logs from a task and its graph."""
    outputs = tuple((root, log) for root, log in task.outputs if log not in logs)
    needed = {node for root, _ in outputs for node in graph.ancestors(root)}
    needed |= graph.nodes.keys() - set(task.nodes)  # the task still reads the logs of upstream nodes
    nodes: dict[str, Node] = {}
    for node in graph:
        if node.id not in needed:
            continue
        if isinstance(node.operator, SharedOperator):
            kept = _members_read(graph, node, needed)
            members = [member for member in node.operator.members if member.name in kept]
            node = replace(node, operator=with_members(node.operator, members))
        nodes[node.id] = node
    streams = {name: node for name, node in graph.streams.items() if node in nodes}
    inside = tuple(node for node in task.nodes if node in nodes)
    stateful = tuple(node for node in task.stateful_nodes if node in nodes)
    reduced = replace(task, nodes=inside, outputs=outputs, stateful_nodes=stateful)
    return reduced, QueryGraph(nodes, streams)


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """Nodes of a changed task whose state is kept, starts empty, or is dropped."""

    kept: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]


def node_changes(before: Collection[str], task: Task) -> NodeChanges:
    """Compare the stateful nodes of a task before and after a change of its queries."""
    return NodeChanges(
        kept_nodes(before, task),
        tuple(node for node in task.stateful_nodes if node not in before),
        tuple(node for node in before if node not in task.stateful_nodes),
    )


def kept_nodes(before: Collection[str], task: Task) -> tuple[str, ...]:
    """Return the stateful nodes of a task that existed before the change."""
    return tuple(node for node in task.stateful_nodes if node in before)


def names_of_state(graph: QueryGraph, task: Task, root: str) -> list[str]:
    """Return the names under which a task stores the state of one query result.

    These are the members of shared nodes that the result reads, and the stateful nodes that no other result
    uses.
    """
    behind = graph.ancestors(root)
    own = [node for node in task.stateful_nodes if node in behind and graph[node].owner]
    parts = [node for node in task.nodes if node in behind and isinstance(graph[node].operator, Part)]
    return [*own, *parts]


def state_suffices(before: QueryGraph, after: QueryGraph, name: str) -> bool:
    """Return True if the stored state has all columns that the queries now read.

    Some shared operators, such as joins, store only those columns of a row that some query reads.
    """
    was, now = _columns_stored(before, name), _columns_stored(after, name)
    return was is None or now is None or now <= was


def _columns_stored(graph: QueryGraph, name: str) -> set[object] | None:
    member = _member(graph, name)
    kind = None if member is None else kind_of(graph[graph[name].inputs[0]].operator).member
    columns = None if kind is None else kind.columns_stored(member)
    return None if columns is None else set(columns)


def successors(
    before: QueryGraph, after: QueryGraph, was: Collection[str], now: Collection[str]
) -> dict[str, str]:
    """Map the new names of a query's state to old names whose state can be reused.

    q: aggregate #1f…    sum(v), count(*)                 before
    q: aggregate #9a…    sum(v), count(*), avg(v)         takes over #1f…

    A node with an unchanged name and a changelog result maps to itself, because its rows are retracted and
    emitted again.
    """
    left, found = [name for name in was if name not in now], {}
    for name in now:
        others = left if name not in was else [name] * after[name].schema.changelog
        kept = next((one for one in others if _member_state_suffices(before, after, one, name)), None)
        if kept is not None:
            found[name] = kept
            left = [one for one in left if one != kept]
    return found


def parts_taken(before: QueryGraph, after: QueryGraph, taken: Mapping[str, str]) -> dict[str, list[int]]:
    """Map each node to the aggregate calls of the old query from which it takes its state.

    The old calls or columns are given by index.
    """
    found = {name: _parts_taken(before, after, kept, name) for name, kept in taken.items()}
    return {name: list(parts) for name, parts in found.items() if parts is not None}


def _parts_taken(before: QueryGraph, after: QueryGraph, kept: str, name: str) -> Sequence[int] | None:
    was, now = before[kept].operator, after[name].operator
    if type(was) is not type(now) or before[kept].inputs != after[name].inputs:
        return None
    return kind_of(now).takes(was, now)


def _member_state_suffices(before: QueryGraph, after: QueryGraph, kept: str, name: str) -> bool:
    """Return True if the state of a query in a shared node suffices for its new definition."""
    if _parts_taken(before, after, kept, name) is not None:
        return True
    was, now = _member(before, kept), _member(after, name)
    if was is None or type(was) is not type(now) or before[kept].inputs != after[name].inputs:
        return False
    member = kind_of(after[after[name].inputs[0]].operator).member
    return member is not None and member.holds(was, now)


def state_is_kept(before: Plan, after: Plan, log: str) -> bool:
    """Return True if a new plan keeps all state of a query."""
    return kept_state(before, after, log) == state_of(after, log)[1]


def table_is_kept(before: Plan, after: Plan, log: str) -> bool:
    """Return True if the current rows of a query's changelog can be computed from kept state."""
    was, now = state_of(before, log), state_of(after, log)
    tables = {name for name in now[1] if after.graph[name].schema.changelog}
    taken = successors(before.graph, after.graph, was[1], now[1])
    return bool(tables) and tables <= taken.keys() and state_is_kept(before, after, log)


def kept_state(before: Plan, after: Plan, log: str) -> list[str]:
    """Return the names of a query's state that the plan `after` keeps."""
    was, now = state_of(before, log), state_of(after, log)
    if was[0] != now[0]:
        return []
    taken = successors(before.graph, after.graph, was[1], now[1])
    return [
        name
        for name in now[1]
        if name in taken or (name in was[1] and state_suffices(before.graph, after.graph, name))
    ]


def state_of(plan: Plan, log: str) -> tuple[str, list[str]]:
    """Return the id of the task that writes a log, and the names of the log's state in that task."""
    for task in plan.tasks:
        for root, written in task.outputs:
            if written == log:
                return task.id, names_of_state(plan.graph, task, root)
    return "", []


def _member(graph: QueryGraph, name: str) -> object:
    part = graph.nodes.get(name)
    if part is None or not isinstance(part.operator, Part):
        return None
    shared = graph[part.inputs[0]].operator
    assert isinstance(shared, SharedOperator), "a part reads a shared node"
    return next(member for member in shared.members if member.name == part.operator.member)


def _members_read(graph: QueryGraph, shared: Node, needed: Collection[str]) -> set[str]:
    """Return the queries of a shared node whose rows the nodes in `needed` read.

    If the node has no parts, all its members are returned.
    """
    assert isinstance(shared.operator, SharedOperator)
    parts = {
        part.id: part.operator.member
        for part in graph.consumers(shared.id)
        if isinstance(part.operator, Part)
    }
    if not parts:
        return {member.name for member in shared.operator.members}
    return {member for part, member in parts.items() if part in needed}
