"""How many bits the numbers of rows have behind each operator; `columns.order` says what numbers are."""

from __future__ import annotations

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.catalog import Catalog
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.registry import kind_of


def input_bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    """The bits of the numbers that an operator is given."""
    kind = kind_of(node.operator)
    sources = (kind.numbered_by or kind.fed_by)(node.operator, node, graph)
    return max((_output_bits(graph[source], graph, catalog) for source in sources), default=SEQ_BITS)


def _output_bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    bits = input_bits(node, graph, catalog)
    return kind_of(node.operator).seq_bits(node.operator, bits, catalog, node, graph)
