"""Expressions column by column: over whole Arrow tables, with the meaning of the row form.

    price_in_cents = compile_vector(expr, schema)
    column = price_in_cents(table)

Columns of the table are named as in the schema and may stand among others. `compile_many` evaluates what
several expressions have in common once; `fallbacks` says which parts have no fast form.

A table is evaluated block by block: what one step writes is still in the cache when the next one reads it.
Rows that are fallbacks at the end go to the row form: it knows the value, or the error with its message.
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
# An expression that fails stops its query, not those it is evaluated with.
Outcome: TypeAlias = pa.ChunkedArray | ExpressionError
R = TypeVar("R")


def compile_many(exprs: Sequence[Expr], schema: Schema) -> Callable[[Arrived], list[Outcome]]:
    """The column of each expression over a table, or its error; equal sub-expressions are evaluated once.

    What is a column of the table already stays where it lies.
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
    """The column of each expression over a table; NULL on rows where it fails."""
    program = ColumnProgram(exprs, schema)
    types = [arrow_type(expr.type) for expr in exprs]

    def evaluate(table: Arrived) -> list[pa.ChunkedArray]:
        found = program.run(table, to_arrow, or_null=True)
        return [pa.chunked_array(results, type_) for results, type_ in zip(found, types, strict=True)]

    return evaluate


def compile_vector(expr: Expr, schema: Schema) -> Callable[[Arrived], pa.ChunkedArray]:
    """The column of an expression over a table; an ExpressionError where a row has no value."""
    many = compile_many([expr], schema)

    def evaluate(table: Arrived) -> pa.ChunkedArray:
        (outcome,) = many(table)
        if isinstance(outcome, ExpressionError):
            raise outcome
        return outcome

    return evaluate


def fallbacks(expr: Expr, schema: Schema) -> tuple[Expr, ...]:
    """The sub-expressions that run by the row form, once per distinct row of their arguments."""
    return tuple(step.expr for step in ColumnProgram([expr], schema).steps if not step.vectorised)


def vectorised(expr: Expr, schema: Schema) -> bool:
    return not fallbacks(expr, schema)


# -- evaluation ----------------------------------------------------------------------------------------------


def blocks(table: Arrived) -> Iterator[pa.RecordBatch]:
    """The rows of a table in pieces of one chunk each."""
    if isinstance(table, pa.RecordBatch):
        for start in range(0, table.num_rows, BLOCK_ROWS):
            yield table.slice(start, BLOCK_ROWS)
        return
    # Many small chunks would cost more in calls than their copy does.
    chunks = max((column.num_chunks for column in table.columns), default=0)
    if chunks > 1 and table.num_rows < chunks * BLOCK_ROWS // 8:
        table = table.combine_chunks()
    yield from table.to_batches(max_chunksize=BLOCK_ROWS)


class Root:
    """One of the expressions asked for: the index of its vector, and its row form for fallbacks."""

    def __init__(self, expr: Expr, index: int, schema: Schema) -> None:
        self.expr = expr
        self.index = index
        read = columns_of(expr)
        self._read = Schema(tuple(column for column in schema if column.name in read))

    @cached_property
    def _row_form(self) -> RowForm:
        return compile_expression(self.expr, self._read)

    def settled(self, vector: Vector, batch: pa.RecordBatch, *, or_null: bool) -> Vector:
        """The vector without fallbacks; the first error of the row form is raised, or all are NULL."""
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
        # What the other rows have counts as well.
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
    """Expressions over one schema, with their common parts computed once."""

    def __init__(self, exprs: Sequence[Expr], schema: Schema) -> None:
        steps = ColumnSteps(schema)
        self.roots = [Root(expr, steps.add(expr), schema) for expr in exprs]
        self.steps = tuple(steps.steps)

    def run(
        self, table: Arrived, use: Callable[[Vector, int], R], *, or_null: bool = False
    ) -> list[list[R] | ExpressionError]:
        """For each expression what `use` makes of its vector, block by block, or its first error.

        With `or_null` there are no errors: a row on which an expression fails has NULL.
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
                # Only constants are constant for a kernel, whatever happens to be the same on all rows.
                vectors.append(full_length(vector, batch.num_rows) if step.inputs else vector)
        return vectors
