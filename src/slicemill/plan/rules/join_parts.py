"""Analysis of joins by rules that merge joins of several queries into one shared graph node.

The functions return a join's inputs, columns, key equalities, and its specification in the shared node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from slicemill import types as t
from slicemill.catalog.expressions import (
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
from slicemill.catalog.queries import FrameUnit
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import SIDES, Equal, JoinMember, SharedJoin, WindowJoin
from slicemill.operators.specs import Filter
from slicemill.plan.rules.sharing import columns_read, content_of, without_loose_ends
from slicemill.plan.tasks import log_of
from slicemill.types import Column, Kind, Type

Keys: TypeAlias = tuple[tuple[Expr, ...], tuple[Expr, ...]]
Places: TypeAlias = Mapping[str, tuple[int, str]]

_NO_KEYS = (Kind.NULL, Kind.ANY, Kind.PERIOD)
_SAFE = ("lower", "upper", "trim")
_WIDENED = {(Kind.INT, Kind.BIGINT), (Kind.INT, Kind.DOUBLE), (Kind.BIGINT, Kind.DOUBLE)}


def input_of(graph: QueryGraph, node: Node, join: WindowJoin, port: int) -> tuple[Node, Expr | None]:
    """Return the graph node below the filters of a join input, and the condition of these filters."""
    conditions: list[Expr] = []
    source = graph[node.inputs[port]]
    while (
        isinstance(source.operator, Filter)
        and join.windows[port].frame is not FrameUnit.ROWS
        and log_of(source, graph) is None
    ):
        conditions.insert(0, source.operator.condition)
        source = graph[source.inputs[0]]
    return source, conjunction(tuple(conditions))


def column_inputs_of(graph: QueryGraph, node: Node) -> Places:
    """Map each output column of a join to the input that it comes from, and to its name there."""
    own = [(port, name) for port, source in enumerate(node.inputs) for name in graph[source].schema.names]
    times = [(port, "_ts") for port in range(len(node.inputs))]
    return dict(zip(node.schema.names, [*own, *times], strict=False))


def pairs_of(keys: Keys) -> tuple[Equal, ...]:
    """Return the join keys of two inputs as pairs of equal expressions of side 0 and side 1."""
    return tuple(((0, left), (1, right)) for left, right in zip(*keys, strict=True))


def keys_of(parts: Sequence[Expr], places: Places) -> tuple[Keys, Expr | None]:
    """Split join conditions into equalities of keys and a residual condition.

    Keys are in the inputs' own columns. The residual is in columns of side 0 and side 1.
    """
    equal: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for part in parts:
        sides = _sides(part, places)
        if sides is None:
            rest.append(in_sides(part, places))
        else:
            equal.append(sides)
    keys = (tuple(left for left, _ in equal), tuple(right for _, right in equal))
    return keys, conjunction(tuple(rest))


def equal_in(part: Expr, places: Places) -> tuple[tuple[int, Expr], tuple[int, Expr]] | None:
    """Return both sides of an equality between two join inputs, each as (input, expression), or None."""
    if not isinstance(part, Call) or part.function != "=":
        return None
    ports = [{places[name][0] for name in columns_of(side)} for side in part.arguments]
    if any(len(found) != 1 for found in ports) or ports[0] == ports[1]:
        return None
    left, right = (next(iter(found)) for found in ports)
    numbers = {left: 0, right: 1}
    sides = _sides(part, {name: (numbers[of], own) for name, (of, own) in places.items() if of in numbers})
    return None if sides is None else ((left, sides[0]), (right, sides[1]))


def _sides(part: Expr, places: Places) -> tuple[Expr, Expr] | None:
    """Return both sides of an equality as join keys of one type, or None.

    Only expressions that cannot fail are accepted. A key is computed for every tuple, even for a tuple
    without a match.
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
    own = _map_columns(expr, lambda ref: ColumnRef(places[ref.name][1], ref.type))
    if expr.type == shared or expr.type.kind is shared.kind is not Kind.DECIMAL:
        return own
    return Cast(own, shared) if (expr.type.kind, shared.kind) in _WIDENED else None


def _cannot_fail(expr: Expr) -> bool:
    if isinstance(expr, Cast):
        return (expr.operand.type.kind, expr.type.kind) in _WIDENED and _cannot_fail(expr.operand)
    if isinstance(expr, Call):
        return expr.function in _SAFE and all(_cannot_fail(argument) for argument in expr.arguments)
    return isinstance(expr, (ColumnRef, Literal))


def in_sides(expr: Expr, places: Places) -> Expr:
    """Rename the join's output columns in an expression to columns of the join's inputs."""
    return _map_columns(expr, lambda ref: _of_side(ref, places))


def _of_side(ref: ColumnRef, places: Places) -> ColumnRef:
    port, own = places[ref.name]
    return ColumnRef.to(Column(own, ref.type).of(port))


def _map_columns(expr: Expr, change: Callable[[ColumnRef], ColumnRef]) -> Expr:
    return transform(expr, lambda e: change(e) if isinstance(e, ColumnRef) else None)


def member_of_join(graph: QueryGraph, node: Node, join: WindowJoin) -> JoinMember:
    """Return the specification of one query's join for the graph node that joins of several queries share."""
    given = [input_of(graph, node, join, port) for port in range(len(node.inputs))]
    places, parts = column_inputs_of(graph, node), conjuncts(join.condition)
    if len(given) == 2:
        keys, residual = keys_of(parts, places)
        equal, inputs = pairs_of(keys), SIDES
    else:
        equal, residual = equalities(parts, places)
        inputs = _names([content_of(graph, source) for source, _ in given])
    read = columns_read(graph, node)
    return JoinMember(
        node.id,
        join.windows,
        tuple(where for _, where in given),
        residual,
        tuple((name, *places[name]) for name in node.schema.names if name in read),
        join.limit,
        join.kind,
        inputs=inputs,
        equal=equal,
    )


def equalities(parts: Sequence[Expr], places: Places) -> tuple[tuple[Equal, ...], Expr | None]:
    """Split join conditions into sets of expressions with equal values, and a residual condition.

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
    """Merge a pair of equal expressions with the sets of equal expressions that contain one of them.

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
    """Return a distinct name for each input of a join.

    The inputs of a self-join are numbered.
    """
    found: list[str] = []
    for content in contents:
        copies = sum(1 for name in found if name == content or name.startswith(f"{content} #"))
        found.append(f"{content} #{copies + 1}" if copies else content)
    return tuple(found)


@dataclass
class SharedJoinBuilder:
    """Graph node under construction, which executes the joins of several queries.

    `sources` maps the names of the join's inputs to graph nodes.
    """

    label: str
    sources: Mapping[str, Node]
    members: list[JoinMember] = field(default_factory=list)


def add_shared_nodes(
    graph: QueryGraph, shared: Mapping[str, SharedJoinBuilder], made: Mapping[str, Node]
) -> QueryGraph:
    """Replace graph nodes by the nodes in `made`, and add the shared joins from which these read."""
    nodes: dict[str, Node] = {}
    for node in graph:
        new = made.get(node.id, node)
        for name in new.inputs:
            if name in shared and name not in nodes:
                found = shared[name]
                sources = list(found.sources.values())
                inputs = tuple(source.id for source in sources)
                operator = SharedJoin(tuple(found.members), tuple(found.sources))
                nodes[name] = Node(name, operator, inputs, sources[0].schema, node.kind, found.label)
        nodes[node.id] = new
    return without_loose_ends(QueryGraph(nodes, graph.streams))
