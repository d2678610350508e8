"""What a step is made of: a node of the query graph, and all there is to know about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slicemill.esl.catalog import Catalog
from slicemill.esl.types import Schema
from slicemill.execution.operator import Row
from slicemill.execution.translate import Translator, fed_by
from slicemill.kernels.order import SEQ_BITS
from slicemill.plan import operators as op
from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.slices.coverage import Covers

# Operators that give their rows new numbers, and those that leave them as they are.
_RENUMBERING = (op.Source, op.Merge, op.Classify)
_KEEPING = (op.Filter, op.Project, op.Drop, op.WholeWindows, op.Lookup, op.Part, op.Sink, op.SharedWindows)


@dataclass(frozen=True, slots=True)
class Making:
    """A node that needs its step, and all there is to know about it."""

    node: Node
    graph: QueryGraph
    catalog: Catalog
    tables: Mapping[str, Sequence[Row]]
    bucket: int
    buckets: int
    state: object | None  # what the step kept in the last run
    newcomers: Covers = field(default_factory=dict)  # members of shared operators that are new to the state

    @property
    def schemas(self) -> list[Schema]:
        return [self.graph[source].schema for source in fed_by(self.node, self.graph)]

    @property
    def seq_bits(self) -> int:
        """How many bits the numbers of its inputs' rows have at most (`kernels.order`)."""
        return max(
            (_seq_bits(source, self.graph) for source in fed_by(self.node, self.graph)), default=SEQ_BITS
        )

    @property
    def translator(self) -> Translator:
        """Makes the reference's counterpart of a node."""
        return Translator(self.graph, self.catalog, self.tables)


def _seq_bits(node_id: str, graph: QueryGraph) -> int:
    node = graph[node_id]
    if isinstance(node.operator, _RENUMBERING):
        return SEQ_BITS
    most = max((_seq_bits(source, graph) for source in fed_by(node, graph)), default=SEQ_BITS)
    if isinstance(node.operator, _KEEPING):
        return most
    # An order of many streams sets as many bits as it takes to number them.
    members = len(node.operator.members) if isinstance(node.operator, op.InOrder) else 1
    return most + members.bit_length()
