"""Tasks: sets of operators that the driver schedules together (Flink: tasks of chained operators).

Every declared stream, derived stream and query result has a log. A task reads some logs and writes other
logs. Inside a task, operators pass tuples on directly. Queries share a task if one read of a tuple can serve
all of them:

| task | queries in it |
|---|---|
| select from bid | queries over the same logs that only select, project or look up tables |
| aggregates of bid by item | OVER windows, panes and groups of one log with the same partitioning keys |
| joins of open and bid on item = item | window joins that share slices, or n-way joins with shared state |
| q | any other query, alone; also a query over a changelog, which always starts with the full table |

A task's id consists of the properties that its queries have in common, so it is stable while queries are
added and removed. State is stored by the ids of stateful nodes, which are stable too
(`plan.rules.name_by_content`). When queries are added or removed, remaining nodes keep their state and new
nodes start empty (`plan.state_reuse.kept_nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import Keys, TaskOf
from slicemill.operators.registry import kind_of, partition_keys
from slicemill.plan.content import quote_name, short_name


@dataclass(frozen=True, slots=True)
class Task:
    """Set of operators that the driver schedules as one.

    `nodes` are in topological order, without the inputs. An output is a node and the log that it is written
    to. `stateful_nodes` are the nodes that keep state between runs.
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
class _TaskBuilder:
    """Task under construction."""

    nodes: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)
    outputs: list[tuple[str, str]] = field(default_factory=list)


def split_into_tasks(graph: QueryGraph) -> tuple[Task, ...]:
    """Split a query graph into tasks, in topological order."""
    kept = {node.id: log for node in graph if (log := log_of(node, graph)) is not None}
    position = {node_id: number for number, node_id in enumerate(graph.nodes)}
    made: dict[str, _TaskBuilder] = {}
    for node in graph:
        if node.id not in kept or not node.inputs:
            continue
        nodes, inputs = _between_logs(graph, node, kept)
        task = made.setdefault(_name(graph, node, nodes, inputs, kept), _TaskBuilder())
        task.nodes |= nodes
        task.inputs |= inputs
        task.outputs.append((node.id, kept[node.id]))
    tasks = []
    for name, task in made.items():
        ordered = tuple(sorted(task.nodes, key=position.__getitem__))
        stateful = tuple(select_stateful(graph, ordered))
        tasks.append(Task(name, ordered, tuple(sorted(task.inputs)), tuple(task.outputs), stateful))
    return tuple(tasks)


def task_subgraph(graph: QueryGraph, task: Task) -> QueryGraph:
    """Return the part of the query graph that a task runs, with the sources it reads.

    This part does not change when other queries are added or removed.
    """
    return graph.only(frozenset(node_id for root, _ in task.outputs for node_id in graph.ancestors(root)))


def select_stateful(graph: QueryGraph, node_ids: Iterable[str]) -> list[str]:
    """Return those nodes that keep state between runs."""
    return [node_id for node_id in node_ids if kind_of(graph[node_id].operator).keeps_state]


def _between_logs(graph: QueryGraph, root: Node, kept: dict[str, str]) -> tuple[set[str], set[str]]:
    """Return the nodes between `root` and the logs upstream of it, and these logs."""
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
    """Return the id of the task that computes the output `root`.

    Each kind of task has its own form of id.
    """
    if any(graph[node_id].schema.changelog for node_id, log in kept.items() if log in inputs):
        # No task shares a changelog: a new query must read it from its first epoch, which a running
        # task has passed.
        return quote_name(kept[root.id])
    stateful = [graph[node_id] for node_id in select_stateful(graph, nodes)]
    computing = [node for node in stateful if kind_of(node.operator).computes]
    boxes = sorted(node.id for node in stateful if node not in computing)
    behind = f", {', '.join(boxes)}" if boxes else ""
    if not stateful:
        return f"select from {', '.join(sorted(map(quote_name, inputs)))}"
    if len(computing) == 1:
        (only,) = computing
        task = kind_of(only.operator).task
        if task is TaskOf.PARTS and graph.has_parts(only.id):
            logs = all(source in kept for source in only.inputs)
            return only.name if logs else only.id
        keys = keys_in_log(graph, only) if task is TaskOf.KEYS else None
        if keys is not None and len(inputs) == 1:
            (log,) = inputs
            by = f" by {short_name([render(key) for key in keys], keys)}" if keys else ""
            return f"aggregates of {quote_name(log)}{by}{behind}"
    return quote_name(kept[root.id])


# Logs of nodes


def log_of(node: Node, graph: QueryGraph) -> str | None:
    """Return the log that stores the output of a node, or None."""
    kind = kind_of(node.operator)
    if kind.relation(node.operator) is not None:
        return None
    return kind.own_name(node.operator) or graph.stream_of(node.id)


# Partitioning keys of operators, as columns of logs


def keys_in_log(graph: QueryGraph, node: Node) -> Keys | None:
    """Return the keys of a node as expressions over the columns of the log that it reads.

    The node has one input. The result is () if the node cannot be partitioned. The result is None if the keys
    are not columns of one log, as with a looked-up table or a join.
    """
    keys = partition_keys(node.operator)
    found = keys_in_logs(graph, graph[node.inputs[0]], () if keys is None else keys[0])
    return None if found is None or len(found) > 1 else next(iter(found.values()))


def keys_in_logs(graph: QueryGraph, node: Node, keys: Keys) -> dict[str, Keys] | None:
    """Translate keys of a node's output into expressions over the logs that it reads.

    Output rows with these keys depend on exactly those rows of the logs that have equal keys. So a log can be
    partitioned by them, even if operators in between keep state. The result is None if that does not hold, or
    if a log is read twice by different keys.
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
