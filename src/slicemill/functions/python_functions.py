"""Python UDFs over whole columns, named `module:function` in a call.

The UDF receives an Arrow array per argument, including NULLs, and returns one value per row: an Arrow array,
or anything that `pa.array` accepts. If the call for a whole column fails, the UDF is called again for each
single row that is needed. So only rows whose value is needed can fail, each with its own error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import Any

import pyarrow as pa

from slicemill.functions.function import RowFunction, ScalarFunction, Types
from slicemill.functions.kernel import Fallback, Kernel, KernelCall
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import (
    Vector,
    and_masks,
    arrow_type,
    from_arrow,
    from_values,
    is_constant,
    or_masks,
    to_arrow,
    to_values,
)
from slicemill.types import Type


def is_external(name: str) -> bool:
    return ":" in name


@cache
def external_function(name: str) -> ScalarFunction:
    """Return a Python UDF as a scalar function.

    Its module is imported on the first call.
    """

    def row(types: Types, result: Type) -> RowFunction:
        def value(*values: object) -> object:
            given = [from_values([one], type_) for one, type_ in zip(values, types, strict=True)]
            return to_values(_call_function(name, [to_arrow(vector, 1) for vector in given], 1, result), 1)[0]

        return value

    def column(call: KernelCall) -> Kernel:
        def run(*vectors: Vector) -> Vector:
            rows = next((len(vector.data) for vector in vectors if not is_constant(vector)), None)
            if rows is None:
                raise Fallback
            fallback = reduce(or_masks, (vector.fallback for vector in vectors))
            if fallback is not None:  # rows that an argument's kernel could not compute have arbitrary data
                vectors = tuple(
                    replace(v, valid=and_masks(v.valid, ~fallback), fallback=None) for v in vectors
                )
            try:
                answer = _call_function(
                    name, [to_arrow(vector, rows) for vector in vectors], rows, call.result
                )
            except ExpressionError:
                raise Fallback from None
            return replace(answer, fallback=fallback)

        return Kernel(run, strict=False)

    return ScalarFunction(row, strict=False, column=column)


def _call_function(name: str, columns: Sequence[pa.Array], rows: int, result: Type) -> Vector:
    if rows == 0:
        return from_values([], result)
    try:
        given = _import_function(name)(*columns)
        array = _as_array(given, arrow_type(result))
    except Exception as problem:  # a UDF may raise anything
        said = str(problem).partition("\n")[0]
        raise ExpressionError(f"{name} failed: {type(problem).__name__}: {said}") from None
    if len(array) != rows:
        raise ExpressionError(
            f"{name} was given {rows} values and returned {len(array)}; it has to return one for each"
        )
    return from_arrow(array, result)


@cache
def _import_function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def _as_array(values: Any, wanted: pa.DataType) -> pa.Array:
    """Return a UDF's result as an array of the declared type."""
    if isinstance(values, pa.Scalar):
        values = pa.array([values.as_py()], values.type)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array if array.type == wanted else array.cast(wanted)
