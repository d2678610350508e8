"""Vectorised expression evaluation over Arrow tables, equivalent to the row form.

    price_in_cents = compile_vector(expr, schema)
    column = price_in_cents(table)

The table finds columns by their names in the schema, and may have further columns. `compile_many` evaluates
common sub-expressions once. `fallbacks` returns the sub-expressions that have no kernel.

A table is evaluated in blocks that fit into the CPU cache. Rows that are still fallbacks after the last step
are evaluated by the row form, which returns the value or raises the error with its message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from slicemill.esl.types.expression import ColumnRef, Expr, columns_of
from slicemill.esl.types.schema import Schema
from slicemill.scalar.fallback import RowForm
from slicemill.scalar.rows import compile_expression
from slicemill.scalar.steps import ColumnSteps
from slicemill.scalar.values import MOST_TEXT, ExpressionError, representable
from slicemill.scalar.vectors import (
    Vector,
    arrow_type,
    from_arrow,
    full_length,
    patched,
    take,
    to_arrow,
    to_values,
)

BLOCK_ROWS = 131_072

Arrived: TypeAlias = pa.Table | pa.RecordBatch
# A failing expression stops its own query, not the queries whose expressions are evaluated with it.
Outcome: TypeAlias = pa.ChunkedArray | ExpressionError
R = TypeVar("R")


def compile_many(exprs: Sequence[Expr], schema: Schema) -> Callable[[Arrived], list[Outcome]]:
    """Compile expressions; the result returns each one's column, or its error.

    Equal sub-expressions are evaluated once. Columns of the table are not copied.
    """
    computed = [expr for expr in exprs if not isinstance(expr, ColumnRef)]
    program = ColumnProgram(computed, schema)
    types = [arrow_type(expr.type) for expr in computed]

    def evaluate(table: Arrived) -> list[Outcome]:
        made: Iterator[Outcome] = iter(
            [
                results if isinstance(results, ExpressionError) else pa.chunked_array(results, type_)
                for results, type_ in zip(program.run(table, to_arrow), types, strict=True)
            ]
            if computed
            else []
        )
        return [_stored(table, expr) if isinstance(expr, ColumnRef) else next(made) for expr in exprs]

    return evaluate


def _stored(table: Arrived, expr: ColumnRef) -> pa.ChunkedArray:
    column, wanted = table.column(expr.name), arrow_type(expr.type)
    found = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    return found if found.type == wanted else found.cast(wanted)


def compile_or_null(exprs: Sequence[Expr], schema: Schema) -> Callable[[Arrived], list[pa.ChunkedArray]]:
    """Compile expressions to columns that are NULL on failing rows."""
    program = ColumnProgram(exprs, schema)
    types = [arrow_type(expr.type) for expr in exprs]

    def evaluate(table: Arrived) -> list[pa.ChunkedArray]:
        found = program.run(table, to_arrow, or_null=True)
        return [pa.chunked_array(results, type_) for results, type_ in zip(found, types, strict=True)]

    return evaluate


def compile_vector(expr: Expr, schema: Schema) -> Callable[[Arrived], pa.ChunkedArray]:
    """Compile one expression to a column; raises ExpressionError if a row fails."""
    many = compile_many([expr], schema)

    def evaluate(table: Arrived) -> pa.ChunkedArray:
        (outcome,) = many(table)
        if isinstance(outcome, ExpressionError):
            raise outcome
        return outcome

    return evaluate


def fallbacks(expr: Expr, schema: Schema) -> tuple[Expr, ...]:
    """Return the sub-expressions without a kernel, which run by row."""
    return tuple(step.expr for step in ColumnProgram([expr], schema).steps if not step.vectorised)


def vectorised(expr: Expr, schema: Schema) -> bool:
    return not fallbacks(expr, schema)


# -- evaluation ----------------------------------------------------------------------------------------------


def blocks(table: Arrived) -> Iterator[pa.RecordBatch]:
    """Yield a table in single-chunk blocks of at most BLOCK_ROWS rows."""
    if isinstance(table, pa.RecordBatch):
        for start in range(0, table.num_rows, BLOCK_ROWS):
            yield table.slice(start, BLOCK_ROWS)
        return
    # Copying many small chunks costs less than evaluating each of them.
    chunks = max((column.num_chunks for column in table.columns), default=0)
    if chunks > 1 and table.num_rows < chunks * BLOCK_ROWS // 8:
        table = table.combine_chunks()
    yield from table.to_batches(max_chunksize=BLOCK_ROWS)


class Root:
    """Root expression: the index of its vector, and its row form."""

    def __init__(self, expr: Expr, index: int, schema: Schema) -> None:
        self.expr = expr
        self.index = index
        read = columns_of(expr)
        self._read = Schema(tuple(column for column in schema if column.name in read))

    @cached_property
    def _row_form(self) -> RowForm:
        return compile_expression(self.expr, self._read)

    def settled(self, vector: Vector, batch: pa.RecordBatch, *, or_null: bool) -> Vector:
        """Return the vector with its fallback rows evaluated by the row form.

        A failing row raises its error, or becomes NULL with `or_null`.
        """
        rows = batch.num_rows
        if isinstance(vector.data, pa.StringScalar):
            self._check_texts(rows * len(vector.data.as_py() or ""))
        if vector.fallback is None:
            return vector
        indices = np.flatnonzero(np.broadcast_to(vector.fallback, (rows,)))
        columns = [
            to_values(take(from_arrow(batch.column(column.name), column.type), indices), len(indices))
            for column in self._read
        ]
        given: Iterator[tuple[Any, ...]] = (
            zip(*columns, strict=True) if columns else iter([()] * len(indices))
        )
        values: list[object] = []
        # The text of the rows that are not fallbacks counts towards the limit too.
        length = vector.data.nbytes if isinstance(vector.data, pa.StringArray) else 0
        for row in given:
            value = self._value(row, vector, or_null=or_null)
            length += len(value) if isinstance(value, str) else 0
            self._check_texts(length)
            values.append(value)
        return replace(patched(vector, rows, indices, values), fallback=None)

    def _check_texts(self, length: int) -> None:
        if length > MOST_TEXT:
            raise ExpressionError(
                f"the texts that an expression makes of a block of rows have more than {MOST_TEXT:,} "
                "characters; make them shorter"
            )

    def _value(self, row: tuple[Any, ...], vector: Vector, *, or_null: bool) -> object:
        try:
            return representable(self._row_form(row), vector.type)
        except ExpressionError:
            if or_null:
                return None
            raise


class ColumnProgram:
    """Expressions over one schema, with common sub-expressions computed once."""

    def __init__(self, exprs: Sequence[Expr], schema: Schema) -> None:
        steps = ColumnSteps(schema)
        self.roots = [Root(expr, steps.add(expr), schema) for expr in exprs]
        self.steps = tuple(steps.steps)

    def run(
        self, table: Arrived, use: Callable[[Vector, int], R], *, or_null: bool = False
    ) -> list[list[R] | ExpressionError]:
        """Return `use(vector, rows)` per expression and block, or its first error.

        With `or_null` a failing row is NULL instead of an error.
        """
        found: list[list[R] | ExpressionError] = [[] for _ in self.roots]
        for batch in blocks(table):
            vectors = self._evaluated(batch)
            for index, root in enumerate(self.roots):
                results = found[index]
                if isinstance(results, ExpressionError):
                    continue
                try:
                    vector = root.settled(vectors[root.index], batch, or_null=or_null)
                except ExpressionError as error:
                    found[index] = error
                else:
                    results.append(use(vector, batch.num_rows))
        return found

    def _evaluated(self, batch: pa.RecordBatch) -> list[Vector]:
        vectors: list[Vector] = []
        with np.errstate(all="ignore"):
            for step in self.steps:
                vector = step.run(batch, [vectors[index] for index in step.inputs])
                # For a kernel only literals are constant, not columns whose rows are equal by chance.
                vectors.append(full_length(vector, batch.num_rows) if step.inputs else vector)
        return vectors
