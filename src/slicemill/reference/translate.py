"""From the query graph to nodes of the reference engine: each operator by its plainest counterpart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slicemill.aggregate.definition import RowCall, comparable
from slicemill.aggregate.frame import WindowFrame
from slicemill.aggregate.interpreter.lookup import aggregate_lookup, evaluate_relation
from slicemill.aggregate.result_types import declared
from slicemill.esl.types.catalog import ERRORS, Catalog, View
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.esl.types.query import WindowCall as WindowCallSyntax
from slicemill.esl.types.relation import AggregateCall as CallSyntax
from slicemill.esl.types.relation import RelationQuery, SelectItem
from slicemill.esl.types.schema import Schema
from slicemill.operators import specs as op
from slicemill.operators.graph import Node, QueryGraph
from slicemill.reference.classify import Classify, trained
from slicemill.reference.coalesce import Coalesce
from slicemill.reference.coalesce_shedding import SheddingCoalesce
from slicemill.reference.coalesce_windows import Temporal
from slicemill.reference.graph import OperatorSpec, SinkSpec, Spec
from slicemill.reference.group_aggregate import GroupAggregate
from slicemill.reference.join import CountWindow, JoinWindow, TimeWindow, UnboundedWindow, WindowJoin
from slicemill.reference.operator import Operator
from slicemill.reference.relation_aggregate import RelationAggregate
from slicemill.reference.relation_arrival import ArrivalAggregate
from slicemill.reference.sources import SourceSpec
from slicemill.reference.stateless import Project, Select, Union
from slicemill.reference.table_join import TableJoin
from slicemill.reference.view_join import ViewJoin
from slicemill.reference.window_aggregate import FramedCall, WindowAggregate
from slicemill.rows import Row
from slicemill.scalar.rows import compile_expression

Tables = Mapping[str, Sequence[Row]]


def translate(graph: QueryGraph, catalog: Catalog, tables: Tables) -> list[Spec]:
    """The engine's nodes, producers first. `tables` has the rows of every table, by its declared name."""
    translator = Translator(graph, catalog, tables)
    return [spec for node in graph for spec in translator.specs(node)]


class Translator:
    """Makes the engine's counterpart of each node of a graph."""

    def __init__(self, graph: QueryGraph, catalog: Catalog, tables: Tables) -> None:
        self.graph = graph
        self.catalog = catalog
        self.tables = tables
        self.made: set[str] = set()
        self.lookup = aggregate_lookup(catalog, self.rows_of)

    def specs(self, node: Node) -> list[Spec]:
        """The node's counterpart; tables and views have none, they live in what looks them up."""
        if isinstance(node.operator, op.Source):
            return self._source(node.operator)
        if isinstance(node.operator, (op.Scan, op.Materialize)):
            return []
        if isinstance(node.operator, op.Sink):
            return [SinkSpec(node.id, node.inputs[0])]
        return [OperatorSpec(node.id, self.operator(node), fed_by(node, self.graph))]

    def _source(self, operator: op.Source) -> list[Spec]:
        """A stream's own source; a late stream comes with its owner's, which may stand later in the graph."""
        stream = self.catalog.declared_stream(operator.stream)
        if operator.stream == stream.name + ERRORS:
            return [SourceSpec(operator.stream)]
        if stream.name in self.made:
            return []
        self.made.add(stream.name)
        return [SourceSpec(stream.name, stream.kind.value, stream.skew_us, stream.slack_us)]

    def operator(self, node: Node) -> Operator:
        """What runs for a node that takes tuples and gives tuples."""
        operator = node.operator
        if isinstance(operator, op.Lookup):
            return self._lookup(node, operator)
        schema = self.graph[node.inputs[0]].schema
        if isinstance(operator, op.Filter):
            return Select(_predicate(operator.condition, schema))
        if isinstance(operator, op.Project):
            return Project(_row_of(operator.items, schema))
        if isinstance(operator, op.Merge):
            return Union(len(node.inputs))
        if isinstance(operator, op.WindowJoin):
            windows = [join_window(window) for window in operator.windows]
            return WindowJoin(windows, _predicate(operator.condition, node.schema), operator.member_times)
        if isinstance(operator, op.GroupAggregate):
            calls = [self._call(call, schema) for call in operator.calls]
            group = _row_of(operator.group_by, schema) if operator.group_by else None
            return GroupAggregate(calls, group)
        if isinstance(operator, op.RelationAggregate):
            return self._relation_aggregate(operator, schema)
        if isinstance(operator, op.WindowAggregate):
            return WindowAggregate([self._window_call(call, schema) for call in operator.calls])
        if isinstance(operator, op.Classify):
            schemas = [self.graph[source].schema for source in node.inputs]
            definition = operator.classifier
            learnt = trained(definition, self.rows_of(definition.training), schemas[-1])
            return Classify(definition, schemas[:-1], learnt)
        assert isinstance(operator, op.Coalesce), "the other nodes take no tuples, or give none"
        return _coalesce(operator, schema, node.schema)

    def _call(self, call: CallSyntax | WindowCallSyntax, schema: Schema) -> RowCall:
        definition = self.lookup(call.name, call.distinct)
        if definition.columns == 1:
            definition = replace(definition, finish=declared(call.columns[0].type))
        return RowCall(definition, row_of_expressions(call.arguments, schema))

    def _window_call(self, call: WindowCallSyntax, schema: Schema) -> FramedCall:
        window = call.window
        key = row_of_expressions(call.partition_by, schema)
        frame = WindowFrame(
            window.frame.value, window.extent, window.slide, window.active, lambda row: comparable(key(row))
        )
        return FramedCall(self._call(call, schema), frame)

    def _relation_aggregate(self, operator: op.RelationAggregate, schema: Schema) -> Operator:
        calls = [self._call(call, schema) for call in operator.calls]
        group = _row_of(operator.group_by, schema)
        where = _predicate(operator.where, schema)
        first = operator.windows[0][1]
        if first.frame is FrameUnit.ROWS:
            return ArrivalAggregate(calls, group, rows=first.extent, slide=operator.slide, where=where)
        members = [
            (None if column is None else schema.index(column), window.extent)
            for column, window in operator.windows
            if window.extent is not None
        ]
        if operator.slide is None:
            return ArrivalAggregate(calls, group, members=members)
        longest = max(length for _, length in members)
        placed = [(place, length) for place, length in members if place is not None]
        return RelationAggregate(calls, group, longest, operator.slide, placed)

    # -- finite relations ------------------------------------------------------------------------------

    def _lookup(self, node: Node, lookup: op.Lookup) -> Operator:
        relation = self.graph[node.inputs[1]]
        columns = len(relation.schema)
        condition = _predicate(lookup.condition, node.schema)
        if isinstance(relation.operator, op.Materialize):
            return ViewJoin(join_window(relation.operator.window), columns, condition, lookup.left)
        assert isinstance(relation.operator, op.Scan)
        return TableJoin(self.rows_of(relation.operator.relation), columns, condition, lookup.left)

    def rows_of(self, name: str) -> Sequence[Row]:
        return relation_rows(name, self.catalog, self.tables)


