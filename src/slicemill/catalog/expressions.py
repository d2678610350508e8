"""Typed expressions, which the binder creates and every engine evaluates.

There are few kinds of nodes. Operators and functions are all Calls, named as in Spark SQL, so an engine only
needs a dictionary from names to implementations. A column is referenced by name and not by index, so an
expression stays valid when a rewrite moves it to another operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from slicemill.types import BOOLEAN, Column, ColumnOrigin, Kind, Type

if TYPE_CHECKING:
    from slicemill.catalog.queries import RelationQuery

Value: TypeAlias = bool | int | float | Decimal | str | bytes | None


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """Reference to a column of the current row.

    `origin` is the join input or function call from which the column comes, as in `Column`.
    """

    name: str
    type: Type
    origin: ColumnOrigin | None = field(default=None, compare=False)

    @staticmethod
    def to(column: Column) -> ColumnRef:
        return ColumnRef(column.name, column.type, column.origin)


@dataclass(frozen=True, slots=True)
class Literal:
    """Constant value; timestamps and intervals are in µs, dates in days since 1970."""

    value: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """Operator or scalar function applied to arguments."""

    function: str
    arguments: tuple[Expr, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    operand: Expr
    type: Type
    safe: bool = False  # True for TRY_CAST, which returns NULL instead of an error


@dataclass(frozen=True, slots=True)
class Case:
    """Searched CASE: `CASE WHEN condition THEN value … ELSE default END`.

    The binder also translates `CASE x WHEN value …` into this node.
    """

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Argument:
    """Reference to a parameter, in the body of an aggregate or function."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Oldest:
    """Reference to a column of the window's oldest tuple, in a window aggregate's body."""

    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class ScalarQuery:
    """Scalar sub-query, whose value is NULL if the query returns no row."""

    query: RelationQuery
    type: Type


@dataclass(frozen=True, slots=True)
class ExistsQuery:
    query: RelationQuery
    type: Type = BOOLEAN


Expr: TypeAlias = ColumnRef | Literal | Call | Cast | Case | Argument | Oldest | ScalarQuery | ExistsQuery


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Call):
        return expr.arguments
    if isinstance(expr, Cast):
        return (expr.operand,)
    if isinstance(expr, Case):
        return (*(part for branch in expr.branches for part in branch), expr.default)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from walk(child)


def columns_of(expr: Expr) -> frozenset[str]:
    """Return the names of the columns that an expression reads."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, ColumnRef))


def origins_of(expr: Expr) -> frozenset[ColumnOrigin | None]:
    """Return the origins of the columns that an expression reads."""
    return frozenset(node.origin for node in walk(expr) if isinstance(node, ColumnRef))


def as_in_input(expr: Expr) -> Expr:
    """Rename the columns of an expression over one join input to their names in the input."""
    return transform(
        expr, lambda e: ColumnRef(e.origin.column, e.type) if isinstance(e, ColumnRef) and e.origin else None
    )


def transform(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild an expression bottom-up.

    `change` returns a replacement for a node, or None to leave the node unchanged.
    """
    rebuilt: Expr = expr
    if isinstance(expr, Call):
        rebuilt = replace(expr, arguments=tuple(transform(a, change) for a in expr.arguments))
    elif isinstance(expr, Cast):
        rebuilt = replace(expr, operand=transform(expr.operand, change))
    elif isinstance(expr, Case):
        branches = tuple((transform(when, change), transform(then, change)) for when, then in expr.branches)
        rebuilt = replace(expr, branches=branches, default=transform(expr.default, change))
    changed = change(rebuilt)
    return rebuilt if changed is None else changed


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """Split a condition at AND."""
    if expr is None:
        return ()
    if isinstance(expr, Call) and expr.function == "and":
        return tuple(part for argument in expr.arguments for part in conjuncts(argument))
    return (expr,)


def conjunction(parts: tuple[Expr, ...]) -> Expr | None:
    """Join conditions by AND; return None without conditions."""
    if not parts:
        return None
    condition = parts[0]
    for part in parts[1:]:
        condition = Call("and", (condition, part), BOOLEAN)
    return condition


def is_null(expr: Expr) -> bool:
    """Return True for a NULL literal, also inside CAST(NULL AS …)."""
    if isinstance(expr, Cast):
        return is_null(expr.operand)
    return isinstance(expr, Literal) and expr.value is None


def is_null_literal(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.type.kind is Kind.NULL
