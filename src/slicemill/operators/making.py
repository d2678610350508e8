"""What a step is made of: a node of the query graph, and all there is to know about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.schema import Schema
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.numbering import input_bits
from slicemill.reference.translate import Translator, fed_by
from slicemill.rows import Row


@dataclass(frozen=True, slots=True)
class Making:
    """A node that needs its step, and all there is to know about it."""

    node: Node
    graph: QueryGraph
    catalog: Catalog
    tables: Mapping[str, Sequence[Row]]
    state: object | None  # what the step kept in the last run
    newcomers: Covers = field(default_factory=dict)  # members of shared operators that are new to the state

    @property
    def schemas(self) -> list[Schema]:
        return [self.graph[source].schema for source in fed_by(self.node, self.graph)]

    @property
    def seq_bits(self) -> int:
        """How many bits the numbers of its inputs' rows have at most (`columns.order`)."""
        return input_bits(self.node, self.graph, self.catalog)

    @property
    def translator(self) -> Translator:
        """Makes the reference's counterpart of a node."""
        return Translator(self.graph, self.catalog, self.tables)
