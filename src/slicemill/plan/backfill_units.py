"""Backfill units: separate units for queries that start in the past.

Such a query runs in its own unit, called `q apart`, until it has caught up.

    bid ─┬─ windows of bid by auction ─┬─ q1           bid ─┬─ windows of bid by auction ─┬─ q1
         │                             └─ q2     ──►        │                             ├─ q2
         └─ q apart ── q                                    │                             └─ q (joining)
                                                            └─ q apart ── q

Queries can share state only if they read a log from the same epoch on. So the nodes of a backfill unit have
their own names and are not shared. Once the query has caught up, it is also planned in the shared unit, under
the name `q (joining)`, which has no log (`plan_joining_query`). Its results there are discarded until its
state is as complete as if the query had always run. Then the shared node writes the query's log, and the
backfill unit is dropped.

If a log no longer contains the old rows, the source of the stream is read again into a separate log. Derived
streams between the source and the query are computed again:

    bid (again for q) ── dear (again for q) ── q apart ── q

When the second reader of the source has reached the position of the first reader, the backfill units switch
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
from slicemill.plan.units import Unit


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """Backfill of a query or derived stream that starts in the past.

    `again` has the declared streams whose sources are read again, and the derived streams that are computed
    again. `kept` has the logs from which the query reads retained rows. `begins_us` is the time of its first
    rows, or None for all rows. With `joins` the query is also planned in the shared unit. `explicit` means
    that the query's definition sets the start, `renamed` that its nodes have their own names, and `alone`
    that no other query could share its unit.
    """

    joins: bool = False
    again: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    begins_us: int | None = None
    explicit: bool = False
    renamed: bool = False
    alone: bool = False


def backfill_units(names: Mapping[str, BackfillPlan], units: Iterable[Unit]) -> dict[str, str]:
    """Map the ids of backfill units to their query or stream."""
    own = {unit: name for name in names for unit in (backfill_unit_id(name), quote_name(name))}
    feeding = {unit.id: name for unit in units for name in names if unit.id.endswith(f"{AGAIN}{name}) apart")}
    return own | feeding


def backfill_log_name(log: str, query: str) -> str:
    """Return the log name of a source that is read again."""
    suffix = next((side for side in (LATE, ERRORS) if log.endswith(side)), "")
    return f"{log}{AGAIN}{query})" if not suffix else f"{log.removesuffix(suffix)}{AGAIN}{query}){suffix}"


def backfill_unit_id(query: str) -> str:
    """Return the id of a query's backfill unit."""
    return f"{quote_name(query)} apart"


def has_own_unit(unit: Unit, query: str) -> bool:
    """Return True if the unit runs only this query.

    It is either a backfill unit or a unit that cannot be shared.
    """
    return unit.id in (backfill_unit_id(query), quote_name(query))


def is_alone(units: tuple[Unit, ...], query: str) -> bool:
    """Return True if the query's unit cannot be shared."""
    return unit_of(units, query).id == quote_name(query)


def split_backfill_unit(
    graph: QueryGraph, units: tuple[Unit, ...], query: str, again: Collection[str] = ()
) -> tuple[QueryGraph, tuple[Unit, ...]]:
    """Return a query's backfill unit and its graph, with renamed nodes.

    The result includes the sources in `again`, and the units that compute derived streams again. `units` are
    in topological order.
    """
    own = unit_of(units, query)
    logs = {
        log: backfill_log_name(log, query) for unit in units for log in unit.inputs if _is_reread(log, again)
    }
    chosen, wanted = [own], set(own.inputs)
    for unit in reversed(units):
        if unit is not own and any(log in wanted and log in logs for _, log in unit.outputs):
            chosen.insert(0, unit)
            wanted |= set(unit.inputs)
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
    for unit in chosen:
        names |= {
            node: f"{node} of {quote_name(query)} apart"
            for node in unit.nodes
            if node not in roots and kind_of(graph[node].operator).own_name is None
        }
    units_apart = []
    for unit in chosen:
        for node in unit.nodes:
            nodes[names.get(node, node)] = _rename_node(graph[node], names)
        outputs = tuple(
            (names.get(root, root), logs.get(log, log) if unit is not own else log)
            for root, log in unit.outputs
            if unit is not own or log == query
        )
        streams |= {log: root for root, log in outputs if unit is not own}
        units_apart.append(
            Unit(
                backfill_unit_id(query) if unit is own else f"{outputs[0][1]} apart",
                tuple(names.get(node, node) for node in unit.nodes),
                tuple(sorted(logs.get(log, log) for log in unit.inputs)),
                outputs,
                tuple(names.get(node, node) for node in unit.stateful_nodes),
            )
        )
    return QueryGraph(nodes, streams), tuple(units_apart)


def without_writers(graph: QueryGraph, units: tuple[Unit, ...], logs: Collection[str]) -> tuple[Unit, ...]:
    """Return the units without the outputs that backfill units write instead."""
    kept = []
    for unit in units:
        left = tuple((root, log) for root, log in unit.outputs if log not in logs)
        if len(left) == len(unit.outputs):
            kept.append(unit)
        elif left:
            needed = frozenset(node for root, _ in left for node in graph.ancestors(root))
            inside = tuple(node for node in unit.nodes if node in needed)
            stateful = tuple(node for node in unit.stateful_nodes if node in needed)
            kept.append(replace(unit, nodes=inside, outputs=left, stateful_nodes=stateful))
    return tuple(kept)


def sort_units(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """Sort units topologically, and otherwise keep the given order."""
    units = tuple(units)
    writers = {log: unit for unit in units for _, log in unit.outputs}
    found: dict[str, Unit] = {}

    def add(unit: Unit) -> None:
        if unit.id not in found:
            for log in unit.inputs:
                if log in writers:
                    add(writers[log])
            found[unit.id] = unit

    for unit in units:
        add(unit)
    return tuple(found.values())


def graph_of(nodes: Mapping[str, Node], streams: Mapping[str, str], units: Iterable[Unit]) -> QueryGraph:
    """Return a graph in topological order, without unused nodes."""
    run = {node for unit in units for node in unit.nodes}
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
    graph: QueryGraph, units: tuple[Unit, ...], query: str
) -> tuple[QueryGraph, tuple[Unit, ...]]:
    """Return the plan with a query renamed to `<query> (joining)`.

    No log has this name, so its results are discarded.
    """
    unit, name = unit_of(units, query), query + JOINING
    results = graph[query].operator
    assert isinstance(results, QueryResults)
    end = replace(graph[query], id=name, operator=replace(results, query=name), label=name)
    nodes = {(name if node.id == query else node.id): (end if node.id == query else node) for node in graph}
    muted = replace(
        unit,
        nodes=tuple(name if node == query else node for node in unit.nodes),
        outputs=((name, name),),
    )
    return QueryGraph(nodes, graph.streams), tuple(muted if one is unit else one for one in units)


def unit_of(units: tuple[Unit, ...], query: str) -> Unit:
    """Return the unit that writes a query's results."""
    return next(unit for unit in units if any(log == query for _, log in unit.outputs))


def _rename_node(node: Node, names: dict[str, str]) -> Node:
    refer, operator = kind_of(node.operator).refer, node.operator
    if refer is not None:
        operator = refer(operator, lambda other: names.get(other, other))
    inputs = tuple(names.get(source, source) for source in node.inputs)
    return replace(node, id=names.get(node.id, node.id), operator=operator, inputs=inputs)
