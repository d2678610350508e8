"""share_joins: window joins of the same two inputs on the same equality become one node (S14, S17, S19).

    A ─── σ ─┬─ ⋈ A.k = B.k, 60 s ─ π ─ q1         A ─┬─ joins of A and B on k = k ─┬─ part 1 ─ π ─ q1
    B ───────┘                                     B ─┘                             └─ part 2 ─ π ─ q2
    A ─┬─ ⋈ A.k = B.k AND A.v < B.v, 5 s ─ π ─ q2
    B ─┘

Selections below a join go into the shared node: masks say which tuples each query wants. Below a window that
counts rows they stay where they are, since they decide which rows are the last ones. A lone join gets the
same form, so that others can join it later and find its state. A join that is not all there is between logs
is rewritten where it stands, for itself alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from slicemill.esl import types as t
from slicemill.esl.catalog import Catalog
from slicemill.esl.expression import (
    Call,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    transform,
)
from slicemill.esl.query import Frame
from slicemill.esl.render import render
from slicemill.esl.types import Kind, Type
from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.operators import (
    Filter,
    JoinMember,
    Lookup,
    Operator,
    Part,
    Project,
    Scan,
    SharedJoin,
    Sink,
    WindowJoin,
)
from slicemill.plan.units import log_of

Keys: TypeAlias = tuple[tuple[Expr, ...], tuple[Expr, ...]]
Places: TypeAlias = Mapping[str, tuple[int, str]]

_LONGEST_NAME = 60
_NO_KEYS = (Kind.NULL, Kind.ANY, Kind.PERIOD)
_SAFE = ("lower", "upper", "trim")
_WIDENED = {(Kind.INT, Kind.BIGINT), (Kind.INT, Kind.DOUBLE), (Kind.BIGINT, Kind.DOUBLE)}


@dataclass
class _Shared:
    """A shared node in the making."""

    sources: tuple[Node, Node]
    keys: Keys
    members: list[JoinMember] = field(default_factory=list)


def share_joins(graph: QueryGraph, catalog: Catalog) -> QueryGraph:  # noqa: ARG001
    shared: dict[str, _Shared] = {}
    made: dict[str, Node] = {}
    for node in graph:
        join = node.operator
        if not isinstance(join, WindowJoin) or len(node.inputs) != 2:
            continue
        (left, left_where), (right, right_where) = (_input(graph, node, join, port) for port in (0, 1))
        places = _places(graph, node)
        keys, residual = _keys(join, places)
        read = _read(graph, node)
        schema = replace(node.schema, columns=tuple(c for c in node.schema if c.name in read))
        columns = tuple((name, *places[name]) for name in schema.names)
        windows = (join.windows[0], join.windows[1])
        member = JoinMember(node.id, windows, (left_where, right_where), residual, columns)
        if _between_logs(graph, node):
            name = _name(graph, (left, right), keys)
            found = shared.setdefault(name, _Shared((left, right), keys))
            made[node.id] = replace(node, operator=Part(len(found.members)), inputs=(name,), schema=schema)
            found.members.append(member)
        else:
            alone = SharedJoin(keys, (member,))
            made[node.id] = replace(node, operator=alone, inputs=(left.id, right.id), schema=schema)
    return _replaced(graph, shared, made)


def _replaced(graph: QueryGraph, shared: dict[str, _Shared], made: dict[str, Node]) -> QueryGraph:
    nodes: dict[str, Node] = {}
    for node in graph:
        new = made.get(node.id, node)
        for name in new.inputs:
            if name in shared and name not in nodes:
                found = shared[name]
                operator = SharedJoin(found.keys, tuple(found.members))
                inputs = tuple(source.id for source in found.sources)
                nodes[name] = Node(name, operator, inputs, found.sources[0].schema, node.kind)
        nodes[node.id] = new
    return _without_loose_ends(QueryGraph(nodes, graph.streams))


def _without_loose_ends(graph: QueryGraph) -> QueryGraph:
    """Selections that have gone into a shared node are read by nobody any more."""
    while True:
        read = {source for node in graph for source in node.inputs} | set(graph.streams.values())
        loose = {node.id for node in graph if isinstance(node.operator, Filter) and node.id not in read}
        if not loose:
            return graph
        graph = QueryGraph({n.id: n for n in graph if n.id not in loose}, graph.streams)


# -- what a join reads, and who reads it ---------------------------------------------------------------


def _input(graph: QueryGraph, node: Node, join: WindowJoin, port: int) -> tuple[Node, Expr | None]:
    """What a join reads before the selections below it, and these as one, the first one first."""
    conditions: list[Expr] = []
    source = graph[node.inputs[port]]
    while (
        isinstance(source.operator, Filter)
        and join.windows[port].frame is not Frame.ROWS
        and log_of(source, graph) is None
    ):
        conditions.insert(0, source.operator.condition)
        source = graph[source.inputs[0]]
    return source, conjunction(tuple(conditions))


def _between_logs(graph: QueryGraph, node: Node) -> bool:
    """Is there nothing that keeps tuples between the node and the logs around it?"""
    for source in map(graph.__getitem__, node.inputs):
        while log_of(source, graph) is None:
            if not isinstance(source.operator, (Filter, Project)):
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
    return isinstance(node.operator, (Filter, Project, Sink))


def _read(graph: QueryGraph, node: Node) -> frozenset[str]:
    """The columns of a node that are read behind it; all of them, where they are kept."""
    if log_of(node, graph) is not None:
        return frozenset(node.schema.names)
    read: set[str] = set()
    for reader in graph.consumers(node.id):
        if isinstance(reader.operator, Project):
            read.update(*(columns_of(item.expr) for item in reader.operator.items))
        elif isinstance(reader.operator, Filter):
            read |= columns_of(reader.operator.condition) | _read(graph, reader)
        else:
            read.update(node.schema.names)
    return frozenset(read)


def _name(graph: QueryGraph, sources: Sequence[Node], keys: Keys) -> str:
    """The same for as long as anybody joins these inputs on these keys, whichever queries they are."""
    inputs = " and ".join(_source_name(graph, source) for source in sources)
    equal = ", ".join(f"{render(left)} = {render(right)}" for left, right in zip(*keys, strict=True))
    if len(equal) > _LONGEST_NAME:
        equal = _digest(keys)
    return f"joins of {inputs} on {equal}" if equal else f"joins of {inputs}"


def _source_name(graph: QueryGraph, source: Node) -> str:
    steps: list[Operator] = []
    while (log := log_of(source, graph)) is None:
        steps.append(source.operator)
        source = graph[source.inputs[0]]
    return f"{log} {_digest(steps)}" if steps else log


def _digest(what: object) -> str:
    return f"#{zlib.crc32(repr(what).encode()):08x}"


# -- conditions ----------------------------------------------------------------------------------------


def _places(graph: QueryGraph, node: Node) -> Places:
    """For every column of a join the input that it is of, and its name there."""
    own = [(port, name) for port, source in enumerate(node.inputs) for name in graph[source].schema.names]
    times = [(port, "_ts") for port in range(len(node.inputs))]
    return dict(zip(node.schema.names, [*own, *times], strict=False))


def _keys(join: WindowJoin, places: Places) -> tuple[Keys, Expr | None]:
    """What must be equal, in the inputs' own columns; and the rest, in columns `0.name` and `1.name`."""
    equal: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for part in conjuncts(join.condition):
        sides = _sides(part, places)
        if sides is None:
            rest.append(_renamed(part, {name: f"{port}.{own}" for name, (port, own) in places.items()}))
        else:
            equal.append(sides)
    keys = (tuple(left for left, _ in equal), tuple(right for _, right in equal))
    return keys, conjunction(tuple(rest))


