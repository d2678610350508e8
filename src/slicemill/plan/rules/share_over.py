"""share_over: merge built-in OVER aggregates of several queries that have the same input and keys.

    trade ─┬─ γ avg(price) OVER 60 SECONDS ─ π ─ q1
           └─ γ max(price) OVER 30 SECONDS ─ π ─ q2

    trade ─── rows of trade ─┬─ part 1 ─ π ─ q1
                             └─ part 2 ─ π ─ q2

The shared node stores rows once, for the longest window. A single query is also rewritten, so that its state
is kept when queries are added.
"""

from __future__ import annotations

from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import WindowCall
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.window.spec import OverMember, SharedOver, WindowAggregate, is_plain
from slicemill.plan.rules.sharing import (
    SharedByKey,
    between_logs,
    columns_read,
    get_or_add_shared,
    with_parts,
)
from slicemill.types import Kind

# Values of these types have no sort order or no Arrow type, so no kernel can aggregate them.
_WITHOUT_KERNEL = (Kind.ANY, Kind.NULL, Kind.PERIOD)


def share_over(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    shared: dict[str, SharedByKey[OverMember]] = {}
    parts: dict[str, Node] = {}
    for node in graph:
        operator = node.operator
        if not isinstance(operator, WindowAggregate) or not between_logs(graph, node):
            continue
        keys = {call.partition_by for call in operator.calls}
        if len(keys) > 1 or not all(_is_shared(call, catalog) for call in operator.calls):
            continue
        (key,) = keys
        found = get_or_add_shared(shared, "rows", graph, graph[node.inputs[0]], key)
        columns = tuple(column for column in node.schema if column.name in columns_read(graph, node))
        parts[node.id] = found.add(node, columns, OverMember(node.id, operator, columns))
    made = {one.id: one.node(SharedOver(one.keys, tuple(one.members))) for one in shared.values()}
    return with_parts(graph, made, parts)


def _is_shared(call: WindowCall, catalog: Catalog) -> bool:
    built_in = call.name.lower() in BUILTINS and not any(catalog.aggregates(call.name))
    kernel = not any(argument.type.kind in _WITHOUT_KERNEL for argument in call.arguments)
    return built_in and kernel and is_plain(call)
