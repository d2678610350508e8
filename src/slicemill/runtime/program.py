"""A unit as a program: its operators as steps, ready to run in a task.

The plan travels to the tasks as data and is compiled there, once per worker and plan version. A step that
fails stops the queries behind it and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.esl.catalog import Catalog
from slicemill.esl.expression import Expr
from slicemill.esl.query import Frame
from slicemill.esl.types import Schema
from slicemill.execution.operator import Row
from slicemill.execution.translate import Translator, fed_by, row_of_expressions
from slicemill.plan import operators as op
from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.units import Unit, log_of
from slicemill.runtime.arrow_schema import to_arrow, with_system_columns
from slicemill.runtime.steps import (
    FilterStep,
    LookupStep,
    MergeState,
    MergeStep,
    ProjectStep,
    RowState,
    RowStep,
    Share,
    State,
    StatefulStep,
    Step,
)


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """All that a task needs to know of a unit; immutable and picklable."""

    unit: Unit
    graph: QueryGraph
    catalog: Catalog
    tables: Mapping[str, Sequence[Row]]
    buckets: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows and completeness per output log, errors per output log, and rows out per operator.

    `due` is how far the inputs must be complete for something held back to come out; None if nothing is.
    """

    tables: Mapping[str, pa.Table]
    complete: Mapping[str, int]
    errors: Mapping[str, str]
    rows: Mapping[str, int]
    due: int | None


class UnitProgram:
    """The steps of one bucket of a unit. `states` is what has to be kept between runs, by node."""

    def __init__(self, plan: UnitPlan, bucket: int, states: Mapping[str, State] | None = None) -> None:
        self.plan = plan
        self._bucket = bucket
        self._translator = Translator(plan.graph, plan.catalog, plan.tables)
        self.states: dict[str, State] = {}
        self._hosted: list[StatefulStep] = []
        self._steps = {
            node_id: self._step(plan.graph[node_id], (states or {}).get(node_id))
            for node_id in plan.unit.nodes
        }

    def run(self, inputs: Mapping[str, pa.Table], complete: Mapping[str, int]) -> Outcome:
        graph, unit = self.plan.graph, self.plan.unit
        tables: dict[str, pa.Table] = {}
        until: dict[str, int] = {}
        failed: dict[str, str] = {}
        rows: dict[str, int] = {}
        for node in graph:
            log = log_of(node, graph)
            if log is not None and log in inputs and node.id not in unit.nodes:
                tables[node.id], until[node.id] = inputs[log], complete[log]
        for node_id in unit.nodes:
            step = self._steps[node_id]
            sources = fed_by(graph[node_id], graph)
            broken = next((failed[source] for source in sources if source in failed), None)
            if broken is not None:
                failed[node_id] = broken
            elif step is not None:
                try:
                    given = [tables[source] for source in sources], [until[source] for source in sources]
                    tables[node_id], until[node_id] = step.run(*given)
                    rows[node_id] = tables[node_id].num_rows
                except SlicemillError as problem:
                    failed[node_id] = str(problem)
        good = [(node_id, log) for node_id, log in unit.outputs if node_id not in failed]
        return Outcome(
            {log: tables[node_id] for node_id, log in good},
            {log: until[node_id] for node_id, log in good},
            {log: failed[node_id] for node_id, log in unit.outputs if node_id in failed},
            rows,
            min((due for step in self._hosted if (due := step.due()) is not None), default=None),
        )

    def empty_input(self, log: str) -> pa.Table:
        node = next(n for n in self.plan.graph if log_of(n, self.plan.graph) == log)
        return with_system_columns(to_arrow(node.schema)).empty_table()

    def _step(self, node: Node, state: State | None) -> Step | None:
        """A node's step; tables and views have none, they live in what looks them up."""
        operator = node.operator
        if isinstance(operator, (op.Scan, op.Materialize)):
            return None
        schemas = [self.plan.graph[source].schema for source in fed_by(node, self.plan.graph)]
        if isinstance(operator, op.Filter):
            return FilterStep(operator.condition, schemas[0])
        if isinstance(operator, op.Project):
            return ProjectStep(operator.items, schemas[0])
        if isinstance(operator, op.Sink):
            return _Passing()
        if isinstance(operator, op.Lookup) and isinstance(self._found(node).operator, op.Scan):
            return self._lookup(node, operator, schemas[0])
        step = self._stateful(node, schemas, state)
        self._hosted.append(step)
        self.states[node.id] = step.state
        return step

    def _stateful(self, node: Node, schemas: list[Schema], state: State | None) -> StatefulStep:
        if isinstance(node.operator, op.Merge):
            kept = state if isinstance(state, MergeState) else MergeState()
            return MergeStep(kept, len(schemas), node.schema)
        share = self._share(node, schemas[0]) if self.plan.buckets > 1 else None
        hosted = state if isinstance(state, RowState) else RowState(self._translator.operator(node))
        return RowStep(hosted, schemas, node.schema, share)

    def _found(self, node: Node) -> Node:
        """The relation that a look-up reads."""
        return self.plan.graph[node.inputs[1]]

    def _lookup(self, node: Node, lookup: op.Lookup, stream: Schema) -> Step:
        relation = self._found(node)
        assert isinstance(relation.operator, op.Scan)
        rows = self._translator.rows_of(relation.operator.relation)
        return LookupStep(lookup, stream, relation.schema, rows, lookup.left)

    def _share(self, node: Node, schema: Schema) -> Share | None:
        keys = partition_keys(node.operator)
        if keys is None:
            return None
        return Share(row_of_expressions(keys, schema), self._bucket, self.plan.buckets)


class _Passing:
    """A sink hands on what reaches it: its log is what keeps it."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return tables[0], complete[0]


def partition_keys(operator: op.Operator) -> tuple[Expr, ...] | None:
    """The expressions by whose values an operator's work can be split; None if it cannot."""
    keys: tuple[Expr, ...] = ()
    if isinstance(operator, (op.GroupAggregate, op.Coalesce)):
        items = operator.group_by if isinstance(operator, op.GroupAggregate) else operator.partition_by
        keys = tuple(item.expr for item in items)
    elif isinstance(operator, op.RelationAggregate) and operator.windows[0][1].frame is Frame.RANGE:
        keys = tuple(item.expr for item in operator.group_by)
    elif isinstance(operator, op.WindowAggregate):
        partitions = {call.partition_by for call in operator.calls}
        keys = partitions.pop() if len(partitions) == 1 else ()
    return keys or None


def bucket_count(unit: Unit, graph: QueryGraph, wanted: int) -> int:
    """How many buckets a unit can be split into: all of its results must come from one keyed operator."""
    hosted = [n for n in unit.nodes if not isinstance(graph[n].operator, _STATELESS)]
    if len(hosted) != 1 or partition_keys(graph[hosted[0]].operator) is None:
        return 1
    behind = {node_id for node_id, _ in unit.outputs}
    return wanted if all(hosted[0] in graph.ancestors(node_id) for node_id in behind) else 1


_STATELESS = (op.Filter, op.Project, op.Sink, op.Scan, op.Lookup)
