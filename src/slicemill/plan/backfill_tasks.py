"""Backfill tasks: run a query that starts in the past in its own task until it has caught up.

The task of the query `q` is called `q apart`:

    bid ─┬─ windows of bid by auction ─┬─ q1           bid ─┬─ windows of bid by auction ─┬─ q1
         │                             └─ q2     ──►        │                             ├─ q2
         └─ q apart ── q                                    │                             └─ q (joining)
                                                            └─ q apart ── q

Queries can share state only if they read a log from the same epoch on. So the nodes of a backfill task have
their own names and are not shared. Once the query has caught up, it is also planned in the shared task, under
the name `q (joining)`, which has no log (`plan_joining_query`). Its results there are discarded until its
state is as complete as if the query had always run. Then the shared node writes the query's log, and the
backfill task is dropped.

If a log no longer contains the old rows, the source of the stream is read again into a separate log. Derived
streams between the source and the query are computed again:

    bid (again for q) ── dear (again for q) ── q apart ── q

When the second reader of the source has reached the position of the first reader, the backfill tasks switch
to the original stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from slicemill.catalog.catalog import AGAIN, ERRORS, JOINING, LATE
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import QueryResults, Source
from slicemill.plan.content import quote_name
from slicemill.plan.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """Start of a query or derived stream that first reads rows of the past.

    `again` has the declared streams whose sources are read again, and the derived streams that are computed
    again. `kept` has the logs from which the query reads retained rows. `begins_us` is the time of its first
    rows, or None for all rows. With `joins` the query is also planned in the shared task. `explicit` means
    that the query's definition sets the start, `renamed` that its nodes have their own names, and `alone`
    that no other query could share its task.
    """

    joins: bool = False
    again: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    begins_us: int | None = None
    explicit: bool = False
    renamed: bool = False
    alone: bool = False


def backfill_tasks(names: Mapping[str, BackfillPlan], tasks: Iterable[Task]) -> dict[str, str]:
    """Return the query or stream of each backfill task, by the id of the task."""
    own = {task: name for name in names for task in (backfill_task_id(name), quote_name(name))}
    feeding = {task.id: name for task in tasks for name in names if task.id.endswith(f"{AGAIN}{name}) apart")}
    return own | feeding


def backfill_log_name(log: str, query: str) -> str:
    """Return the name of the log into which a source is read again for one query."""
    suffix = next((side for side in (LATE, ERRORS) if log.endswith(side)), "")
    return f"{log}{AGAIN}{query})" if not suffix else f"{log.removesuffix(suffix)}{AGAIN}{query}){suffix}"


def backfill_task_id(query: str) -> str:
    """Return the id of the task that runs a query's backfill."""
    return f"{quote_name(query)} apart"


def has_own_task(task: Task, query: str) -> bool:
    """Return True if the task runs only this query.

    The task is either a backfill task or a task that cannot be shared.
    """
    return task.id in (backfill_task_id(query), quote_name(query))


def is_alone(tasks: tuple[Task, ...], query: str) -> bool:
    """Return True if no other query can share the task of this query."""
    return task_of(tasks, query).id == quote_name(query)


def split_backfill_task(
    graph: QueryGraph, tasks: tuple[Task, ...], query: str, again: Collection[str] = ()
) -> tuple[QueryGraph, tuple[Task, ...]]:
    """Return the backfill tasks of a query and their graph, with renamed nodes.

    The result includes the sources in `again`, and the tasks that compute derived streams again. `tasks` are
    in topological order.
    """
    own = task_of(tasks, query)
    logs = {
        log: backfill_log_name(log, query) for task in tasks for log in task.inputs if _is_reread(log, again)
    }
    chosen, wanted = [own], set(own.inputs)
    for task in reversed(tasks):
        if task is not own and any(log in wanted and log in logs for _, log in task.outputs):
            chosen.insert(0, task)
            wanted |= set(task.inputs)
    names: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    streams: dict[str, str] = {}
    for source in graph.sources:
        assert isinstance(source.operator, Source)
        name = logs.get(source.operator.stream)
        if name is not None and source.operator.stream in wanted:
            names[source.id] = name
            operator = replace(source.operator, stream=name)
            nodes[name] = replace(source, id=name, operator=operator, label=name)
            streams[name] = name
    roots = {root for root, log in own.outputs if log == query}
    for task in chosen:
        names |= {
            node: f"{node} of {quote_name(query)} apart"
            for node in task.nodes
            if node not in roots and kind_of(graph[node].operator).own_name(graph[node].operator) is None
        }
    units_apart = []
    for task in chosen:
        for node in task.nodes:
            nodes[names.get(node, node)] = _rename_node(graph[node], names)
        outputs = tuple(
            (names.get(root, root), logs.get(log, log) if task is not own else log)
            for root, log in task.outputs
            if task is not own or log == query
        )
        streams |= {log: root for root, log in outputs if task is not own}
        units_apart.append(
            Task(
                backfill_task_id(query) if task is own else f"{outputs[0][1]} apart",
                tuple(names.get(node, node) for node in task.nodes),
                tuple(sorted(logs.get(log, log) for log in task.inputs)),
                outputs,
                tuple(names.get(node, node) for node in task.stateful_nodes),
            )
        )
    return QueryGraph(nodes, streams), tuple(units_apart)


