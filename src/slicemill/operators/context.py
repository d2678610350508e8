"""Context of an execution step: node, graph, catalog and state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slicemill.aggregate.definition import RowAggregate, declared
from slicemill.aggregate.interpreter.lookup import aggregate_lookup, evaluate_relation
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.catalog import Catalog, View
from slicemill.esl.types.query import FrameUnit, SelectQuery, WindowCall
from slicemill.esl.types.relation import AggregateCall, RelationQuery
from slicemill.esl.types.schema import Schema
from slicemill.operators.cell import WHOLE, Cell
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.registry import imported, kind_of
from slicemill.operators.step import SharedStep, StatefulStep, Step
from slicemill.rows import Row, Timed


@dataclass(frozen=True, slots=True)
class StepContext:
    """Node of a step, with its environment and last state."""

    node: Node
    graph: QueryGraph
    catalog: Catalog
    tables: Mapping[str, Sequence[Row]]
    state: object | None
    newcomers: Covers = field(default_factory=dict)  # members of shared operators that are new to the state
    cell: Cell = WHOLE
    # By member of a shared operator: the former member whose state it takes over.
    successors: Mapping[str, str] = field(default_factory=dict)

    @property
    def schemas(self) -> list[Schema]:
        """Schemas of the inputs that the step reads."""
        return [self.graph[source].schema for source in fed_by(self.node, self.graph)]

    @property
    def seq_bits(self) -> int:
        """Maximum bits of its inputs' row numbers (`columns.order`)."""
        return input_bits(self.node, self.graph, self.catalog)

    def rows_of(self, relation: str) -> Sequence[Row]:
        return relation_rows(relation, self.catalog, self.tables)

    def definition(self, call: AggregateCall | WindowCall) -> RowAggregate:
        """Return the row form of an aggregate, with results of the call's type."""
        definition = aggregate_lookup(self.catalog, self.rows_of)(call.name, call.distinct)
        if definition.columns == 1:
            definition = replace(definition, finish=declared(call.columns[0].type))
        return definition


def step_of(context: StepContext) -> Step | StatefulStep | SharedStep | None:
    """Return the step of a node; None for tables, views and parts.

    Tables and views are read by the operators that look them up.
    """
    operator = context.node.operator
    name = kind_of(operator).step
    if name is None:
        return None
    step: Step | StatefulStep | SharedStep = imported(name)(operator, context)
    return step


def fed_by(node: Node, graph: QueryGraph) -> tuple[str, ...]:
    """Return the nodes whose rows an operator reads, in input order."""
    return kind_of(node.operator).fed_by(node.operator, node, graph)


def input_bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    """Return the number of bits of the row numbers that an operator reads."""
    kind = kind_of(node.operator)
    return bits_of((kind.numbered_by or kind.fed_by)(node.operator, node, graph), graph, catalog)


def bits_of(sources: Iterable[str], graph: QueryGraph, catalog: Catalog) -> int:
    """Return the maximum bits of the row numbers of some nodes."""
    return max((_output_bits(graph[source], graph, catalog) for source in sources), default=SEQ_BITS)


def _output_bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    bits = input_bits(node, graph, catalog)
    return kind_of(node.operator).seq_bits(node.operator, bits, catalog, node, graph)


def relation_rows(name: str, catalog: Catalog, tables: Mapping[str, Sequence[Row]]) -> Sequence[Row]:
    """Return the rows of a table, or of a view over tables.

    `tables` also contains the content of views over streams.
    """
    relation = catalog.relation(name)
    if isinstance(relation, View) and isinstance(relation.query, RelationQuery):
        return evaluate_relation(relation.query, catalog, lambda inner: relation_rows(inner, catalog, tables))
    return tables[name]


def held_at(view: View, rows: Sequence[Timed], now: int) -> list[Row]:
    """Return the window content of a view at time `now` (M40).

    `rows` are all rows of the view, in time order.
    """
    assert isinstance(view.query, SelectQuery), "the binder asks for one window"
    window = view.query.inputs[0].window
    assert window is not None and window.extent is not None, "the binder asks for a window with a beginning"
    if window.frame is FrameUnit.ROWS:
        return [timed.row for timed in rows[-window.extent :]]
    return [timed.row for timed in rows if timed.ts > now - window.extent]
