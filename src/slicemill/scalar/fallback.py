"""Fallback evaluation: run the row form once per distinct combination of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.types.expression import Call, Cast, ColumnRef, Expr, Literal
from slicemill.esl.types.schema import Column, Kind, Schema, Type
from slicemill.scalar.rows import compile_expression
from slicemill.scalar.values import MOST_TEXT, ExpressionError, representable
from slicemill.scalar.vectors import (
    Mask,
    Vector,
    both,
    either,
    from_values,
    is_constant,
    patched,
    some,
    take,
    to_values,
)

Codes = NDArray[np.int64]
RowForm = Callable[[tuple[Any, ...]], object]

_LENGTHENING = ("repeat", "lpad", "rpad")
_LONG = 10_000


def row_form_of(expr: Call | Cast) -> RowForm:
    """Return the row form of one call; its inputs are `inputs_of`."""
    columns = [ColumnRef(str(index), argument.type) for index, argument in enumerate(inputs_of(expr))]
    given: Iterator[Expr] = iter(columns)
    schema = Schema(tuple(Column(column.name, column.type) for column in columns))
    if isinstance(expr, Cast):
        return compile_expression(replace(expr, operand=next(given)), schema)
    arguments = tuple(a if isinstance(a, Literal) else next(given) for a in expr.arguments)
    form = compile_expression(replace(expr, arguments=arguments), schema)
    return _reluctant(form) if expr.function in _LENGTHENING else form


def inputs_of(expr: Call | Cast) -> tuple[Expr, ...]:
    """Return the arguments that are not literals."""
    if isinstance(expr, Cast):
        return (expr.operand,)
    return tuple(argument for argument in expr.arguments if not isinstance(argument, Literal))


def _reluctant(form: RowForm) -> RowForm:
    """Make a row form fail for long strings.

    A guard such as CASE may exclude the row. If not, `Root` evaluates the complete expression on that row.
    """

    def unless_long(row: tuple[Any, ...]) -> object:
        if any(isinstance(value, int) and value > _LONG for value in row):
            raise ExpressionError("the text would be long")
        return form(row)

    return unless_long


def answers(
    form: RowForm, result: Type, vectors: Sequence[Vector], rows: int
) -> tuple[list[Any], list[bool]]:
    """Evaluate the row form on each row.

    Return values, and flags of failed rows.

    A failed row has the value None.
    """
    columns = [to_values(vector, rows) for vector in vectors]
    values: list[Any] = []
    failed: list[bool] = []
    length = 0
    for row in zip(*columns, strict=True) if columns else [()] * rows:
        try:
            value = representable(form(row), result) if length <= MOST_TEXT else None
            length += len(value) if isinstance(value, str) else 0
            values.append(value)
            failed.append(length > MOST_TEXT)
        except (ExpressionError, ArithmeticError):
            values.append(None)
            failed.append(True)
    return values, failed


def by_distinct_row(form: RowForm, result: Type, vectors: Sequence[Vector], rows: int) -> Vector:
    """Evaluate a call over columns; rows on which it fails become fallbacks."""
    fallback: Mask | None = None
    for vector in vectors:
        fallback = either(fallback, vector.fallback)
    if fallback is not None:
        # Fallback rows have arbitrary data. NULL is the cheapest argument for them.
        vectors = [replace(vector, valid=both(vector.valid, ~fallback), fallback=None) for vector in vectors]
    codes, first = distinct(vectors, rows)
    values, failed = answers(form, result, [take(vector, first) for vector in vectors], len(first))
    if result.kind is Kind.VARCHAR and len(first) < rows:
        lengths = np.array([len(value or "") for value in values], np.int64)
        if int(lengths[codes].sum()) > MOST_TEXT:  # a text that many rows share counts once per row
            values, failed = [None] * len(values), [True] * len(values)
    found = take(from_values(values, result), codes)
    own = some(np.array(failed, np.bool_)[codes]) if any(failed) else None
    return Vector(result, found.data, found.valid, either(fallback, own))


def patch(vector: Vector, own: Mask, form: RowForm, arguments: Sequence[Vector], rows: int) -> Vector:
    """Evaluate a kernel's fallback rows, and merge the values."""
    indices = np.flatnonzero(np.broadcast_to(own, (rows,)))
    parts = [take(argument, indices) for argument in arguments]
    answer = by_distinct_row(form, vector.type, parts, len(indices))
    filled = patched(vector, rows, indices, to_values(replace(answer, fallback=None), len(indices)))
    if answer.fallback is None:
        return filled
    open_ = np.zeros(rows, np.bool_)
    open_[indices] = answer.fallback
    return replace(filled, fallback=either(filled.fallback, open_))


def distinct(vectors: Sequence[Vector], rows: int) -> tuple[Codes, Codes]:
    """Return a code per distinct row, and each code's first row."""
    codes: Codes = np.zeros(rows, np.int64)
    count = min(rows, 1)
    for vector in vectors:
        for part in _parts(vector):
            own, size = _encoded(part)
            # Both factors are at most the number of rows, so that the product fits into 64 bits.
            codes, count = _encoded(pa.array(codes * size + own)) if count > 1 else (own, size)
    first: Codes = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)
    return codes, first


def _encoded(array: pa.Array) -> tuple[Codes, int]:
    encoded = array.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices, len(encoded.dictionary)


def _parts(vector: Vector) -> list[pa.Array]:
    """Return arrays equal where the vector is; NULL equals NULL."""
    data = vector.data
    if is_constant(vector):
        columns = []
    elif vector.type.kind is Kind.PERIOD:
        columns = [data[:, 0], data[:, 1]]
    elif vector.type.kind is Kind.LIST:
        columns = [pa.array(map(repr, to_values(vector, len(data))))]
    elif vector.type.kind is Kind.DOUBLE:
        columns = [data.view(np.int64)]  # by bits: 0 and -0 are distinct arguments
    else:
        columns = [data]
    if vector.valid is not None and vector.valid.ndim:
        columns.append(vector.valid)
    return [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
