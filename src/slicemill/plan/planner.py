"""Planner: plan each statement alone, then merge the plans into one graph with shared operators.

The plan of a statement does not depend on other statements (`plan.rules.name_by_content`). The plan of a set
of queries is the union of their plans, where a shared node serves all queries that contain it. So each
statement is planned once, and its plan is cached. Only joins over overlapping sets of streams depend on each
other. Such joins are merged in the last step (`plan.overlapping_joins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.catalog import AGAIN, Catalog, DerivedStream, QueryDefinition, Relation, View
from slicemill.catalog.extended import ComputedStream
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import SharedOperator, with_members
from slicemill.plan.backfill_tasks import (
    BackfillPlan,
    graph_of,
    is_alone,
    plan_joining_query,
    sort_tasks,
    split_backfill_task,
    task_of,
    without_writers,
)
from slicemill.plan.build import build_part
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.overlapping_joins import NOTHING_RUNS, TaskAssignments, merge_overlapping_joins
from slicemill.plan.projection_pushdown import SourceProjection, source_projections
from slicemill.plan.statement_equality import as_query, views_to_answer
from slicemill.plan.tasks import Task, split_into_tasks


@dataclass(frozen=True, slots=True)
class Plan:
    """Query graph with shared operators, and the tasks that run it, in topological order.

    `needs` has, for each statement, the rows and columns that it reads of each source. `apart` has the
    backfills of queries and derived streams.
    """

    graph: QueryGraph
    tasks: tuple[Task, ...]
    needs: tuple[Mapping[str, SourceProjection], ...] = ()
    apart: Mapping[str, BackfillPlan] = field(default_factory=dict)


@dataclass(slots=True)
class Planner:
    """Planner of all statements of a catalog, with a cache of their single plans.

    The planner reuses the plan of a statement for later catalogs while the statement is the same.
    """

    # By kind and name, for example "query q".
    _known: dict[str, tuple[QueryDefinition | Relation, Plan]] = field(default_factory=dict)
    _defined: dict[str, Relation | AggregateDefinition] = field(default_factory=dict)

    def plan(
        self,
        catalog: Catalog,
        placed: TaskAssignments = NOTHING_RUNS,
        apart: Mapping[str, BackfillPlan] | None = None,
    ) -> Plan:
        """Plan all statements of a catalog.

        Running queries stay in the tasks given by `placed`. Queries and derived streams in `apart` run in
        backfill tasks (`plan.backfill_tasks`).
        """
        apart = dict(apart or {})
        defined = _definitions(catalog)
        if any(defined.get(name) is not found for name, found in self._defined.items()):
            self._known = {}  # A definition was changed or dropped, and cached plans may refer to it.
        self._defined = defined
        known, self._known = self._known, {}
        for name, statement in _roots(catalog).items():
            found = known.get(name)
            plan = found[1] if found is not None and found[0] is statement else plan_of(statement, catalog)
            self._known[name] = statement, plan
        shared: list[Plan] = []
        nodes: dict[str, Node] = {}
        streams: dict[str, str] = {}
        own: list[Task] = []
        needs = [need for _, plan in self._known.values() for need in plan.needs]
        streams_apart = {name for name in apart if catalog.relation(name) is not None}
        for statement, plan in self._known.values():
            name = statement.name
            others = streams_apart - {name}
            left = replace(plan, tasks=without_writers(plan.graph, plan.tasks, others)) if others else plan
            if name in apart:
                apart[name] = replace(apart[name], alone=is_alone(plan.tasks, name))
            if name not in apart or (apart[name].alone and not apart[name].renamed):
                shared.append(left)
                continue
            own_graph, units_apart = split_backfill_task(plan.graph, plan.tasks, name, apart[name].again)
            nodes |= own_graph.nodes
            streams |= own_graph.streams
            own += units_apart
            needs.append(projections_of_sources(own_graph, plan.needs))
            if apart[name].joins:
                shared.append(Plan(*plan_joining_query(left.graph, left.tasks, name)))
            else:  # the shared plan needs its upstream tasks in any case
                shared.append(without_query(left, name))
        plan = merge_plans(shared)
        graph, tasks = merge_overlapping_joins(plan.graph, plan.tasks, placed)
        if not streams_apart:
            whole = QueryGraph({**graph.nodes, **nodes}, {**graph.streams, **streams})
            return Plan(whole, (*tasks, *own), tuple(needs), apart)
        ordered = sort_tasks((*tasks, *own))
        whole = graph_of({**graph.nodes, **nodes}, {**graph.streams, **streams}, ordered)
        return Plan(whole, ordered, tuple(needs), apart)


def projections_of_sources(
    graph: QueryGraph, needs: Iterable[Mapping[str, SourceProjection]]
) -> dict[str, SourceProjection]:
    """Return the required rows and columns of sources that a backfill reads a second time.

    A source that is read again has the same projection as its stream.
    """
    known = {source: need for one in needs for source, need in one.items()}
    found = {}
    for source in graph.sources:
        stream, again, _ = source.id.partition(AGAIN)
        if again:
            suffix = source.id.rpartition(")")[2]
            found[source.id] = known[stream + suffix]
    return found


def without_query(plan: Plan, query: str) -> Plan:
    """Remove the task of a query from a plan, but keep all upstream tasks."""
    task = task_of(plan.tasks, query)
    others = tuple(one for one in plan.tasks if one is not task)
    feeding = {node for one in others for root, _ in one.outputs for node in plan.graph.ancestors(root)}
    kept = {node.id: node for node in plan.graph if node.id in feeding or node.id not in task.nodes}
    return Plan(QueryGraph(kept, plan.graph.streams), others)


def plan_of(statement: QueryDefinition | Relation, catalog: Catalog) -> Plan:
    """Return the plan of one statement, including all relations that it reads."""
    if isinstance(statement, View):
        statement = as_query(statement)
    queries = {statement.name.lower(): statement} if isinstance(statement, QueryDefinition) else {}
    alone = replace(catalog, queries=queries)
    graph = share(optimize(build_part(alone, statement)), alone)
    return Plan(graph, split_into_tasks(graph), (source_projections(graph),))


def merge_plans(plans: Iterable[Plan]) -> Plan:
    """Merge plans: nodes and tasks with equal ids become one.

    A shared node serves the queries of all plans.
    """
    nodes: dict[str, Node] = {}
    members: dict[str, dict[str, Any]] = {}
    streams: dict[str, str] = {}
    parts: dict[str, list[Task]] = {}
    for plan in plans:
        for node in plan.graph:
            if isinstance(node.operator, SharedOperator):
                known = members.setdefault(node.id, {})
                for member in node.operator.members:
                    known.setdefault(member.name, member)
            nodes.setdefault(node.id, node)
        for name, node_id in plan.graph.streams.items():
            streams.setdefault(name, node_id)
        for task in plan.tasks:
            parts.setdefault(task.id, []).append(task)
    for node_id, found in members.items():
        operator = nodes[node_id].operator
        assert isinstance(operator, SharedOperator)
        nodes[node_id] = replace(nodes[node_id], operator=with_members(operator, found.values()))
    position = {node_id: number for number, node_id in enumerate(nodes)}
    return Plan(QueryGraph(nodes, streams), tuple(_merge_tasks(tasks, position) for tasks in parts.values()))


def _merge_tasks(tasks: Sequence[Task], position: Mapping[str, int]) -> Task:
    """Merge tasks that have the same id into one task."""
    nodes, stateful = (
        tuple(sorted({node for task in tasks for node in getattr(task, which)}, key=position.__getitem__))
        for which in ("nodes", "stateful_nodes")
    )
    outputs = tuple(dict.fromkeys(output for task in tasks for output in task.outputs))
    return replace(tasks[0], nodes=nodes, outputs=outputs, stateful_nodes=stateful)


def _roots(catalog: Catalog) -> dict[str, QueryDefinition | Relation]:
    """Return the statements that need a plan: derived streams, continuous queries, views over streams."""
    streams = {
        f"stream {name}": relation
        for name, relation in catalog.relations.items()
        if isinstance(relation, (DerivedStream, ComputedStream))
    }
    queries = {f"query {name}": query for name, query in catalog.queries.items() if query.continuous}
    return {**streams, **queries, **{f"view {view.name}": view for view in views_to_answer(catalog)}}


def _definitions(catalog: Catalog) -> dict[str, Relation | AggregateDefinition]:
    """Return the definitions to which plans refer, by kind and name."""
    return {
        **{f"relation {name}": relation for name, relation in catalog.relations.items()},
        **{f"base {name}": definition for name, definition in catalog.base_aggregates.items()},
        **{f"window {name}": definition for name, definition in catalog.window_aggregates.items()},
    }
