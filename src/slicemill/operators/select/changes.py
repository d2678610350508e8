"""Filter and projection of changelogs.

A filter may keep an update, turn it into an insert or a delete, or drop it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.changes import selected, with_ops, without_unchanged
from slicemill.columns.keys import whole
from slicemill.esl.types.expression import ColumnRef, Expr
from slicemill.esl.types.relation import SelectItem
from slicemill.esl.types.schema import OP, Schema
from slicemill.operators.select.kernels import project_table
from slicemill.scalar.columns import compile_many, compile_vector
from slicemill.storage.arrow_schema import is_system_column


class FilterChangesStep:
    def __init__(self, condition: Expr, schema: Schema) -> None:
        self._condition = compile_vector(condition, schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        holds = whole(pc.fill_null(self._condition(tables[0]), False)).to_numpy(zero_copy_only=False)
        return selected(tables[0], np.asarray(holds, np.bool_)), complete[0]


class ProjectChangesStep:
    """Projection of a changelog; drops updates that change no selected column.

    The first item is the operation.
    """

    def __init__(self, items: Sequence[SelectItem], schema: Schema) -> None:
        self._names = [item.name for item in items if item.name != OP]
        self._columns = compile_many([item.expr for item in items if item.name != OP], schema)
        # If all columns are selected, under any name, no update can become void.
        self._has_all = set(schema.own.names) <= {
            item.expr.name for item in items if isinstance(item.expr, ColumnRef)
        }

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table = tables[0]
        made = project_table(table, self._names, self._columns)
        place = sum(is_system_column(name) for name in made.column_names)
        made = made.add_column(place, table.schema.field(OP), table.column(OP))
        return made if self._has_all else without_unchanged(made, self._names), complete[0]


class InsertsStep:
    """Converts insert-only input to a changelog."""

    def __init__(self, items: Sequence[SelectItem], schema: Schema) -> None:
        self._names = [item.name for item in items if item.name != OP]
        self._columns = compile_many([item.expr for item in items if item.name != OP], schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        made = project_table(tables[0], self._names, self._columns)
        place = sum(is_system_column(name) for name in made.column_names)
        return with_ops(made, np.zeros(made.num_rows, np.int8), place), complete[0]
