"""share_joins: merge binary joins of equal inputs and keys (S14, S17, S19).

    A ─── σ ─┬─ ⋈ A.k = B.k, 60 s ─ π ─ q1         A ─┬─ joins of A and B on k = k ─┬─ part 1 ─ π ─ q1
    B ───────┘                                     B ─┘                             └─ part 2 ─ π ─ q2
    A ─┬─ ⋈ A.k = B.k AND A.v < B.v, 5 s ─ π ─ q2
    B ─┘

Filters below a join move into the shared node, where bit masks mark the queries whose filter a tuple passes.
Filters below a ROWS window are not moved, because they determine the contents of the window.

Joins with ROWS windows share a separate node. Their windows count the rows of all keys, so the node cannot be
partitioned by key. Outer and semi joins without a key also share a separate node, because it cannot be placed
by time. A single join is also rewritten, so that later queries can share its state. A join with other
stateful operators before or after it in the same task gets a node of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import conjuncts
from slicemill.catalog.queries import FrameUnit, JoinKind
from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import JoinMember, SharedJoin, WindowJoin
from slicemill.operators.specs import Part
from slicemill.plan.content import digest, short_name
from slicemill.plan.rules.join_parts import Keys, column_inputs_of, input_of, keys_of, pairs_of
from slicemill.plan.rules.sharing import (
    between_logs,
    columns_read,
    content_of,
    source_name,
    without_loose_ends,
)


@dataclass
class _SharedJoinBuilder:
    """Shared node under construction."""

    label: str
    sources: tuple[Node, Node]
    members: list[JoinMember] = field(default_factory=list)


def share_joins(graph: QueryGraph, catalog: Catalog) -> QueryGraph:  # noqa: ARG001
    shared: dict[str, _SharedJoinBuilder] = {}
    made: dict[str, Node] = {}
    for node in graph:
        join = node.operator
        if not isinstance(join, WindowJoin) or len(node.inputs) != 2:
            continue
        (left, left_where), (right, right_where) = (input_of(graph, node, join, port) for port in (0, 1))
        places = column_inputs_of(graph, node)
        keys, residual = keys_of(conjuncts(join.condition), places)
        read = columns_read(graph, node)
        schema = replace(node.schema, columns=tuple(c for c in node.schema if c.name in read))
        columns = tuple((name, *places[name]) for name in schema.names)
        windows = (join.windows[0], join.windows[1])
        selections = (left_where, right_where)
        member = JoinMember(
            node.id, windows, selections, residual, columns, join.limit, join.kind, equal=pairs_of(keys)
        )
        if between_logs(graph, node):
            counted = any(window.frame is FrameUnit.ROWS for window in windows)
            # Without a key, several subtasks are possible only by time, and then no subtask knows whether a
            # row has matched.
            judged = join.kind is not JoinKind.INNER and not keys[0]
            label, name = _name(graph, (left, right), keys, counted=counted, judged=judged)
            found = shared.setdefault(name, _SharedJoinBuilder(label, (left, right)))
            made[node.id] = replace(node, operator=Part(node.id), inputs=(name,), schema=schema)
            found.members.append(member)
        else:
            alone = SharedJoin((member,))
            made[node.id] = replace(node, operator=alone, inputs=(left.id, right.id), schema=schema)
    return _add_shared_nodes(graph, shared, made)


def _add_shared_nodes(
    graph: QueryGraph, shared: dict[str, _SharedJoinBuilder], made: dict[str, Node]
) -> QueryGraph:
    nodes: dict[str, Node] = {}
    for node in graph:
        new = made.get(node.id, node)
        for name in new.inputs:
            if name in shared and name not in nodes:
                found = shared[name]
                operator = SharedJoin(tuple(found.members))
                inputs = tuple(source.id for source in found.sources)
                nodes[name] = Node(name, operator, inputs, found.sources[0].schema, node.kind, found.label)
        nodes[node.id] = new
    return without_loose_ends(QueryGraph(nodes, graph.streams))


def _name(
    graph: QueryGraph, sources: Sequence[Node], keys: Keys, *, counted: bool, judged: bool
) -> tuple[str, str]:
    """Return label and id, which depend only on the inputs and keys."""
    inputs = " and ".join(source_name(graph, source) for source in sources)
    equal = short_name([f"{render(left)} = {render(right)}" for left, right in zip(*keys, strict=True)], keys)
    label = f"joins of {inputs} on {equal}" if equal else f"joins of {inputs}"
    label += " by rows" if counted else ""
    label += " with unmatched rows" if judged else ""
    return label, f"{label} #{digest('joins', [content_of(graph, source) for source in sources], keys)}"
