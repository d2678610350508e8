"""Translation of a query graph into nodes of the reference engine.

`TWINS` maps each operator to its tuple-at-a-time version. Most versions are operators of the reference
engine. Versions that the product also uses as a fallback (`operators/*/rows.py`) are imported from the
product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from slicemill.aggregates.definition import RowCall, comparable
from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.udf.interpreter import compile_table_call
from slicemill.aggregates.udf.lookup import aggregate_lookup
from slicemill.catalog.catalog import ERRORS, Catalog
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import AggregateCall as CallSyntax
from slicemill.catalog.queries import JoinKind
from slicemill.catalog.queries import WindowCall as WindowCallSyntax
from slicemill.extension import extensions, load
from slicemill.extensions.classify import spec as classify
from slicemill.extensions.classify.step import train_classifier
from slicemill.operators import specs as asof
from slicemill.operators import specs as group
from slicemill.operators import specs as lookup
from slicemill.operators import specs as punctuated_join
from slicemill.operators import specs as reorder
from slicemill.operators import specs as select
from slicemill.operators import specs as table_call
from slicemill.operators import specs as union
from slicemill.operators import specs as unnest
from slicemill.operators.asof import as_of_rows
from slicemill.operators.changelog import spec as distinct
from slicemill.operators.changelog import spec as emit
from slicemill.operators.changelog import spec as group_changes
from slicemill.operators.changelog import spec as join_changes
from slicemill.operators.changelog import spec as session_changes
from slicemill.operators.changelog import spec as topn
from slicemill.operators.changelog import spec as window_changes
from slicemill.operators.changelog.session import session_ends
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join import spec as join
from slicemill.operators.join.rows import join_rows, join_window, outer_join_rows
from slicemill.operators.protocol import Role
from slicemill.operators.punctuated_join import closings
from slicemill.operators.registry import kind_of
from slicemill.operators.row_step import RowOperator, predicate, row_of_expressions, row_of_items
from slicemill.operators.session import spec as sessions
from slicemill.operators.specs import Scan, Source
from slicemill.operators.step import StepContext, input_nodes
from slicemill.operators.temporal import spec as coalesce
from slicemill.operators.temporal.rows import SheddingCoalesce, shedding_rows, temporal
from slicemill.operators.window import spec as over
from slicemill.operators.window import spec as window_top
from slicemill.operators.window import spec as windowed_group
from slicemill.types import Row, Schema
from slicemill_oracle.graph import OperatorSpec, SinkSpec, Spec
from slicemill_oracle.operators.changes import (
    DistinctOperator,
    EmitOperator,
    GroupChangesOperator,
    JoinChangesOperator,
    ProjectChanges,
    SelectChanges,
    TopOperator,
    WindowChangesOperator,
    WindowTopOperator,
)
from slicemill_oracle.operators.classify import ClassifyOperator
from slicemill_oracle.operators.coalesce import CoalesceOperator, LateRows
from slicemill_oracle.operators.group_aggregate import GroupAggregateOperator
from slicemill_oracle.operators.in_turn import InputOrderOperator
from slicemill_oracle.operators.punctuated_join import PunctuatedJoinOperator
from slicemill_oracle.operators.reorder import ReorderOperator
from slicemill_oracle.operators.session_changes import SessionChangesOperator
from slicemill_oracle.operators.sessions import Sessions
from slicemill_oracle.operators.stateless import ProjectOperator, Select, Union
from slicemill_oracle.operators.table_call import TableCallOperator
from slicemill_oracle.operators.table_join import TableJoin
from slicemill_oracle.operators.view_join import ViewJoin
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator
from slicemill_oracle.operators.windowed_group import group_rows
from slicemill_oracle.sources import ScheduledSource

Tables = Mapping[str, Sequence[Row]]


def translate(graph: QueryGraph, catalog: Catalog, tables: Tables) -> list[Spec]:
    """Return the engine's nodes, producers first.

    `tables` has the rows of every table, by its declared name.
    """
    translator = Translator(graph, catalog, tables)
    return [spec for node in graph for spec in translator.specs(node)]


class Translator:
    """Translates the nodes of a graph."""

    def __init__(self, graph: QueryGraph, catalog: Catalog, tables: Tables) -> None:
        self.graph = graph
        self.catalog = catalog
        self.tables = tables
        self.made: set[str] = set()

    def specs(self, node: Node) -> list[Spec]:
        """Return the specs of a node, or none for tables and views.

        Tables and views are part of the operators that look up their rows.
        """
        if isinstance(node.operator, Source):
            return self._source(node.operator)
        role = kind_of(node.operator).role
        if role is Role.TABLE:
            return []
        if role is Role.SINK:
            return [SinkSpec(node.id, node.inputs[0])]
        return [OperatorSpec(node.id, self.operator(node), input_nodes(node, self.graph))]

    def operator(self, node: Node) -> RowOperator:
        """Return the row operator of a node with inputs and outputs."""
        context = StepContext(
            node=node, graph=self.graph, catalog=self.catalog, tables=self.tables, state=None
        )
        twin = TWINS.get(type(node.operator)) or _twins_of_extensions()[type(node.operator)]
        return twin(node.operator, context)

    def _source(self, operator: Source) -> list[Spec]:
        """Return the source of a stream, including its late stream."""
        stream = self.catalog.declared_stream(operator.stream)
        if operator.stream == stream.name + ERRORS:
            return [ScheduledSource(operator.stream)]
        if stream.name in self.made:
            return []
        self.made.add(stream.name)
        return [ScheduledSource(stream.name, stream.kind.value, stream.skew_us, stream.slack_us)]


def call_of(call: CallSyntax | WindowCallSyntax, schema: Schema, context: StepContext) -> RowCall:
    return RowCall(context.definition(call), row_of_expressions(call.arguments, schema))


def window_call_of(call: WindowCallSyntax, schema: Schema, context: StepContext) -> FramedCall:
    window = call.window
    key = row_of_expressions(call.partition_by, schema)
    frame = WindowFrame(
        window.frame.value, window.extent, window.slide, window.active, lambda row: comparable(key(row))
    )
    return FramedCall(call_of(call, schema, context), frame)


def coalesce_rows(
    operator: coalesce.Coalesce, schema: Schema, output: Schema
) -> CoalesceOperator | SheddingCoalesce:
    if operator.budget is None:
        return CoalesceOperator(temporal(operator, schema), _late_rows(operator, schema))
    return shedding_rows(operator, operator.budget, schema, output)


def _late_rows(operator: coalesce.Coalesce, schema: Schema) -> LateRows | None:
    if operator.late is None:
        return None
    index = schema.index(operator.late.column)
    return LateRows(lambda row: int(str(row[index])), operator.late.within_us)


def _lookup(operator: lookup.Lookup, context: StepContext) -> RowOperator:
    relation = context.graph[context.node.inputs[1]]
    columns = len(relation.schema)
    condition = predicate(operator.condition, context.node.schema)
    if isinstance(relation.operator, lookup.Materialize):
        return ViewJoin(join_window(relation.operator.window), columns, condition, operator.left)
    assert isinstance(relation.operator, Scan), "no other relation is finite"
    name = relation.operator.relation
    return TableJoin(lambda: context.rows_of(name), columns, condition, operator.left)


def _join(operator: join.WindowJoin, context: StepContext) -> RowOperator:
    if operator.kind is JoinKind.INNER:
        return join_rows(operator, context.schemas, context.node.schema)
    return outer_join_rows(operator, context.schemas, context.node.schema)


def _group(operator: group.GroupAggregate, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    calls = [call_of(call, schema, context) for call in operator.calls]
    return GroupAggregateOperator(
        calls, row_of_items(operator.group_by, schema) if operator.group_by else None
    )


def _window_group(operator: windowed_group.RelationAggregate, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    return group_rows(operator, [call_of(call, schema, context) for call in operator.calls], schema)


def _sessions(operator: sessions.SessionAggregate, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    end_of, closes = session_ends(operator.session, schema)
    calls = [call_of(call, schema, context) for call in operator.calls]
    return Sessions(calls, row_of_items(operator.group_by, schema), end_of, closes)


def _session_changes(operator: session_changes.SessionChanges, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    calls = [call_of(call, schema, context) for call in operator.calls]
    group = row_of_items(operator.group_by, schema)
    return SessionChangesOperator(operator, calls, group, *session_ends(operator.session, schema))


def _over(operator: over.WindowAggregate, context: StepContext) -> RowOperator:
    return WindowAggregateOperator(
        [window_call_of(call, context.schemas[0], context) for call in operator.calls]
    )


def _classify(operator: classify.Classify, context: StepContext) -> RowOperator:
    definition, table = operator.classifier, context.graph[context.node.inputs[-1]]
    learnt = train_classifier(definition, context.rows_of(definition.training), table.schema)
    return ClassifyOperator(definition, context.schemas, learnt)


def _filter(where: select.Filter, context: StepContext) -> RowOperator:
    condition = predicate(where.condition, context.schemas[0])
    return (SelectChanges if context.schemas[0].changelog else Select)(condition)


def _project(project: select.Project, context: StepContext) -> RowOperator:
    items = row_of_items(project.items, context.schemas[0])
    return (ProjectChanges if context.schemas[0].changelog else ProjectOperator)(items)


def _group_changes(operator: group_changes.GroupChanges, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    calls = [call_of(call, schema, context) for call in operator.calls]
    groups = row_of_items(operator.group_by, schema)
    return GroupChangesOperator(calls, groups, bool(operator.group_by), operator.retracts)


def _top(operator: topn.TopN, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    order = row_of_expressions([expr for expr, _ in operator.by.order_by], schema)
    return TopOperator(operator, row_of_expressions(operator.by.partition_by, schema), order)


def _window_changes(operator: window_changes.WindowChanges, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    calls = [call_of(call, schema, context) for call in operator.calls]
    time = None
    if operator.late is not None:
        index = schema.index(operator.late.column)
        time = lambda row: row[index]  # noqa: E731
    return WindowChangesOperator(operator, calls, row_of_items(operator.group_by, schema), time)


def _join_changes(operator: join_changes.JoinChanges, context: StepContext) -> RowOperator:
    left, right = (len(schema.own) for schema in context.schemas)
    matches = predicate(operator.condition, context.node.schema.own)
    return InputOrderOperator(JoinChangesOperator(operator, matches, (left, right)))


def _punctuated_join(operator: punctuated_join.PunctuatedJoin, context: StepContext) -> RowOperator:
    schemas = context.schemas
    keys = [row_of_expressions(exprs, schema) for exprs, schema in zip(operator.keys, schemas, strict=True)]
    matches = predicate(operator.condition, context.node.schema)
    widths = len(schemas[0]), len(schemas[1])
    return InputOrderOperator(
        PunctuatedJoinOperator(operator, keys, closings(operator, schemas), matches, widths)
    )


def _window_top(operator: window_top.WindowTop, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    order = row_of_expressions([expr for expr, _ in operator.by.order_by], schema)
    return WindowTopOperator(operator, row_of_expressions(operator.by.partition_by, schema), order)


def _emit(operator: emit.Emit, context: StepContext) -> RowOperator:
    (schema,) = context.schemas
    keyed = schema.key is not None
    key = row_of_expressions([ColumnRef.to(column) for column in operator.key], schema) if keyed else None
    return EmitOperator(operator, key)


def _table_call(operator: table_call.TableCall, context: StepContext) -> RowOperator:
    call = compile_table_call(operator.query, aggregate_lookup(context.catalog, context.rows_of))
    names = [name for name, _ in operator.arguments]
    columns = context.node.schema.columns[: len(context.schemas[0])]
    values = row_of_expressions([value for _, value in operator.arguments], Schema(columns))
    return TableCallOperator(lambda row: call(context.rows_of, dict(zip(names, values(row), strict=True))))


def _unnest(operator: unnest.Unnest, context: StepContext) -> RowOperator:
    columns = context.node.schema.columns[: len(context.schemas[0])]
    value = row_of_expressions([operator.list], Schema(columns))

    def elements(row: Row) -> list[Row]:
        (found,) = value(row)
        assert found is None or isinstance(found, tuple), "it is a list"
        return [(element,) for element in found or (() if not operator.left else (None,))]

    return TableCallOperator(elements)


Twin: TypeAlias = Callable[[Any, StepContext], RowOperator]


@cache
def _twins_of_extensions() -> Mapping[type, Twin]:
    found: dict[type, Twin] = {}
    for extension in extensions().values():
        for operators in extension.operators:
            found |= load(operators.twins) if operators.twins is not None else {}
    return found


TWINS: Mapping[type, Twin] = {
    select.Filter: _filter,
    select.Project: _project,
    union.Merge: lambda _, context: Union(len(context.schemas)),
    lookup.Lookup: _lookup,
    table_call.TableCall: _table_call,
    unnest.Unnest: _unnest,
    join.WindowJoin: _join,
    join_changes.JoinChanges: _join_changes,
    punctuated_join.PunctuatedJoin: _punctuated_join,
    window_changes.WindowChanges: _window_changes,
    asof.AsOfJoin: lambda operator, context: as_of_rows(operator, context.schemas),
    group.GroupAggregate: _group,
    group_changes.GroupChanges: _group_changes,
    distinct.Distinct: lambda *_: DistinctOperator(),
    topn.TopN: _top,
    window_top.WindowTop: _window_top,
    emit.Emit: _emit,
    windowed_group.RelationAggregate: _window_group,
    over.WindowAggregate: _over,
    sessions.SessionAggregate: _sessions,
    session_changes.SessionChanges: _session_changes,
    reorder.Reorder: lambda order, context: ReorderOperator(
        context.schemas[0].index(order.column), order.slack_us
    ),
    coalesce.Coalesce: lambda operator, context: coalesce_rows(
        operator, context.schemas[0], context.node.schema
    ),
    classify.Classify: _classify,
}
