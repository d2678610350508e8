"""Column vectors: NumPy or Arrow arrays with masks of NULL rows and failed rows.

Numbers and times are NumPy arrays, strings and decimals are Arrow arrays.

A Vector has a value for each row, and two masks: `valid` (not NULL) and `fallback`. A *fallback* is a row
that a kernel could not evaluate, for example because of an overflow. The row function (the Python function of
single values) then returns the value or raises the error of that row. So a kernel needs no error messages;
it may flag too many rows, but never too few. A constant is a vector without a length (0-dimensional, or an
Arrow scalar), which NumPy and Arrow broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.kernels.arrays import Bools
from slicemill.types import Kind, Type

# NumPy arrays of numbers. The static types of NumPy's arithmetic are too imprecise to be useful.
Numbers: TypeAlias = Any
# Numbers, or a pyarrow Array or Scalar for strings and decimals; periods are (n, 2) arrays of begin and end.
Data: TypeAlias = Any

_DTYPES: dict[Kind, type[np.generic]] = {
    Kind.BOOLEAN: np.bool_,
    Kind.INT: np.int32,
    Kind.BIGINT: np.int64,
    Kind.DOUBLE: np.float64,
    Kind.TIMESTAMP: np.int64,
    Kind.DATE: np.int32,
    Kind.INTERVAL: np.int64,
    Kind.MONTHS: np.int32,
    Kind.PERIOD: np.int64,
    Kind.NULL: np.bool_,
}

_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.VARCHAR: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.DATE: pa.date32(),
    Kind.INTERVAL: pa.duration("us"),
    Kind.MONTHS: pa.int32(),
    Kind.PERIOD: pa.struct(
        [("begin", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))],
    ),
    Kind.NULL: pa.null(),
}


@dataclass(frozen=True, slots=True)
class Vector:
    """Column of values, with masks of NULL rows and of rows not computed by a kernel.

    `valid` is None if no row is NULL. `fallback` marks the rows that a kernel could not compute, and is None
    without such rows. The data of NULLs and of fallback rows is arbitrary.
    """

    type: Type
    data: Data
    valid: Bools | None = None
    fallback: Bools | None = None


def arrow_type(type_: Type) -> pa.DataType:
    if type_.kind is Kind.DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    if type_.element is not None:
        return pa.list_(arrow_type(type_.element))
    if type_.kind not in _ARROW:
        raise TypeError(f"a column of type {type_} has no Arrow type")
    return _ARROW[type_.kind]


def is_arrow_type(type_: Type) -> bool:
    return type_.kind in (Kind.VARCHAR, Kind.BINARY, Kind.DECIMAL, Kind.LIST)


def dtype_of(type_: Type) -> type[np.generic]:
    return _DTYPES[type_.kind]


# -- boolean masks ----------------------------------------------------------------------------------------


def and_masks(left: Bools | None, right: Bools | None) -> Bools | None:
    """Return the AND of two masks; None means all rows."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def or_masks(left: Bools | None, right: Bools | None) -> Bools | None:
    """Return the OR of two masks; None means no row."""
    if left is None or right is None:
        return right if left is None else left
    return left | right


def mask_or_none(mask: Bools | None) -> Bools | None:
    """Return the mask, or None if no row is set."""
    return mask if mask is not None and mask.any() else None


# -- conversion from and to Arrow -------------------------------------------------------------------------