def fed_by(node: Node, graph: QueryGraph) -> tuple[str, ...]:
    """The nodes whose tuples an operator takes, in the order of its inputs.

    A view is joined with the stream of its content, which comes first: at equal timestamps a tuple meets
    those of its own time. A table is no input, its rows are known.
    """
    if isinstance(node.operator, op.Classify):
        return node.inputs[:-1]
    if not isinstance(node.operator, op.Lookup):
        return node.inputs
    stream, relation = node.inputs
    viewed = isinstance(graph[relation].operator, op.Materialize)
    return (graph[relation].inputs[0], stream) if viewed else (stream,)


def relation_rows(name: str, catalog: Catalog, tables: Tables) -> Sequence[Row]:
    """The rows of a table, or of a view over tables."""
    relation = catalog.relation(name)
    if isinstance(relation, View):
        assert isinstance(relation.query, RelationQuery), "views over streams are joined, not scanned"
        return evaluate_relation(relation.query, catalog, lambda inner: relation_rows(inner, catalog, tables))
    return tables[name]


def join_window(window: Window) -> JoinWindow:
    if window.extent is None:
        return UnboundedWindow()
    return CountWindow(window.extent) if window.frame is FrameUnit.ROWS else TimeWindow(window.extent)


def _coalesce(operator: op.Coalesce, schema: Schema, output: Schema) -> Coalesce | SheddingCoalesce:
    attributes = [schema.index(name) for name in operator.attributes]
    # A partition column that is coalesced on as well is shown once, as the attribute.
    head = _row_of(tuple(i for i in operator.partition_by if i.name not in operator.attributes), schema)
    key = _row_of(operator.partition_by, schema)
    window, where = operator.window, _predicate(operator.where, schema)
    assert window.slide is not None, "the grammar asks for SLIDES"

    def values(row: Row) -> Row:
        return tuple(row[place] for place in attributes)

    by_rows = window.frame is FrameUnit.ROWS
    temporal = Temporal(values, head, key, window.extent, window.slide, by_rows, where)
    if operator.budget is None:
        return Coalesce(temporal)
    return SheddingCoalesce(temporal, operator.budget, _predicate(operator.wanted, output))


def _predicate(condition: Expr | None, schema: Schema) -> Callable[[Row], bool]:
    if condition is None:
        return lambda _: True
    evaluate = compile_expression(condition, schema)
    # Neither FALSE nor NULL selects a row.
    return lambda row: evaluate(row) is True


def _row_of(items: Sequence[SelectItem], schema: Schema) -> Callable[[Row], Row]:
    return row_of_expressions([item.expr for item in items], schema)


def row_of_expressions(expressions: Sequence[Expr], schema: Schema) -> Callable[[Row], Row]:
    parts = [compile_expression(expr, schema) for expr in expressions]
    return lambda row: tuple(part(row) for part in parts)
