"""By which keys an operator's work can be split, in its own columns and in those of the log that it reads."""

from __future__ import annotations

from dataclasses import replace

from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, transform
from slicemill.esl.types.query import FrameUnit
from slicemill.operators import specs as op
from slicemill.operators.graph import Node, QueryGraph
from slicemill.plan.logs import log_of

Keys = tuple[Expr, ...]


def partition_keys(operator: op.Operator) -> Keys | None:
    """The expressions by whose values an operator's work can be split; None if it cannot.

    A join has those of its first input here: those of the second are their equals. One that counts rows
    counts those of all keys.
    """
    keys: Keys = ()
    if isinstance(operator, op.Coalesce) and operator.budget is not None:
        return None  # its partitions share one memory
    if isinstance(operator, (op.GroupAggregate, op.Coalesce)):
        items = operator.group_by if isinstance(operator, op.GroupAggregate) else operator.partition_by
        keys = tuple(item.expr for item in items)
    elif isinstance(operator, op.RelationAggregate) and operator.windows[0][1].frame is FrameUnit.RANGE:
        keys = tuple(item.expr for item in operator.group_by)
    elif isinstance(operator, (op.SharedWindows, op.SharedModels)):
        keys = operator.keys
    elif isinstance(operator, op.SharedJoin):
        keys = () if operator.counts_rows else operator.keys[0]
    elif isinstance(operator, op.WindowAggregate):
        partitions = {call.partition_by for call in operator.calls}
        keys = partitions.pop() if len(partitions) == 1 else ()
    return keys or None


def keys_in_log(graph: QueryGraph, node: Node) -> Keys | None:
    """The keys of a node with one input in the columns of the log that it reads; () if it cannot be split.

    None where they are not the log's: of a table that is looked up, or made by something that keeps state.
    """
    return in_log(graph, graph[node.inputs[0]], partition_keys(node.operator) or ())


def in_log(graph: QueryGraph, node: Node, keys: Keys) -> Keys | None:
    """Expressions over a node's output in the columns of the log that it is selected from."""
    while log_of(node, graph) is None:
        operator = node.operator
        if isinstance(operator, op.Project):
            keys = _before_project(operator, keys)
        elif isinstance(operator, op.Lookup) and isinstance(graph[node.inputs[1]].operator, op.Scan):
            found = _before_lookup(operator, graph[node.inputs[0]], keys)
            if found is None:
                return None
            keys = found
        elif not isinstance(operator, (op.Filter, op.Drop)):
            return None
        node = graph[node.inputs[0]]
    return keys


def _before_project(project: op.Project, keys: Keys) -> Keys:
    items = {item.name: item.expr for item in project.items}
    return tuple(
        transform(key, lambda e: items[e.name] if isinstance(e, ColumnRef) else None) for key in keys
    )


def _before_lookup(lookup: op.Lookup, stream: Node, keys: Keys) -> Keys | None:
    """Keys that are the stream's alone, under the names they have there."""
    prefix = f"{lookup.stream_alias}." if lookup.stream_alias else ""
    own = {prefix + name for name in stream.schema.names}
    if not all(columns_of(key) <= own for key in keys):
        return None
    return tuple(transform(key, lambda e: _without(e, prefix)) for key in keys)


def _without(expr: Expr, prefix: str) -> Expr | None:
    return replace(expr, name=expr.name.removeprefix(prefix)) if isinstance(expr, ColumnRef) else None