def bits(buffer: pa.Buffer, offset: int, rows: int) -> Bools:
    """Return an Arrow bitmap as a mask."""
    first = offset // 8
    raw = np.frombuffer(buffer, np.uint8, (offset + rows + 7) // 8 - first, first)
    return np.unpackbits(raw, bitorder="little")[offset - 8 * first :][:rows].view(np.bool_)


def numbers(array: pa.Array) -> Numbers:
    """Return a fixed-width or boolean array's values without a copy.

    The values of NULLs are arbitrary.
    """
    rows, values = len(array), array.buffers()[1]
    if pa.types.is_boolean(array.type):
        return np.zeros(rows, np.bool_) if values is None else bits(values, array.offset, rows)
    dtype = np.dtype("f8" if pa.types.is_floating(array.type) else f"i{array.type.bit_width // 8}")
    if values is None:
        return np.zeros(rows, dtype)
    return np.frombuffer(values, dtype, rows, array.offset * dtype.itemsize)


def on_arrow(function: Callable[..., pa.Array | pa.Scalar], *arguments: Data) -> Bools:
    """Return the result of an Arrow predicate as a mask.

    NULLs are arbitrary.
    """
    found = function(*arguments)
    return np.asarray(bool(found.as_py())) if isinstance(found, pa.Scalar) else numbers(found)


def validity(array: pa.Array) -> Bools | None:
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    return bits(bitmap, array.offset, len(array)) if bitmap is not None else np.zeros(len(array), np.bool_)


def bitmap_of(mask: Bools | None) -> pa.Buffer | None:
    return None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))


def boolean_array(mask: Bools) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bitmap_of(mask)])


def fixed_width(values: Numbers, valid: Bools | None, type_: pa.DataType) -> pa.Array:
    """Return an Arrow array that shares a NumPy array's memory."""
    nulls = 0 if valid is None else -1
    contiguous = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(type_, len(values), [bitmap_of(valid), contiguous], nulls)


def from_arrow(array: pa.Array, type_: Type) -> Vector:
    wanted = arrow_type(type_)
    if array.type != wanted:
        array = array.cast(wanted)
    valid = validity(array)
    if is_arrow_type(type_):
        return Vector(type_, array, valid)
    if type_.kind is Kind.NULL:
        return Vector(type_, np.zeros(len(array), np.bool_), valid)
    if type_.kind is Kind.PERIOD:
        ends = [numbers(pc.struct_field(array, [index])) for index in (0, 1)]
        return Vector(type_, np.stack(ends, axis=1), valid)
    return Vector(type_, numbers(array), valid)


def to_arrow(vector: Vector, rows: int) -> pa.Array:
    """Convert a vector without fallback rows to an Arrow array; repeat constants."""
    type_, data = vector.type, vector.data
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, (rows,))
    target = arrow_type(type_)
    if is_arrow_type(type_):
        array = full_length(vector, rows).data
        return array if valid is None else pc.if_else(boolean_array(valid), array, pa.scalar(None, target))
    if type_.kind is Kind.NULL:
        return pa.nulls(rows)
    if type_.kind is Kind.PERIOD:
        pairs = np.broadcast_to(data, (rows, 2))
        ends = [fixed_width(pairs[:, index], None, target.field(index).type) for index in (0, 1)]
        return pa.Array.from_buffers(target, rows, [bitmap_of(valid)], children=ends)
    values = np.broadcast_to(data, (rows,))
    if type_.kind is Kind.BOOLEAN:
        return pa.Array.from_buffers(target, rows, [bitmap_of(valid), bitmap_of(values)])
    return fixed_width(values, valid, target)


def choose_values(mask: Bools, then: Data, otherwise: Data, type_: Type) -> Data:
    """Return `then` where the mask is set, and `otherwise` elsewhere."""
    if is_arrow_type(type_):
        if np.ndim(mask) == 0:
            return then if mask else otherwise
        return pc.if_else(boolean_array(mask), then, otherwise)
    if type_.kind is Kind.PERIOD:
        mask = np.expand_dims(mask, -1)
    return np.where(mask, then, otherwise)


# -- conversion from and to Python values -------------------------------------------------------------------


def from_values(values: Sequence[Any], type_: Type) -> Vector:
    known = np.fromiter((value is not None for value in values), np.bool_, len(values))
    valid = None if known.all() else known
    if is_arrow_type(type_):
        return Vector(type_, pa.array(values, arrow_type(type_)), valid)
    if type_.kind is Kind.PERIOD:
        pairs = [(0, 0) if value is None else value[:2] for value in values]
        return Vector(type_, np.array(pairs, np.int64).reshape(len(values), 2), valid)
    filled = [0 if value is None else value for value in values]
    return Vector(type_, np.array(filled, dtype_of(type_)), valid)


