"""How far back a query's results depend on tuples: what a query that is new has to wait for (S23)."""

from __future__ import annotations

from collections.abc import Iterable

from slicemill.esl.types.query import FrameUnit, Window
from slicemill.operators import specs as op
from slicemill.operators.graph import Node, QueryGraph
from slicemill.plan.logs import log_of


def history_us(graph: QueryGraph, root: str) -> int | None:
    """The length of time, within the unit that computes a node; None where no length of time says it."""
    own = _own(graph, graph[root])
    above = [
        history_us(graph, source) for source in graph[root].inputs if log_of(graph[source], graph) is None
    ]
    known = [length for length in above if length is not None]
    return own + max(known, default=0) if own is not None and len(known) == len(above) else None


def _own(graph: QueryGraph, node: Node) -> int | None:
    operator = node.operator
    if isinstance(operator, op.Part):
        return _of_part(graph[node.inputs[0]].operator, operator)
    if isinstance(operator, op.WindowJoin):
        return _longest(operator.windows)
    if isinstance(operator, op.SharedJoin) and not _has_parts(graph, node):
        return _longest(operator.members[0].windows)
    if isinstance(operator, op.Coalesce) and operator.budget is None:
        return _longest([operator.window])
    # With a budget, what is dropped depends on all that came before.
    if isinstance(operator, (op.GroupAggregate, op.Coalesce, op.Classify)):
        return None
    return _of_aggregate(operator)


def _of_part(shared: op.Operator, part: op.Part) -> int | None:
    assert isinstance(shared, op.Shared), "a part is of what is shared"
    member = op.member_of(shared, part)
    return _longest(member.windows) if isinstance(member, op.JoinMember) else _of_aggregate(member.operator)


def _of_aggregate(operator: op.Operator) -> int | None:
    if isinstance(operator, op.RelationAggregate):
        return _longest(window for _, window in operator.windows)
    if isinstance(operator, op.WindowAggregate):
        return _longest(call.window for call in operator.calls)
    return _longest([operator.window]) if isinstance(operator, op.Materialize) else 0


def _longest(windows: Iterable[Window]) -> int | None:
    lengths = [window.extent if window.frame is FrameUnit.RANGE else None for window in windows]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None


def _has_parts(graph: QueryGraph, node: Node) -> bool:
    return any(isinstance(reader.operator, op.Part) for reader in graph.consumers(node.id))
