"""Filter and project: kernels on whole tables that keep nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.relation import SelectItem
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.select.changes import FilterChangesStep, InsertsStep, ProjectChangesStep
from slicemill.operators.select.kernels import filter_table, project_table
from slicemill.operators.select.spec import Filter, Project
from slicemill.scalar.columns import compile_many, compile_vector


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


def filter_step(where: Filter, context: StepContext) -> FilterStep | FilterChangesStep:
    (schema,) = context.schemas
    return (FilterChangesStep if schema.changelog else FilterStep)(where.condition, schema)


def project_step(project: Project, context: StepContext) -> ProjectStep | ProjectChangesStep | InsertsStep:
    (schema,) = context.schemas
    if schema.changelog:
        return ProjectChangesStep(project.items, schema)
    return (InsertsStep if context.node.schema.changelog else ProjectStep)(project.items, schema)
