"""share_joins: window joins of the same two inputs on the same equality become one node (S14, S17, S19).

    A ─── σ ─┬─ ⋈ A.k = B.k, 60 s ─ π ─ q1         A ─┬─ joins of A and B on k = k ─┬─ part 1 ─ π ─ q1
    B ───────┘                                     B ─┘                             └─ part 2 ─ π ─ q2
    A ─┬─ ⋈ A.k = B.k AND A.v < B.v, 5 s ─ π ─ q2
    B ─┘

Selections below a join go into the shared node: masks say which tuples each query wants. Below a window that
counts rows they stay where they are, since they decide which rows are the last ones. A lone join gets the
same form, so that others can join it later and find its state. A join that is not all there is between logs
becomes a node of its own, and stays in the unit of what reads it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slicemill.esl import types as t
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
from slicemill.plan.operators import Filter, JoinMember, Operator, Part, Project, SharedJoin, Sink, WindowJoin
from slicemill.plan.units import log_of

Keys = tuple[tuple[Expr, ...], tuple[Expr, ...]]

_LONGEST_NAME = 60
_NO_KEYS = (Kind.NULL, Kind.ANY, Kind.PERIOD)
_WIDENED = {(Kind.INT, Kind.BIGINT), (Kind.INT, Kind.DOUBLE), (Kind.BIGINT, Kind.DOUBLE)}


@dataclass
class _Shared:
    """A shared node in the making."""

    sources: tuple[Node, Node]
    keys: Keys
    members: list[JoinMember] = field(default_factory=list)


def share_joins(graph: QueryGraph) -> QueryGraph:
    shared: dict[str, _Shared] = {}
    parts: dict[str, Node] = {}
    for node in graph:
        join = node.operator
        if not isinstance(join, WindowJoin) or len(node.inputs) != 2:
            continue
        (left, left_where), (right, right_where) = (_input(graph, node, join, port) for port in (0, 1))
        keys, residual = _keys(join)
        together = _between_logs(graph, node)
        name = _name(graph, (left, right), keys) if together else f"{node.id}, in slices"
        found = shared.setdefault(name, _Shared((left, right), keys))
        read = _read(graph, node)
        schema = replace(node.schema, columns=tuple(c for c in node.schema if c.name in read))
        parts[node.id] = replace(node, operator=Part(len(found.members)), inputs=(name,), schema=schema)
        columns = tuple(_column(join, name) for name in schema.names)
        windows = (join.windows[0], join.windows[1])
        found.members.append(JoinMember(node.id, windows, (left_where, right_where), residual, columns))
    return _replaced(graph, shared, parts)


def _replaced(graph: QueryGraph, shared: dict[str, _Shared], parts: dict[str, Node]) -> QueryGraph:
    nodes: dict[str, Node] = {}
    for node in graph:
        part = parts.get(node.id)
        if part is not None:
            (name,) = part.inputs
            found = shared[name]
            operator = SharedJoin(found.keys, tuple(found.members))
            inputs = tuple(source.id for source in found.sources)
            nodes[name] = Node(name, operator, inputs, found.sources[0].schema, node.kind)
        nodes[node.id] = part or node
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
    """Is there nothing but selections and projections between the node and the logs around it?"""
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
        if not all(isinstance(reader.operator, (Filter, Project, Sink)) for reader in readers):
            return False
        behind += readers
    return True


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


def _keys(join: WindowJoin) -> tuple[Keys, Expr | None]:
    """What must be equal, in the inputs' own columns; and the rest, in columns `0.name` and `1.name`."""
    equal: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for part in conjuncts(join.condition):
        sides = _sides(part, join.aliases)
        if sides is None:
            rest.append(transform(part, lambda e: _numbered(e, join.aliases)))
        else:
            equal.append(sides)
    keys = (tuple(left for left, _ in equal), tuple(right for _, right in equal))
    return keys, conjunction(tuple(rest))


def _sides(part: Expr, aliases: tuple[str, ...]) -> tuple[Expr, Expr] | None:
    """Both sides of an equality between the inputs, as expressions of one type that cannot fail.

    A key is computed of every tuple, also of one that never meets another.
    """
    if not isinstance(part, Call) or part.function != "=":
        return None
    shared = t.common(*(argument.type for argument in part.arguments))
    if shared is None or shared.kind in _NO_KEYS:
        return None
    for first, second in (part.arguments, part.arguments[::-1]):
        left, right = _key(first, aliases[0], shared), _key(second, aliases[1], shared)
        if left is not None and right is not None:
            return left, right
    return None


def _key(expr: Expr, alias: str, shared: Type) -> Expr | None:
    names = columns_of(expr)
    if not names or not all(name.startswith(f"{alias}.") for name in names) or not _cannot_fail(expr):
        return None
    own = transform(expr, lambda e: _renamed(e, alias, ""))
    if expr.type.kind is shared.kind is not Kind.DECIMAL or expr.type == shared:
        return own
    return Cast(own, shared) if (expr.type.kind, shared.kind) in _WIDENED else None


def _cannot_fail(expr: Expr) -> bool:
    if isinstance(expr, Cast):
        return (expr.operand.type.kind, expr.type.kind) in _WIDENED and _cannot_fail(expr.operand)
    if isinstance(expr, Call):
        functions = ("lower", "upper", "trim", "ltrim", "rtrim", "coalesce")
        return expr.function in functions and all(_cannot_fail(argument) for argument in expr.arguments)
    return isinstance(expr, (ColumnRef, Literal))


def _column(join: WindowJoin, name: str) -> tuple[str, int, str]:
    alias, column = name.split(".", 1)
    return name, join.aliases.index(alias), column


def _numbered(expr: Expr, aliases: tuple[str, ...]) -> Expr | None:
    return next((found for i, a in enumerate(aliases) if (found := _renamed(expr, a, f"{i}."))), None)


def _renamed(expr: Expr, alias: str, prefix: str) -> Expr | None:
    if isinstance(expr, ColumnRef) and expr.name.startswith(f"{alias}."):
        return replace(expr, name=prefix + expr.name.removeprefix(f"{alias}."))
    return None
