"""Entries of the function table: all implementations of a scalar function.

The *row function* is a Python function of one row's values. The *kernel* computes whole columns. The *source
form* is Python source text for compiled aggregates. The last implementation is the function's SQL in DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from slicemill import types as t
from slicemill.catalog.expressions import Call, Expr
from slicemill.functions.kernel import KernelMaker
from slicemill.functions.source import SourceMaker
from slicemill.types import Kind, Type

Types: TypeAlias = tuple[Type, ...]
# The binder has checked the arguments; implementations do not check them again.
RowFunction: TypeAlias = Callable[..., Any]
RowMaker: TypeAlias = Callable[[Types, Type], RowFunction]
Conversion: TypeAlias = Callable[[Types, Type], Types]
# One template per number of arguments ({0} is the first argument, {type} the result's type), or a function of
# the call.
Sql: TypeAlias = str | tuple[str, ...] | Callable[[Call], str | None]

SAME: Final = "as in Spark"  # marker of a function whose call has the same SQL in DuckDB and in Spark


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """Scalar function or operator, with all its implementations.

    - `row` receives the types of a call and returns the function that evaluates one row. This function
      defines the semantics.
    - `takes` returns the types that the arguments are converted to, in every implementation.
    - A `strict` function is not called if an argument is NULL; the result is NULL. Its arguments are
      evaluated from left to right (with `right_first`, from right to left) up to the first NULL. As in Spark,
      arguments after that NULL are not evaluated and cannot fail.
    - A `lazy` function receives getters of its arguments and calls only the getters that it needs.
    - `column` makes the kernel of a call. The row function runs if `column` is None or returns None.
    - `source` makes the source text of a call in compiled aggregates; None if there is no source form.
    - `duckdb` is the SQL of DuckDB; None if DuckDB has no equivalent. The function's name is Spark's.
    """

    row: RowMaker
    takes: Conversion = lambda types, _result: types
    strict: bool = True
    lazy: bool = False
    right_first: bool = False
    column: KernelMaker | None = None
    source: SourceMaker | None = None
    duckdb: Sql | None = None


@dataclass(frozen=True, slots=True)
class Abbreviation:
    """Function that is replaced by another expression before evaluation."""

    expand: Callable[[Call], Expr]
    duckdb: Sql | None = None


def plain(function: RowFunction) -> RowMaker:
    """Return a maker that returns this row function for all argument types."""
    return lambda _types, _result: function


def as_doubles(types: Types, _result: Type) -> Types:
    return (t.DOUBLE,) * len(types)


def as_result(types: Types, result: Type) -> Types:
    return (result,) * len(types)


def as_common(types: Types, _result: Type) -> Types:
    """Return the common type for every argument, if there is one."""
    merged: Type | None = types[0]
    for type_ in types[1:]:
        merged = t.common(merged, type_) if merged is not None else None
    return types if merged is None else (merged,) * len(types)


def as_dates(types: Types, _result: Type) -> Types:
    """Convert TIMESTAMP to DATE; leave other types unchanged."""
    return tuple(t.DATE if type_.kind is Kind.TIMESTAMP else type_ for type_ in types)


def as_timestamps(types: Types, _result: Type) -> Types:
    """Convert DATE to TIMESTAMP; leave other types unchanged."""
    return tuple(t.TIMESTAMP if type_.kind is Kind.DATE else type_ for type_ in types)


def template(sql: Sql | None, call: Call) -> str | None:
    """Return the DuckDB SQL of a call, with placeholders for its arguments.

    Return SAME if the SQL is that of Spark, and None if DuckDB has no such function.
    """
    if callable(sql):
        return sql(call)
    if sql is None or sql == SAME:
        return sql
    choices = (sql,) if isinstance(sql, str) else sql
    return next((text for text in choices if _arguments(text) == len(call.arguments)), None)


def _arguments(text: str) -> int:
    return sum(f"{{{index}}}" in text for index in range(3))
