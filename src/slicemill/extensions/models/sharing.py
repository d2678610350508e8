"""Optimizer rule share_models: merge window calls of models that have the same input and partition keys.

    trade ─┬─ γ mean(price) OVER 9 ROWS ─ π ─ q1
           └─ γ slope(size, price) OVER 9 ROWS ─ π ─ q2

    trade ─── models of trade ─┬─ part 1 ─ π ─ q1
                               └─ part 2 ─ π ─ q2

A model is a formula over a window. Its core statistics are the sums, counts and extremes from which its
result is computed. In the shared node, models over the same window store equal core statistics once. A single
query also gets a shared node, so that later queries can share its state.
"""

from __future__ import annotations

from slicemill.catalog.catalog import Catalog
from slicemill.extensions.models.calls import model_call_of
from slicemill.extensions.models.cost import core_costs
from slicemill.extensions.models.spec import ModelMember, SharedModels
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.window.spec import WindowAggregate
from slicemill.plan.rules.sharing import (
    SharedByKey,
    between_logs,
    columns_read,
    get_or_add_shared,
    with_parts,
)


def share_models(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    shared: dict[str, SharedByKey[ModelMember]] = {}
    parts: dict[str, Node] = {}
    for node in graph:
        if not isinstance(node.operator, WindowAggregate) or not between_logs(graph, node):
            continue
        keys = {call.partition_by for call in node.operator.calls}
        calls = [model_call_of(call, catalog) for call in node.operator.calls]
        models = tuple(each for each in calls if each is not None)
        if len(keys) > 1 or len(models) < len(calls):
            continue
        source = graph[node.inputs[0]]
        (key,) = keys
        shared_node = get_or_add_shared(shared, "models", graph, source, key)
        columns = tuple(column for column in node.schema if column.name in columns_read(graph, node))
        member = ModelMember(node.id, node.owner, node.operator, models, columns)
        parts[node.id] = shared_node.add(node, columns, member)
    costs = core_costs()
    nodes = {
        each.id: each.node(SharedModels(each.keys, tuple(each.members), costs)) for each in shared.values()
    }
    return with_parts(graph, nodes, parts)
