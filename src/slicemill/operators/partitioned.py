"""Partition numbers of rows, and expressions over new rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.keys import Keys, distinct_keys, whole
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Schema
from slicemill.scalar.columns import compile_many
from slicemill.scalar.values import ExpressionError


class Columns:
    """Expressions over new rows, compiled together for several calls."""

    def __init__(self, groups: Sequence[Sequence[Expr]], schema: Schema) -> None:
        self._sizes = [len(group) for group in groups]
        self._types = [expr.type for group in groups for expr in group]
        self._compute = compile_many([expr for group in groups for expr in group], schema)

    def of(self, table: pa.Table) -> list[list[pa.Array]]:
        """Return the columns of each group; raise the first error."""
        arrays = []
        for outcome in self._compute(table):
            if isinstance(outcome, ExpressionError):
                raise outcome
            arrays.append(whole(outcome))
        found: list[list[pa.Array]] = []
        for size in self._sizes:
            found.append(arrays[:size])
            arrays = arrays[size:]
        return found


class Partitioned:
    """Computes the partition number of each row."""

    def __init__(self, keys: Sequence[Expr], schema: Schema) -> None:
        self._columns = Columns([keys], schema)

    def numbers(self, table: pa.Table, keys: Keys) -> NDArray[np.int32]:
        columns = self._columns.of(table)[0]
        return keys.number(distinct_keys(columns, table.num_rows), columns)
