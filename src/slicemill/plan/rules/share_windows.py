"""share_windows: merge sliding-window aggregates of several queries with the same input and keys.

    bid ─┬─ σ price > 9 ─ γ avg by item, RANGE 60 SLIDE 1 ─ π ─ q1
         └─────────────── γ max by item, RANGE 10 SLIDE 5 ─ π ─ q2

    bid ─── windows of bid by item ─┬─ part 1 ─ π ─ q1
                                    └─ part 2 ─ π ─ q2

Filters move into the shared node. The node groups tuples by the set of filters that they pass, and aggregates
each group once. A single aggregate is also rewritten, so that later queries can share its state.

An aggregate is shared only if no other stateful operator lies between it and the logs. Then the task of the
node depends on the stream and keys alone, and not on other queries. Any other window aggregate in FROM gets
its own node.
"""

from __future__ import annotations

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import Operator
from slicemill.operators.window.spec import (
    RelationAggregate,
    SharedWindows,
    WindowAggregate,
    WindowMember,
    combines_panes,
)
from slicemill.plan.rules.sharing import (
    SharedByKey,
    between_logs,
    columns_read,
    filtered_input,
    get_or_add_shared,
    single_member_node,
    with_parts,
    without_loose_ends,
)


def share_windows(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    shared: dict[str, SharedByKey[WindowMember]] = {}
    parts: dict[str, Node] = {}
    for node in graph:
        keys = _keys(node.operator)
        if keys is None:
            continue
        apart = not between_logs(graph, node)
        if apart and isinstance(node.operator, WindowAggregate):
            # The operator of OVER windows computes this aggregate.
            continue
        assert isinstance(node.operator, (RelationAggregate, WindowAggregate))
        partial = all(combines_panes(call, catalog) for call in node.operator.calls)
        if isinstance(node.operator, WindowAggregate) and not partial:
            # The window needs every row, because its aggregates cannot be merged from parts of the window.
            continue
        source, conditions = (graph[node.inputs[0]], ()) if apart else filtered_input(graph, node)
        found = (
            single_member_node(shared, "windows", node, source, keys)
            if apart
            else get_or_add_shared(shared, "windows", graph, source, keys)
        )
        columns = tuple(column for column in node.schema if column.name in columns_read(graph, node))
        member = WindowMember(node.id, conditions, node.operator, columns, partial)
        parts[node.id] = found.add(node, columns, member)
    made = {one.id: one.node(SharedWindows(one.keys, tuple(one.members))) for one in shared.values()}
    return without_loose_ends(with_parts(graph, made, parts))


def _keys(operator: Operator) -> tuple[Expr, ...] | None:
    """Return the keys of an aggregate over sliding time windows, or None for any other operator."""
    if isinstance(operator, RelationAggregate):
        windows = [window for column, window in operator.windows if column is None]
        if len(windows) == len(operator.windows) == 1 and operator.slide is not None and operator.calls:
            return tuple(item.expr for item in operator.group_by) if _slides(windows[0]) else None
    if isinstance(operator, WindowAggregate):
        keys, slides = zip(*((call.partition_by, call.window.slide) for call in operator.calls), strict=True)
        if len({*keys}) == len({*slides}) == 1 and all(_slides(call.window) for call in operator.calls):
            return operator.calls[0].partition_by
    return None


def _slides(window: Window) -> bool:
    return (
        window.frame is FrameUnit.RANGE
        and not window.active
        and bool(window.extent)
        and window.slide is not None
    )
