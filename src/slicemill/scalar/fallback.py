"""Calls without a fast form: the reference closure, once per distinct combination of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.types.expression import Call, Cast, ColumnRef, Expr, Literal
from slicemill.esl.types.schema import Column, Kind, Schema, Type
from slicemill.scalar.rows import ExpressionError, compile_expression
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
Reference = Callable[[tuple[Any, ...]], object]

_LENGTHENING = ("repeat", "lpad", "rpad")
_LONG = 10_000
_BITS = {
    **dict.fromkeys((Kind.INT, Kind.DATE, Kind.MONTHS), 32),
    **dict.fromkeys((Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL), 64),
}


def local_reference(expr: Call | Cast) -> Reference:
    """The reference closure of one call alone, as a function of the values of `inputs_of` it."""
    columns = [ColumnRef(str(index), argument.type) for index, argument in enumerate(inputs_of(expr))]
    given: Iterator[Expr] = iter(columns)
    schema = Schema(tuple(Column(column.name, column.type) for column in columns))
    if isinstance(expr, Cast):
        return compile_expression(replace(expr, operand=next(given)), schema)
    arguments = tuple(a if isinstance(a, Literal) else next(given) for a in expr.arguments)
    reference = compile_expression(replace(expr, arguments=arguments), schema)
    return _reluctant(reference) if expr.function in _LENGTHENING else reference


def inputs_of(expr: Call | Cast) -> tuple[Expr, ...]:
    """The arguments that are no literals."""
    if isinstance(expr, Cast):
        return (expr.operand,)
    return tuple(argument for argument in expr.arguments if not isinstance(argument, Literal))


def _reluctant(reference: Reference) -> Reference:
    """Leaves long texts to whoever asks for that very row: a guard such as CASE may have excluded it."""

    def unless_long(row: tuple[Any, ...]) -> object:
        if any(isinstance(value, int) and value > _LONG for value in row):
            raise ExpressionError("the text would be long")
        return reference(row)

    return unless_long


def answers(
    reference: Reference, result: Type, vectors: Sequence[Vector], rows: int
) -> tuple[list[Any], list[bool]]:
    """The reference's value of each row, None where it fails, and whether it does."""
    columns = [to_values(vector, rows) for vector in vectors]
    values: list[Any] = []
    failed: list[bool] = []
    for row in zip(*columns, strict=True) if columns else [()] * rows:
        try:
            values.append(representable(reference(row), result))
            failed.append(False)
        except (ExpressionError, ArithmeticError):
            values.append(None)
            failed.append(True)
    return values, failed


def representable(value: object, type_: Type) -> object:
    """The value, or an error if a column of this type cannot hold it."""
    bits = _BITS.get(type_.kind)
    if bits is not None and isinstance(value, int) and not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ExpressionError(f"{value} is out of the range of {type_}")
    return value


def by_distinct_row(reference: Reference, result: Type, vectors: Sequence[Vector], rows: int) -> Vector:
    """A call over columns; rows on which it fails are unsure."""
    unsure: Mask | None = None
    for vector in vectors:
        unsure = either(unsure, vector.unsure)
    if unsure is not None:
        # What stands there is no argument anybody gave: NULL costs least.
        vectors = [replace(vector, valid=both(vector.valid, ~unsure), unsure=None) for vector in vectors]
    codes, first = distinct(vectors, rows)
    values, failed = answers(reference, result, [take(vector, first) for vector in vectors], len(first))
    found = take(from_values(values, result), codes)
    own = some(np.array(failed, np.bool_)[codes]) if any(failed) else None
    return Vector(result, found.data, found.valid, either(unsure, own))


def patch(vector: Vector, own: Mask, reference: Reference, arguments: Sequence[Vector], rows: int) -> Vector:
    """Answers of the reference in place of what a kernel left open."""
    places = np.flatnonzero(np.broadcast_to(own, (rows,)))
    parts = [take(argument, places) for argument in arguments]
    answer = by_distinct_row(reference, vector.type, parts, len(places))
    filled = patched(vector, rows, places, to_values(replace(answer, unsure=None), len(places)))
    if answer.unsure is None:
        return filled
    open_ = np.zeros(rows, np.bool_)
    open_[places] = answer.unsure
    return replace(filled, unsure=either(filled.unsure, open_))


def distinct(vectors: Sequence[Vector], rows: int) -> tuple[Codes, Codes]:
    """A number per row, equal for equal rows, and for each number the first row that has it."""
    codes: Codes = np.zeros(rows, np.int64)
    count = min(rows, 1)
    for vector in vectors:
        for part in _parts(vector):
            own, size = _encoded(part)
            # Two numbers below the count of rows: their combination stays within 64 bits.
            codes, count = _encoded(pa.array(codes * size + own)) if count > 1 else (own, size)
    first: Codes = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)
    return codes, first


def _encoded(array: pa.Array) -> tuple[Codes, int]:
    encoded = array.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices, len(encoded.dictionary)


def _parts(vector: Vector) -> list[pa.Array]:
    """Arrays that are equal where the vector is, with NULL as one more value."""
    data = vector.data
    if is_constant(vector):
        columns = []
    elif vector.type.kind is Kind.PERIOD:
        columns = [data[:, 0], data[:, 1]]
    elif vector.type.kind is Kind.DOUBLE:
        columns = [data.view(np.int64)]  # by bits: 0 and -0 are different arguments
    else:
        columns = [data]
    if vector.valid is not None and vector.valid.ndim:
        columns.append(vector.valid)
    return [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
