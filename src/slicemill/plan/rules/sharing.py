"""Helper functions of the rules that merge operators of several queries into one shared graph node.

A shared node has one member per query: the specification of that query's own operator. A part is the node
that replaces the query's operator in the graph: it selects the member's rows from the shared node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from slicemill.catalog.expressions import Expr, columns_of
from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import Operator
from slicemill.operators.specs import (
    Drop,
    Filter,
    Lookup,
    Part,
    Project,
    QueryResults,
    Scan,
    TableCall,
    Unnest,
    WholeWindows,
)
from slicemill.plan.content import digest, quote_name, short_name
from slicemill.plan.tasks import log_of
from slicemill.types import Column

M = TypeVar("M")


@dataclass
class SharedByKey(Generic[M]):
    """Graph node under construction, which several queries with the same input and keys share.

    The id of the node depends on the input and keys, but not on the queries.
    """

    id: str
    label: str
    source: Node
    keys: tuple[Expr, ...]
    members: list[M] = field(default_factory=list)

    def add(self, node: Node, columns: tuple[Column, ...], member: M) -> Node:
        """Add the operator of one query to the shared graph node, and return the node that replaces it.

        The replacing node (part) selects the query's rows from the shared node. It has only the columns that
        its consumers read.
        """
        self.members.append(member)
        return replace(
            node, operator=Part(node.id), inputs=(self.id,), schema=replace(node.schema, columns=columns)
        )

    def node(self, operator: Operator) -> Node:
        return Node(self.id, operator, (self.source.id,), self.source.schema, self.source.kind, self.label)


def get_or_add_shared(
    known: dict[str, SharedByKey[M]], what: str, graph: QueryGraph, source: Node, keys: tuple[Expr, ...]
) -> SharedByKey[M]:
    """Return the graph node that all operators with this input and these keys share.

    The node is created on first use.
    """
    of, by = source_name(graph, source), short_name([render(key) for key in keys], keys)
    label = f"{what} of {of} by {by}" if keys else f"{what} of {of}"
    name = f"{label} #{digest(what, content_of(graph, source), keys)}"
    return known.setdefault(name, SharedByKey(name, label, source, keys))


def single_member_node(
    known: dict[str, SharedByKey[M]], what: str, node: Node, source: Node, keys: tuple[Expr, ...]
) -> SharedByKey[M]:
    """Create a graph node that only the operator of one query uses.

    Other queries do not share this node.
    """
    made: SharedByKey[M] = SharedByKey(f"{what} of {node.id}", f"{what} of {node.name}", source, keys)
    known[made.id] = made
    return made


def between_logs(graph: QueryGraph, node: Node) -> bool:
    """Return True if only stateless operators lie between a graph node and the logs it reads and feeds.

    The task of a shared node that replaces this node then does not depend on other queries.
    """
    for source in map(graph.__getitem__, node.inputs):
        while log_of(source, graph) is None:
            if not isinstance(source.operator, (Filter, Project, Drop)):
                return False
            source = graph[source.inputs[0]]
    behind = [node]
    while behind:
        current = behind.pop()
        if log_of(current, graph) is not None:
            continue
        readers = graph.consumers(current.id)
        if not all(_keeps_nothing(graph, reader) for reader in readers):
            return False
        behind += readers
    return True


def _keeps_nothing(graph: QueryGraph, node: Node) -> bool:
    if isinstance(node.operator, Lookup):
        return isinstance(graph[node.inputs[1]].operator, Scan)
    return isinstance(node.operator, (Filter, Project, TableCall, Unnest, WholeWindows, QueryResults))


def filtered_input(graph: QueryGraph, node: Node) -> tuple[Node, tuple[Expr, ...]]:
    """Return the graph node below the filters of an aggregate, and the conditions of these filters."""
    conditions: list[Expr] = []
    above = graph[node.inputs[0]]
    while isinstance(above.operator, Filter) and log_of(above, graph) is None:
        conditions.insert(0, above.operator.condition)
        above = graph[above.inputs[0]]
    return above, tuple(conditions)


def columns_read(graph: QueryGraph, node: Node) -> frozenset[str]:
    """Return the columns of a graph node that its consumers read.

    All columns are returned for a node that writes a log.
    """
    if log_of(node, graph) is not None:
        return frozenset(node.schema.names)
    read: set[str] = set()
    for reader in graph.consumers(node.id):
        if isinstance(reader.operator, Project):
            read.update(*(columns_of(item.expr) for item in reader.operator.items))
        elif isinstance(reader.operator, Filter):
            read |= columns_of(reader.operator.condition) | columns_read(graph, reader)
        else:
            read.update(node.schema.names)
    return frozenset(read)


def with_parts(graph: QueryGraph, made: Mapping[str, Node], parts: Mapping[str, Node]) -> QueryGraph:
    """Replace the nodes in `parts` by parts that read a shared node, and insert the shared nodes."""
    nodes: dict[str, Node] = {}
    for node in graph:
        part = parts.get(node.id)
        if part is not None:
            nodes[part.inputs[0]] = made[part.inputs[0]]
        nodes[node.id] = part or node
    return QueryGraph(nodes, graph.streams)


def without_loose_ends(graph: QueryGraph) -> QueryGraph:
    """Remove filters without consumers, whose conditions have moved into a shared node."""
    while True:
        read = {source for node in graph for source in node.inputs} | set(graph.streams.values())
        loose = {node.id for node in graph if isinstance(node.operator, Filter) and node.id not in read}
        if not loose:
            return graph
        graph = QueryGraph({n.id: n for n in graph if n.id not in loose}, graph.streams)


def source_name(graph: QueryGraph, source: Node) -> str:
    """Return the name of an operator's input that labels show to users."""
    log = log_of(source, graph)
    return source.name if log is None else quote_name(log)


def content_of(graph: QueryGraph, source: Node) -> str:
    """Return the name that identifies an operator's input, whatever other queries are registered."""
    log = log_of(source, graph)
    return source.id if log is None else f"log {log}"
