"""multi_joins: replace n-way window joins by joins that store each stream once (S25, S45-S50).

    A, B, C ─ ⋈ A.k = B.k AND B.k = C.k, 60 s ─ q1  A ─┐
    C, A, B ─ ⋈ the same keys, 5 s ────────── q2    B ─┼─ joins of A, B and C on k = k = k ─┬─ part 1 ─ q1
                                                    C ─┘                                    └─ part 2 ─ q2

Joins of the same streams on the same equalities become one node, in whatever order FROM names the streams. A
join with other stateful operators before or after it in the same task gets a node of its own. Where a tree of
binary joins is cheaper (`operators.join.form`), `split_joins` rewrites the join instead. This rule
still rewrites joins with an age limit for load shedding and joins whose rows expire, because a tree supports
neither. Joins with ROWS windows are left unchanged, because the order of FROM determines which of several
rows with equal timestamps are in the window.
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import FrameUnit
from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.form import forms_of_member
from slicemill.operators.join.spec import JoinMember, SharedJoin, WindowJoin, one_key
from slicemill.operators.specs import Part
from slicemill.plan.content import digest, short_name
from slicemill.plan.rules.join_parts import SharedJoinBuilder, add_shared_nodes, input_of, member_of_join
from slicemill.plan.rules.sharing import (
    between_logs,
    source_name,
)
from slicemill.plan.tasks import log_of


def multi_joins(graph: QueryGraph, catalog: Catalog, *, always: bool = False) -> QueryGraph:  # noqa: ARG001
    """Replace joins of three or more streams by nodes that store the rows of each stream once.

    With `always`, joins are rewritten even where a tree of binary joins is cheaper.
    """
    shared: dict[str, SharedJoinBuilder] = {}
    made: dict[str, Node] = {}
    for node in graph:
        join = node.operator
        if not isinstance(join, WindowJoin) or len(node.inputs) < 3 or not _in_time(join):
            continue
        member = member_of_join(graph, node, join)
        forms = forms_of_member(member)
        expires = any(window.expires is not None for window in join.windows)
        if forms is not None and forms.use_tree and not (always or join.limit or expires):
            continue
        member = replace(member, why=forms.why if forms is not None else "")
        sources = [input_of(graph, node, join, port)[0] for port in range(len(node.inputs))]
        by_name = dict(sorted(zip(member.inputs, sources, strict=True), key=lambda named: named[0]))
        taken = {name for name, _, _ in member.columns}
        schema = replace(node.schema, columns=tuple(c for c in node.schema if c.name in taken))
        if between_logs(graph, node):
            label, name = _name(graph, by_name, member)
            shared.setdefault(name, SharedJoinBuilder(label, by_name)).members.append(member)
            made[node.id] = replace(node, operator=Part(node.id), inputs=(name,), schema=schema)
        else:
            alone = SharedJoin((member,), tuple(by_name))
            inputs = tuple(source.id for source in by_name.values())
            made[node.id] = replace(node, operator=alone, inputs=inputs, schema=schema)
    return add_shared_nodes(graph, shared, made)


def _in_time(join: WindowJoin) -> bool:
    return all(window.frame is FrameUnit.RANGE for window in join.windows)


def _name(graph: QueryGraph, sources: dict[str, Node], member: JoinMember) -> tuple[str, str]:
    """Return the label and the id of a shared join. Both depend only on the join's inputs and keys."""
    *first, last = (source_name(graph, source) for source in sources.values())
    sets = [
        sorted(((member.inputs[side], key) for side, key in equal), key=lambda part: part[0])
        for equal in member.equal
    ]
    sets.sort(key=lambda one: [(name, render(key)) for name, key in one])
    equal = short_name([" = ".join(render(key) for _, key in one) for one in sets], sets)
    label = f"joins of {', '.join(first)} and {last}" + (f" on {equal}" if equal else "")
    if one_key(member) is not None and all(log_of(source, graph) is not None for source in sources.values()):
        return label, states_id(label)
    return label, f"{label} #{digest('multi-way joins', list(sources), sets)}"


def states_id(label: str) -> str:
    """Return the id of the shared join that has this label and joins logs on a single key."""
    return f"{label} #{digest('states', label)}"
