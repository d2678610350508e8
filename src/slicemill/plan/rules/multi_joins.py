"""multi_joins: n-way window joins with one state per stream (S25, S45-S50).

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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr, conjunction, conjuncts
from slicemill.catalog.queries import FrameUnit
from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.form import forms_of_member
from slicemill.operators.join.spec import Equal, JoinMember, SharedJoin, WindowJoin, one_key
from slicemill.operators.specs import Part
from slicemill.plan.content import digest, short_name
from slicemill.plan.rules.join_parts import Places, column_inputs_of, equal_in, in_sides, input_of
from slicemill.plan.rules.sharing import (
    between_logs,
    columns_read,
    content_of,
    source_name,
    without_loose_ends,
)
from slicemill.plan.tasks import log_of


@dataclass
class _SharedStates:
    """Shared node under construction.

    `sources` maps the names of its inputs to nodes.
    """

    label: str
    sources: dict[str, Node]
    members: list[JoinMember] = field(default_factory=list)

    def operator(self) -> SharedJoin:
        return SharedJoin(tuple(self.members), tuple(self.sources))


def multi_joins(graph: QueryGraph, catalog: Catalog, *, always: bool = False) -> QueryGraph:  # noqa: ARG001
    """Rewrite n-way joins.

    With `always`, rewrite them even where a tree of binary joins is cheaper.
    """
    shared: dict[str, _SharedStates] = {}
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
            shared.setdefault(name, _SharedStates(label, by_name)).members.append(member)
            made[node.id] = replace(node, operator=Part(node.id), inputs=(name,), schema=schema)
        else:
            alone = SharedJoin((member,), tuple(by_name))
            inputs = tuple(source.id for source in by_name.values())
            made[node.id] = replace(node, operator=alone, inputs=inputs, schema=schema)
    return _add_shared_nodes(graph, shared, made)


def _in_time(join: WindowJoin) -> bool:
    return all(window.frame is FrameUnit.RANGE for window in join.windows)


def member_of_join(graph: QueryGraph, node: Node, join: WindowJoin) -> JoinMember:
    """Return a join as a member of a shared node."""
    given = [input_of(graph, node, join, port) for port in range(len(node.inputs))]
    places = column_inputs_of(graph, node)
    equal, residual = equalities(conjuncts(join.condition), places)
    read = columns_read(graph, node)
    return JoinMember(
        node.id,
        join.windows,
        tuple(where for _, where in given),
        residual,
        tuple((name, *places[name]) for name in node.schema.names if name in read),
        join.limit,
        inputs=_names([content_of(graph, source) for source, _ in given]),
        equal=equal,
    )


def equalities(parts: Sequence[Expr], places: Places) -> tuple[tuple[Equal, ...], Expr | None]:
    """Return sets of equal expressions, and the residual condition.

    Each set has at most one expression per side. The residual is in columns of the sides.
    """
    sets: list[dict[int, Expr]] = []
    rest: list[Expr] = []
    for part in parts:
        found = equal_in(part, places)
        if found is None or not _merge_equalities(sets, dict(found)):
            rest.append(in_sides(part, places))
    equal = tuple(tuple(sorted(one.items(), key=lambda item: item[0])) for one in sets)
    return equal, conjunction(tuple(rest))


def _merge_equalities(sets: list[dict[int, Expr]], pair: dict[int, Expr]) -> bool:
    """Merge a pair into the sets that contain one of its expressions.

    Return False if a set would have two expressions of one side.
    """
    touched = [one for one in sets if any(one.get(side) == key for side, key in pair.items())]
    whole: dict[int, Expr] = {}
    for one in (*touched, pair):
        if any(whole.setdefault(side, key) != key for side, key in one.items()):
            return False
    sets[:] = [one for one in sets if one not in touched] + [whole]
    return True


def _names(contents: Sequence[str]) -> tuple[str, ...]:
    """Return a distinct name for each input.

    The inputs of a self-join are numbered.
    """
    found: list[str] = []
    for content in contents:
        copies = sum(1 for name in found if name == content or name.startswith(f"{content} #"))
        found.append(f"{content} #{copies + 1}" if copies else content)
    return tuple(found)


def _name(graph: QueryGraph, sources: dict[str, Node], member: JoinMember) -> tuple[str, str]:
    """Return label and id, which depend only on the inputs and keys."""
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
    """Return the id of a node that joins logs on one key."""
    return f"{label} #{digest('states', label)}"


def _add_shared_nodes(
    graph: QueryGraph, shared: dict[str, _SharedStates], made: dict[str, Node]
) -> QueryGraph:
    nodes: dict[str, Node] = {}
    for node in graph:
        new = made.get(node.id, node)
        for name in new.inputs:
            if name in shared and name not in nodes:
                found = shared[name]
                sources = list(found.sources.values())
                inputs = tuple(source.id for source in sources)
                operator = found.operator()
                nodes[name] = Node(name, operator, inputs, sources[0].schema, node.kind, found.label)
        nodes[node.id] = new
    return without_loose_ends(QueryGraph(nodes, graph.streams))