def to_values(vector: Vector, rows: int) -> list[Any]:
    """Return each row's value as the Python object that row-by-row functions use."""
    if vector.type.kind is Kind.LIST:
        return list_values(to_arrow(vector, rows))
    if is_arrow_type(vector.type):
        return list(to_arrow(vector, rows).to_pylist())
    if vector.type.kind is Kind.PERIOD:
        values: list[Any] = [tuple(pair) for pair in np.broadcast_to(vector.data, (rows, 2)).tolist()]
    else:
        values = np.broadcast_to(vector.data, (rows,)).tolist()
    if vector.valid is None:
        return values
    known = np.broadcast_to(vector.valid, (rows,)).tolist()
    return [value if is_known else None for value, is_known in zip(values, known, strict=True)]


def list_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the lists of a column as tuples of times in microseconds or dates in days."""
    element = array.type.value_type
    if pa.types.is_timestamp(element) or pa.types.is_duration(element):
        array = array.cast(pa.list_(pa.int64()))
    elif pa.types.is_date32(element):
        array = array.cast(pa.list_(pa.int32()))
    return [None if values is None else tuple(values) for values in array.to_pylist()]


def constant(value: object, type_: Type) -> Vector:
    one = from_values([value], type_)
    return Vector(type_, one.data[0], None if one.valid is None else np.asarray(False))


def null_constant(type_: Type) -> Vector:
    """Return a constant NULL of a type."""
    never = np.asarray(False)
    if is_arrow_type(type_):
        return Vector(type_, pa.scalar(None, arrow_type(type_)), never)
    shape = (2,) if type_.kind is Kind.PERIOD else ()
    return Vector(type_, np.zeros(shape, dtype_of(type_)), never)


def is_constant(vector: Vector) -> bool:
    """Return True if the data is constant.

    NULLs and fallbacks may still vary by row.
    """
    if isinstance(vector.data, pa.Scalar):
        return True
    return not isinstance(vector.data, pa.Array) and np.ndim(vector.data) == (vector.type.kind is Kind.PERIOD)


def full_length(vector: Vector, rows: int) -> Vector:
    """Return the vector with constant data repeated for each row."""
    if not is_constant(vector):
        return vector
    if is_arrow_type(vector.type):
        return replace(vector, data=pa.repeat(vector.data, rows))
    shape = (rows, 2) if vector.type.kind is Kind.PERIOD else (rows,)
    return replace(vector, data=np.broadcast_to(vector.data, shape).copy())


# -- selection and replacement of rows --------------------------------------------------------------------


def take(vector: Vector, indices: NDArray[np.int64]) -> Vector:
    """Return the rows of a vector at these indices."""
    valid, fallback = (
        mask if mask is None or mask.ndim == 0 else mask[indices] for mask in (vector.valid, vector.fallback)
    )
    if is_constant(vector):
        return replace(vector, valid=valid, fallback=fallback)
    data = vector.data.take(pa.array(indices)) if is_arrow_type(vector.type) else vector.data[indices]
    return Vector(vector.type, data, valid, fallback)


def replace_values(vector: Vector, rows: int, indices: NDArray[np.int64], values: Sequence[Any]) -> Vector:
    """Replace the values at these indices; leave the mask of fallback rows unchanged."""
    fresh = from_values(values, vector.type)
    valid = np.ones(rows, np.bool_) if vector.valid is None else np.broadcast_to(vector.valid, (rows,)).copy()
    valid[indices] = True if fresh.valid is None else fresh.valid
    data = full_length(vector, rows).data
    if is_arrow_type(vector.type):
        mask = np.zeros(rows, np.bool_)
        mask[indices] = True
        data = pc.replace_with_mask(data, boolean_array(mask), fresh.data)
    else:
        data = data.copy()
        data[indices] = fresh.data
    return Vector(vector.type, data, valid, vector.fallback)
