"""share_joins: merge binary joins of several queries with the same inputs and keys (S14, S17, S19).

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
from dataclasses import replace

from slicemill.catalog.catalog import Catalog
from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import SIDES, JoinMember, SharedJoin, WindowJoin
from slicemill.operators.specs import Part
from slicemill.plan.content import digest, short_name
from slicemill.plan.rules.join_parts import SharedJoinBuilder, add_shared_nodes, input_of, member_of_join
from slicemill.plan.rules.sharing import between_logs, content_of, source_name


def share_joins(graph: QueryGraph, catalog: Catalog) -> QueryGraph:  # noqa: ARG001
    shared: dict[str, SharedJoinBuilder] = {}
    made: dict[str, Node] = {}
    for node in graph:
        join = node.operator
        if not isinstance(join, WindowJoin) or len(node.inputs) != 2:
            continue
        member = member_of_join(graph, node, join)
        sources = [input_of(graph, node, join, port)[0] for port in (0, 1)]
        taken = {name for name, _, _ in member.columns}
        schema = replace(node.schema, columns=tuple(c for c in node.schema if c.name in taken))
        if between_logs(graph, node):
            label, name = _name(graph, sources, member)
            by_side = dict(zip(SIDES, sources, strict=True))
            shared.setdefault(name, SharedJoinBuilder(label, by_side)).members.append(member)
            made[node.id] = replace(node, operator=Part(node.id), inputs=(name,), schema=schema)
        else:
            inputs = tuple(source.id for source in sources)
            made[node.id] = replace(node, operator=SharedJoin((member,)), inputs=inputs, schema=schema)
    return add_shared_nodes(graph, shared, made)


def _name(graph: QueryGraph, sources: Sequence[Node], member: JoinMember) -> tuple[str, str]:
    """Return the label and the id of a shared join. Both depend only on the join's inputs and keys."""
    join = SharedJoin((member,))
    inputs, keys = " and ".join(source_name(graph, source) for source in sources), join.keys
    equal = short_name([f"{render(left)} = {render(right)}" for left, right in zip(*keys, strict=True)], keys)
    label = f"joins of {inputs} on {equal}" if equal else f"joins of {inputs}"
    label += " by rows" if join.counts_rows else ""
    # A join without a key can be spread over subtasks only by time.
    # No subtask then sees all possible matches of a row, so outer joins without a key get their own node.
    label += " with unmatched rows" if join.tracks_matches and not keys[0] else ""
    return label, f"{label} #{digest('joins', [content_of(graph, source) for source in sources], keys)}"
