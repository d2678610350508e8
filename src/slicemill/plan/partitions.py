"""By which keys an operator's work can be split into buckets, and how many buckets a unit can have."""

from __future__ import annotations

from slicemill.esl.expression import Expr
from slicemill.esl.query import Frame
from slicemill.plan import operators as op
from slicemill.plan.graph import QueryGraph
from slicemill.plan.units import Unit

_STATELESS = (
    op.Filter,
    op.Drop,
    op.WholeWindows,
    op.Project,
    op.Sink,
    op.Scan,
    op.Lookup,
    op.Part,
    op.InOrder,
)


def partition_keys(operator: op.Operator) -> tuple[Expr, ...] | None:
    """The expressions by whose values an operator's work can be split; None if it cannot."""
    keys: tuple[Expr, ...] = ()
    if isinstance(operator, op.Coalesce) and operator.budget is not None:
        return None  # its partitions share one memory
    if isinstance(operator, (op.GroupAggregate, op.Coalesce)):
        items = operator.group_by if isinstance(operator, op.GroupAggregate) else operator.partition_by
        keys = tuple(item.expr for item in items)
    elif isinstance(operator, op.RelationAggregate) and operator.windows[0][1].frame is Frame.RANGE:
        keys = tuple(item.expr for item in operator.group_by)
    elif isinstance(operator, (op.SharedWindows, op.SharedModels)):
        keys = operator.keys
    elif isinstance(operator, op.SharedJoin):
        keys = operator.keys[0]  # those of the other side are their equals
    elif isinstance(operator, op.WindowAggregate):
        partitions = {call.partition_by for call in operator.calls}
        keys = partitions.pop() if len(partitions) == 1 else ()
    return keys or None


def cell_count(unit: Unit, graph: QueryGraph, wanted: int) -> int:
    """How many buckets a unit can be split into: all of its results must come from one keyed operator."""
    stateful = [n for n in unit.nodes if not isinstance(graph[n].operator, _STATELESS)]
    if len(stateful) != 1 or partition_keys(graph[stateful[0]].operator) is None:
        return 1
    behind = {node_id for node_id, _ in unit.outputs}
    return wanted if all(stateful[0] in graph.ancestors(node_id) for node_id in behind) else 1
