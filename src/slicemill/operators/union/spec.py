"""Specification of UNION of streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slicemill.columns.sequence_bits import SEQ_BITS, ranked_bits
from slicemill.esl.types.catalog import TimestampKind
from slicemill.esl.types.expression import ColumnRef, columns_of, transform
from slicemill.operators.description import Description
from slicemill.operators.kind import Keys, KeysBelow, OperatorKind
from slicemill.operators.operator import Operator
from slicemill.operators.select.spec import Filter, Project
from slicemill.operators.streams.spec import Source

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Merge(Operator):
    """UNION: sort-merge of its inputs by timestamp (M14, M21)."""


def _words(_: Merge, node: Node, __: QueryGraph) -> Description:
    order = "as tuples arrive" if node.kind is TimestampKind.LATENT else "by timestamp"
    return Description("∪", "Union", (("merged", order),))


def input_ranks(node: Node) -> int:
    """Return how many bits are needed to number the inputs."""
    return (len(node.inputs) - 1).bit_length()


def keeps_numbers(_: Merge, node: Node, graph: QueryGraph) -> bool:
    """Return True if rows are numbered by (input, number there).

    Such numbers do not depend on the number of cells. The inputs must be declared streams, possibly with
    filters and projections, since their numbers leave enough bits. Only joins may read the union: groups are
    ordered by their first rows and require numbers that grow with time. Otherwise rows are numbered anew.
    """
    behind = (graph[node_id].operator for node_id in graph.ancestors(node.id) - {node.id})
    plain = all(isinstance(operator, Source | Filter | Project) for operator in behind)
    return plain and _joined_only(node, graph)


def _joined_only(node: Node, graph: QueryGraph) -> bool:
    """Return True if every consumer is a join, possibly behind filters."""
    from slicemill.operators.registry import kind_of  # imported late: it lists this kind too

    readers = graph.consumers(node.id)
    if not readers or graph.stream_of(node.id) is not None:
        return False
    return all(
        _joined_only(reader, graph)
        if isinstance(reader.operator, Filter | Project)
        else kind_of(reader.operator).joins(reader.operator) is not None
        for reader in readers
    )


def _keys_below(union: Merge, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Map keys to each input's columns by position; None if types differ."""
    if not keeps_numbers(union, node, graph):
        return None
    read = {name for key in keys for name in columns_of(key)}
    places = {column.name: place for place, column in enumerate(node.schema)}
    found = []
    for source in node.inputs:
        columns = graph[source].schema.columns
        if any(columns[places[name]].type != node.schema.columns[places[name]].type for name in read):
            return None
        own = tuple(
            transform(
                key,
                lambda e: replace(e, name=columns[places[e.name]].name) if isinstance(e, ColumnRef) else None,  # noqa: B023
            )
            for key in keys
        )
        found.append((source, own))
    return tuple(found)


KINDS = (
    OperatorKind(
        spec=Merge,
        words=_words,
        label=lambda _: "union",
        # Latent rows have no timestamp, and are passed on at once.
        waits_for_time=lambda _, kind: kind is not TimestampKind.LATENT,
        split_by_any=keeps_numbers,
        keys_below=_keys_below,
        seq_bits=lambda union, _, __, node, graph: (
            ranked_bits(SEQ_BITS, input_ranks(node)) if keeps_numbers(union, node, graph) else SEQ_BITS
        ),
        step="slicemill.operators.union.step:merge",
    ),
)
