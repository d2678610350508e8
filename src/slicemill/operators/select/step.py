"""Execution steps of filter and projection, which are stateless."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.relation import SelectItem
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.graph import Node
from slicemill.operators.select.changes import FilterChangesStep, InsertsStep, ProjectChangesStep
from slicemill.operators.select.kernels import filter_table, project_table
from slicemill.operators.select.spec import Filter, Project
from slicemill.scalar.columns import compile_many, compile_vector

_REMEMBERED = 1 << 13


class FilterStep:
    def __init__(self, condition: Expr, schema: Schema) -> None:
        self._condition = compile_vector(condition, schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return filter_table(tables[0], self._condition), complete[0]


class ProjectStep:
    def __init__(self, items: Sequence[SelectItem], schema: Schema) -> None:
        self._names = [item.name for item in items]
        self._columns = compile_many([item.expr for item in items], schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return project_table(tables[0], self._names, self._columns), complete[0]


def filter_step(_: Filter, context: StepContext) -> FilterStep | FilterChangesStep:
    return _filter_step(context.node, *context.schemas)


def project_step(_: Project, context: StepContext) -> ProjectStep | ProjectChangesStep | InsertsStep:
    return _project_step(context.node, *context.schemas)


# A unit may have a thousand selections. If a query is added or removed, steps of other queries are reused.
@lru_cache(_REMEMBERED)
def _filter_step(node: Node, schema: Schema) -> FilterStep | FilterChangesStep:
    assert isinstance(node.operator, Filter)
    return (FilterChangesStep if schema.changelog else FilterStep)(node.operator.condition, schema)


@lru_cache(_REMEMBERED)
def _project_step(node: Node, schema: Schema) -> ProjectStep | ProjectChangesStep | InsertsStep:
    assert isinstance(node.operator, Project)
    if schema.changelog:
        return ProjectChangesStep(node.operator.items, schema)
    return (InsertsStep if node.schema.changelog else ProjectStep)(node.operator.items, schema)
