"""How many bits the numbers of rows have behind each operator; `columns.order` says what numbers are."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.columns.order import SEQ_BITS, fanned_bits, ranked_bits
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.query import WindowCall
from slicemill.operators import specs as op
from slicemill.operators.graph import Node, QueryGraph
from slicemill.plan.log_keys import partition_keys
from slicemill.reference.translate import fed_by

# These give their rows new numbers.
_RENUMBERING = (op.Source, op.Merge, op.Classify, op.WindowJoin)


def input_bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    """The bits of the numbers that an operator is given."""
    if isinstance(node.operator, op.InOrder):
        return _joined_bits(node, len(node.operator.members), graph, catalog)
    return max((_bits(graph[source], graph, catalog) for source in fed_by(node, graph)), default=SEQ_BITS)


def has_expiries(calls: Sequence[WindowCall]) -> bool:
    """Do rows come also for tuples that leave, behind those of tuples that come?"""
    return any(call.window.active for call in calls)


def returns_many(calls: Sequence[WindowCall], catalog: Catalog) -> bool:
    """May a tuple get several rows?"""
    return any(any(catalog.aggregates(call.name)) for call in calls)


def stream_ranks(members: int) -> int:
    """How many bits it takes to number so many streams."""
    return (members - 1).bit_length()


def _bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    operator = node.operator
    if isinstance(operator, _RENUMBERING):
        return SEQ_BITS
    bits = input_bits(node, graph, catalog)
    if isinstance(operator, op.Part):
        return _part_bits(operator, graph[node.inputs[0]], graph, catalog)
    if isinstance(operator, op.WindowAggregate):
        return _call_bits(operator, bits, catalog)
    if isinstance(operator, (op.Lookup, op.Coalesce)):
        return fanned_bits(bits)
    if isinstance(operator, (op.GroupAggregate, op.SharedJoin)):
        return fanned_bits(ranked_bits(bits))
    if isinstance(operator, op.InOrder):
        return fanned_bits(ranked_bits(bits, stream_ranks(len(operator.members))))
    if isinstance(operator, op.RelationAggregate):
        return SEQ_BITS if partition_keys(operator) is None else fanned_bits(ranked_bits(bits))
    return bits


def _joined_bits(node: Node, streams: int, graph: QueryGraph, catalog: Catalog) -> int:
    """The bits of the numbers of streams that are joined one by one: their order goes by these numbers."""
    found = []
    for _ in range(streams - 1):
        node = graph[node.inputs[0]]
        found.append(_bits(graph[node.inputs[1]], graph, catalog))
    return max(*found, _bits(graph[node.inputs[0]], graph, catalog))


def _part_bits(part: op.Part, shared: Node, graph: QueryGraph, catalog: Catalog) -> int:
    """What one member of a shared operator gives does not depend on the others."""
    operator = shared.operator
    if isinstance(operator, op.SharedJoin):
        return _bits(shared, graph, catalog)
    bits = input_bits(shared, graph, catalog)
    if isinstance(operator, op.SharedModels):
        (model,) = [member for member in operator.members if member.name == part.member]
        return _call_bits(model.operator, bits, catalog)
    assert isinstance(operator, op.SharedWindows), "these are all that have parts"
    (window,) = [member for member in operator.members if member.name == part.member]
    return bits if window.partial else fanned_bits(bits)


def _call_bits(operator: op.WindowAggregate, bits: int, catalog: Catalog) -> int:
    bits = ranked_bits(bits) if has_expiries(operator.calls) else bits
    return fanned_bits(bits) if returns_many(operator.calls, catalog) else bits
