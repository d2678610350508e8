"""Binder of type names and column declarations."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from slicemill import types as t
from slicemill.binder.context import ErrorCollector
from slicemill.errors import did_you_mean
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import ColumnDeclaration, TypeName, child, span_of
from slicemill.types import MAX_DECIMAL_PRECISION, SPELLINGS, Column, Kind, Schema, TimestampUnit, Type

# Highest precision n of TIMESTAMP(n). The precision is ignored, because every timestamp has microseconds.
_MOST_DIGITS = 9


def bind_type(node: TypeName, lists: bool = False) -> Type:
    """Return the data type for a type name in a statement.

    `lists` permits list types, which only columns of streams may have.
    """
    if not child(node, "list"):
        return _single(node)
    if not lists:
        raise StatementError(
            "only columns of streams are declared as lists",
            span_of(node),
            "make lists with ARRAY[…], split(text, ',') or collect_list(x)",
        )
    return t.list_of(_single(node))


def _single(node: TypeName) -> Type:
    name = node.name.upper()
    if name not in SPELLINGS:
        hint = did_you_mean(name, SPELLINGS) or f"the types are {', '.join(sorted(SPELLINGS))}"
        raise StatementError(f"there is no type {node.name}", span_of(node), hint)
    base = SPELLINGS[name]
    parameters = [_whole(parameter, node) for parameter in node.expressions]
    if not parameters:
        return base
    if base.kind is Kind.VARCHAR and len(parameters) == 1 and name not in ("STRING", "TEXT"):
        if parameters[0] < 1:
            raise StatementError(f"{name} needs a length of at least 1", span_of(node))
        return Type(Kind.VARCHAR, length=parameters[0])
    if base.kind is Kind.TIMESTAMP and len(parameters) == 1 and parameters[0] <= _MOST_DIGITS:
        return base
    if base.kind is Kind.DECIMAL and len(parameters) <= 2:
        precision, scale = parameters[0], parameters[1] if len(parameters) == 2 else 0
        if not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:
            raise StatementError(
                f"DECIMAL({precision}, {scale}) is not possible",
                span_of(node),
                f"at most {MAX_DECIMAL_PRECISION} digits, and at most as many decimal places",
            )
        return t.decimal(precision, scale)
    raise StatementError(f"{name} takes no {len(parameters)} parameters", span_of(node))


def _whole(parameter: object, node: TypeName) -> int:
    text = str(getattr(parameter, "name", ""))
    if not text.isdigit():
        raise StatementError("a type's parameter is an integer", span_of(node))
    return int(text)


def _unit(node: exp.Var, column: str, type_: Type) -> TimestampUnit:
    if type_.kind is not Kind.TIMESTAMP:
        raise StatementError(
            f"{node.name} is the unit of timestamps that are numbers, and {column} is {type_}",
            span_of(node),
            "leave it out, or declare the column as TIMESTAMP",
        )
    return TimestampUnit(node.name)


def bind_columns(
    declarations: list[ColumnDeclaration], untyped: Type = t.ANY, *, lists: bool = False
) -> Schema:
    """Return the schema of column declarations.

    A column without a type gets the type `untyped`.
    """
    problems = ErrorCollector()
    columns: list[Column] = []
    seen: set[str] = set()
    for declaration in declarations:
        with problems.collect():
            name = declaration.this.name
            if name.lower() in seen:
                raise StatementError(
                    f"{name} is declared twice", span_of(declaration), "give it another name"
                )
            seen.add(name.lower())
            kind, unit = child(declaration, "kind"), child(declaration, "unit")
            type_ = bind_type(kind, lists) if kind is not None else untyped
            if unit is not None:
                type_ = replace(type_, unit=_unit(unit, name, type_))
            columns.append(Column(name, type_))
    problems.raise_any()
    return Schema(tuple(columns))
