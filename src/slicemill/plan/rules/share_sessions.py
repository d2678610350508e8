"""share_sessions: merge session aggregates of several queries that have the same input and keys.

    click ─┬─ σ page > 9 ─ γ count by visitor, SESSION 30 SECONDS ─ q1
           └────────────── γ max by visitor, SESSION 5 MINUTES ──── q2

    click ─── sessions of click by visitor ─┬─ part 1 ─ q1
                                            └─ part 2 ─ q2

Rows of open sessions are stored once for all gaps. An aggregate is not shared if its task has other stateful
operators.
"""

from __future__ import annotations

from slicemill.catalog.catalog import Catalog
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.session.spec import SessionAggregate, SessionMember, SharedSessions
from slicemill.plan.rules.sharing import (
    SharedByKey,
    between_logs,
    columns_read,
    filtered_input,
    get_or_add_shared,
    with_parts,
    without_loose_ends,
)


def share_sessions(graph: QueryGraph, _: Catalog) -> QueryGraph:
    shared: dict[str, SharedByKey[SessionMember]] = {}
    parts: dict[str, Node] = {}
    for node in graph:
        operator = node.operator
        if not isinstance(operator, SessionAggregate) or not between_logs(graph, node):
            continue
        source, conditions = filtered_input(graph, node)
        found = get_or_add_shared(shared, "sessions", graph, source, operator.keys)
        columns = tuple(column for column in node.schema if column.name in columns_read(graph, node))
        parts[node.id] = found.add(node, columns, SessionMember(node.id, conditions, operator, columns))
    made = {one.id: one.node(SharedSessions(one.keys, tuple(one.members))) for one in shared.values()}
    return without_loose_ends(with_parts(graph, made, parts))