def without_writers(graph: QueryGraph, tasks: tuple[Task, ...], logs: Collection[str]) -> tuple[Task, ...]:
    """Remove the outputs that backfill tasks write from the other tasks."""
    kept = []
    for task in tasks:
        left = tuple((root, log) for root, log in task.outputs if log not in logs)
        if len(left) == len(task.outputs):
            kept.append(task)
        elif left:
            needed = frozenset(node for root, _ in left for node in graph.ancestors(root))
            inside = tuple(node for node in task.nodes if node in needed)
            stateful = tuple(node for node in task.stateful_nodes if node in needed)
            kept.append(replace(task, nodes=inside, outputs=left, stateful_nodes=stateful))
    return tuple(kept)


def sort_tasks(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Sort tasks topologically. Tasks that do not depend on each other keep their order."""
    tasks = tuple(tasks)
    writers = {log: task for task in tasks for _, log in task.outputs}
    found: dict[str, Task] = {}

    def add(task: Task) -> None:
        if task.id not in found:
            for log in task.inputs:
                if log in writers:
                    add(writers[log])
            found[task.id] = task

    for task in tasks:
        add(task)
    return tuple(found.values())


def graph_of(nodes: Mapping[str, Node], streams: Mapping[str, str], tasks: Iterable[Task]) -> QueryGraph:
    """Return a query graph in topological order, without the nodes that no task uses."""
    run = {node for task in tasks for node in task.nodes}
    found: dict[str, Node] = {}

    def add(node: Node) -> None:
        if node.id not in found:
            for source in node.inputs:
                add(nodes[source])
            found[node.id] = node

    for node in nodes.values():
        if node.id in run or not node.inputs:
            add(node)
    return QueryGraph(found, {name: node for name, node in streams.items() if node in found})


def _is_reread(log: str, again: Collection[str]) -> bool:
    return any(log == name or log in (name + LATE, name + ERRORS) for name in again)


def plan_joining_query(
    graph: QueryGraph, tasks: tuple[Task, ...], query: str
) -> tuple[QueryGraph, tuple[Task, ...]]:
    """Rename a query to `<query> (joining)` in the plan, which discards the query's results.

    No log has this name, so its results are discarded.
    """
    task, name = task_of(tasks, query), query + JOINING
    results = graph[query].operator
    assert isinstance(results, QueryResults)
    end = replace(graph[query], id=name, operator=replace(results, query=name), label=name)
    nodes = {(name if node.id == query else node.id): (end if node.id == query else node) for node in graph}
    muted = replace(
        task,
        nodes=tuple(name if node == query else node for node in task.nodes),
        outputs=((name, name),),
    )
    return QueryGraph(nodes, graph.streams), tuple(muted if one is task else one for one in tasks)


def task_of(tasks: tuple[Task, ...], query: str) -> Task:
    """Return the task that writes a query's results."""
    return next(task for task in tasks if any(log == query for _, log in task.outputs))


def _rename_node(node: Node, names: dict[str, str]) -> Node:
    operator = kind_of(node.operator).refer(node.operator, lambda other: names.get(other, other))
    inputs = tuple(names.get(source, source) for source in node.inputs)
    return replace(node, id=names.get(node.id, node.id), operator=operator, inputs=inputs)
