"""push_selections: push conditions on a single stream below the join (predicate push-down).

Conditions are pushed only below RANGE windows. A filter below a ROWS window would change the contents of
the window.
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.catalog.expressions import Expr, as_in_input, conjunction, conjuncts, origins_of
from slicemill.catalog.queries import FrameUnit
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import WindowJoin
from slicemill.operators.specs import Filter, Lookup


def push_selections(graph: QueryGraph) -> QueryGraph:
    nodes: dict[str, Node] = {}
    for node in graph:
        made = [node]
        if isinstance(node.operator, WindowJoin):
            made = _below_join(node, node.operator, graph)
        elif isinstance(node.operator, Lookup) and node.operator.stream_alias and not node.operator.left:
            made = _below_lookup(node, node.operator, graph)
        nodes.update((made_node.id, made_node) for made_node in made)
    return QueryGraph(nodes, graph.streams)


def _below_join(node: Node, join: WindowJoin, graph: QueryGraph) -> list[Node]:
    kept = list(conjuncts(join.condition))
    inputs = list(node.inputs)
    filters: list[Node] = []
    for port, (alias, window) in enumerate(zip(join.aliases, join.windows, strict=True)):
        # An outer join emits all rows of the preserved side, even those that do not satisfy ON.
        if window.frame is FrameUnit.ROWS or port in join.kind.outer_inputs:
            continue
        kept, pushed = _split(kept, alias)
        if pushed is not None:
            filters.append(_filter_node(node, alias, graph[inputs[port]], pushed))
            inputs[port] = filters[-1].id
    operator = replace(join, condition=conjunction(tuple(kept)))
    return [*filters, replace(node, operator=operator, inputs=tuple(inputs))]


def _below_lookup(node: Node, lookup: Lookup, graph: QueryGraph) -> list[Node]:
    kept, pushed = _split(list(conjuncts(lookup.condition)), lookup.stream_alias)
    if pushed is None:
        return [node]
    below = _filter_node(node, lookup.stream_alias, graph[node.inputs[0]], pushed)
    operator = replace(lookup, condition=conjunction(tuple(kept)))
    return [below, replace(node, operator=operator, inputs=(below.id, node.inputs[1]))]


def _filter_node(node: Node, alias: str, source: Node, condition: Expr) -> Node:
    name = f"{node.id}, where {alias}"
    return Node(name, Filter(condition), (source.id,), source.schema, source.kind)


def _split(parts: list[Expr], alias: str) -> tuple[list[Expr], Expr | None]:
    """Separate the join conditions that read only columns of the input `alias`.

    Return the other conditions, and the conjunction of the conditions on `alias` in the input's own columns.
    """
    own = [part for part in parts if _inputs_of(part) == {alias}]
    below = tuple(as_in_input(part) for part in own)
    return [part for part in parts if part not in own], conjunction(below)


def _inputs_of(expr: Expr) -> set[str | int | None]:
    return {None if origin is None else origin.input for origin in origins_of(expr)}
