"""What the table has for each function: its meaning by row, its kernel by column, its source and its SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from slicemill.esl.types import schema as t
from slicemill.esl.types.expression import Call, Expr
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.kernel import KernelMaker
from slicemill.scalar.source import SourceMaker

Types: TypeAlias = tuple[Type, ...]
# Values are checked by the binder, once: implementations take them as they come.
RowFunction: TypeAlias = Callable[..., Any]
RowMaker: TypeAlias = Callable[[Types, Type], RowFunction]
Conversion: TypeAlias = Callable[[Types, Type], Types]
# Templates, one for each number of arguments ({0} is the first, {type} the result's type); or chosen by call.
Sql: TypeAlias = str | tuple[str, ...] | Callable[[Call], str | None]

SAME: Final = "as in Spark"  # in place of a template


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function or operator, in all of its forms. How it may be called is in `signatures`, under its name.

    `row` makes, for the types of a call, the function of one row's values: this is what the call means.
    `takes` gives the types that the arguments are converted to, in every form.
    A `strict` function is not called with NULLs: its result is NULL then. Its arguments are evaluated from
    left to right up to the first NULL, or `right_first`: an error behind a NULL is none, as in Spark.
    A `lazy` one is made of getters of its arguments, and asks them as far as it needs.
    `column` makes the kernel of a call; None, also as its answer, where a call runs by the row form.
    `source` makes the text that compiled aggregates have for a call; None where they have none.
    `duckdb` is what DuckDB calls it; None where DuckDB has nothing that means the same. Its name is Spark's.
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
    """A function that is short for another expression, in every form."""

    expand: Callable[[Call], Expr]
    duckdb: Sql | None = None


def plain(function: RowFunction) -> RowMaker:
    """A meaning by row that is the same for all types."""
    return lambda _types, _result: function


def as_doubles(types: Types, _result: Type) -> Types:
    return (t.DOUBLE,) * len(types)


def as_result(types: Types, result: Type) -> Types:
    return (result,) * len(types)


def as_common(types: Types, _result: Type) -> Types:
    """All to the type they have in common; as they are where they have none."""
    merged: Type | None = types[0]
    for type_ in types[1:]:
        merged = t.common(merged, type_) if merged is not None else None
    return types if merged is None else (merged,) * len(types)


def as_dates(types: Types, _result: Type) -> Types:
    """Points in time to dates, everything else as it is."""
    return tuple(t.DATE if type_.kind is Kind.TIMESTAMP else type_ for type_ in types)


def as_timestamps(types: Types, _result: Type) -> Types:
    """Points in time to timestamps, everything else as it is."""
    return tuple(t.TIMESTAMP if type_.kind is Kind.DATE else type_ for type_ in types)


def template(sql: Sql | None, call: Call) -> str | None:
    """The template for a call: SAME, a text with places for its arguments, or None."""
    if callable(sql):
        return sql(call)
    if sql is None or sql == SAME:
        return sql
    choices = (sql,) if isinstance(sql, str) else sql
    return next((text for text in choices if _arguments(text) == len(call.arguments)), None)


def _arguments(text: str) -> int:
    return sum(f"{{{index}}}" in text for index in range(3))
