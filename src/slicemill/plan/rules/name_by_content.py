"""name_by_content: derive each node id from the node's computation, and merge equal stateless nodes.

    bid ─┬─ q1: where ─ q1                    bid ─── bid: where price > 9 #5f… ─┬─ q1
         └─ q2: where ─ q2      (price > 9)                                      └─ q2

An id depends neither on other queries nor on the order of registration. State is stored under the id, so it
stays valid when other queries are dropped. A stateless node is named by content alone and shared. The state
of a stateful node depends on when its query was registered. So the node and all its consumers belong to that
query, and their ids contain its name. The last node of a derived stream belongs to that stream, because it
writes the log. Sources, tables and query results keep their own names.
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.catalog.catalog import Catalog
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import Operator, Role
from slicemill.operators.registry import kind_of
from slicemill.plan.content import digest_of_calls
from slicemill.plan.tasks import log_of

_LONGEST_WORDS = 40


def name_by_content(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    owners = _owners(graph)
    renamed: dict[str, Node] = {}
    nodes: dict[str, Node] = {}
    for node in graph:
        made = _name_node(node, graph, catalog, owners[node.id], renamed)
        renamed[node.id] = nodes.setdefault(made.id, made)
    return QueryGraph(nodes, {name: renamed[node_id].id for name, node_id in graph.streams.items()})


def _owners(graph: QueryGraph) -> dict[str, str]:
    """Map each graph node to the query, stream or view that uses it.

    A node that several queries use is mapped to the last query.
    """
    owners: dict[str, str] = {}
    for node in reversed(list(graph)):
        kind = kind_of(node.operator)
        if (relation := kind.relation(node.operator)) is not None:
            owners[node.id] = relation
        elif (log := log_of(node, graph)) is not None:
            owners[node.id] = log
        else:
            owners.setdefault(node.id, "")
        for source in node.inputs:
            owners[source] = owners[node.id]
    return owners


def _name_node(node: Node, graph: QueryGraph, catalog: Catalog, owner: str, renamed: dict[str, Node]) -> Node:
    operator, inputs = node.operator, tuple(renamed[source] for source in node.inputs)
    kind = kind_of(operator)
    made = replace(node, inputs=tuple(source.id for source in inputs))
    if (name := kind.own_name(operator)) is not None:
        return replace(made, id=name, label=name, owner=name if kind.role is Role.SINK else "")
    operator = kind.refer(operator, lambda node_id: renamed[node_id].id)
    # An input that is a log is identified by the name of the log, not by the node that writes the log.
    logs = [log_of(graph[source], graph) for source in node.inputs]
    given = [f"log {log}" if log is not None else source.id for log, source in zip(logs, inputs, strict=True)]
    owned = any(log is None and source.owner for log, source in zip(logs, inputs, strict=True))
    stays = log_of(node, graph) is not None or not kind.for_all(operator, node, graph)
    own = owner if owned or stays else ""
    label = (
        f"{own}: {_operator_label(operator)}"
        if own
        else f"{_first_log(node, graph)}: {_selection_label(operator)}"
    )
    content = digest_of_calls(catalog, own, operator, given)
    return replace(made, id=f"{label} #{content}", operator=operator, label=label, owner=own)


def _first_log(node: Node, graph: QueryGraph) -> str:
    while (log := log_of(node, graph)) is None:
        node = graph[node.inputs[0]]
    return log


def _selection_label(operator: Operator) -> str:
    """Return a short label for a stateless operator that many queries may share."""
    text = kind_of(operator).shared_label(operator) or _operator_label(operator)
    return text if len(text) <= _LONGEST_WORDS else f"{text[: _LONGEST_WORDS - 3]}..."


def _operator_label(operator: Operator) -> str:
    label = kind_of(operator).label(operator)
    assert label is not None, "rules that create nodes without a label run later"
    return label