def _sides(part: Expr, places: Places) -> tuple[Expr, Expr] | None:
    """Both sides of an equality between the inputs, as expressions of one type that cannot fail.

    A key is computed of every tuple, also of one that never meets another.
    """
    if not isinstance(part, Call) or part.function != "=":
        return None
    first, second = part.arguments
    shared = t.common(first.type, second.type)
    if shared is None or shared.kind in _NO_KEYS:
        return None
    for left, right in ((first, second), (second, first)):
        keys = _key(left, 0, places, shared), _key(right, 1, places, shared)
        if keys[0] is not None and keys[1] is not None:
            return keys[0], keys[1]
    return None


def _key(expr: Expr, port: int, places: Places, shared: Type) -> Expr | None:
    names = columns_of(expr)
    if not names or any(places[name][0] != port for name in names) or not _cannot_fail(expr):
        return None
    own = _renamed(expr, {name: places[name][1] for name in names})
    if expr.type == shared or expr.type.kind is shared.kind is not Kind.DECIMAL:
        return own
    return Cast(own, shared) if (expr.type.kind, shared.kind) in _WIDENED else None


def _cannot_fail(expr: Expr) -> bool:
    if isinstance(expr, Cast):
        return (expr.operand.type.kind, expr.type.kind) in _WIDENED and _cannot_fail(expr.operand)
    if isinstance(expr, Call):
        return expr.function in _SAFE and all(_cannot_fail(argument) for argument in expr.arguments)
    return isinstance(expr, (ColumnRef, Literal))


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    return transform(expr, lambda e: replace(e, name=names[e.name]) if isinstance(e, ColumnRef) else None)
