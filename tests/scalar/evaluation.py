"""Cases of `spark_cases`, evaluated by row and by column, for comparison with Spark and DuckDB."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from functools import cache

from sqlglot import exp

from scalar.random_rows import as_table
from scalar.spark_cases import CASES, SCHEMA, rows
from slicemill.binder.expressions import bind
from slicemill.catalog.expressions import Call, Case, Cast, ColumnRef, Expr, walk
from slicemill.functions.evaluate import compile_or_null
from slicemill.functions.rows import compile_expression
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import from_arrow, to_values
from slicemill.sql.dialect import parse

INPUT = rows(seed=20_260_131)
TABLE = as_table(INPUT, SCHEMA)
TEXTS = [text.strip() for line in CASES.strip().split("\n") for text in line.split(";") if text.strip()]


class Columns:
    """Binding environment that contains only columns."""

    def column(self, node: exp.Column) -> Expr:
        found = SCHEMA.find(node.name)
        assert found is not None, node.name
        return ColumnRef(found.name, found.type)

    def call(self, node: exp.Anonymous) -> None:
        return None

    def call_names(self) -> list[str]:
        return []


@cache
def bound(text: str) -> Expr:
    (select,) = parse(f"SELECT {text} AS x FROM T")
    return bind(select.expressions[0].this, Columns())  # type: ignore[arg-type]


@cache
def names_in(text: str) -> frozenset[str]:
    """Return the functions and operators that a case calls."""
    names = {Cast: "cast", Case: "case"}
    nodes = list(walk(bound(text)))
    return frozenset(
        node.function if isinstance(node, Call) else names[type(node)]
        for node in nodes
        if isinstance(node, Call | Cast | Case)
    )


@cache
def by_row(text: str) -> list[object]:
    """Return the value for each row, or the error."""
    compiled = compile_expression(bound(text), SCHEMA)

    def attempt(row: tuple[object, ...]) -> object:
        try:
            return compiled(row)
        except ExpressionError as error:
            return error

    return [attempt(row) for row in INPUT]


@cache
def by_column(text: str) -> list[object]:
    """Return the value for each row, with NULL in place of an error."""
    expr = bound(text)
    (column,) = compile_or_null([expr], SCHEMA)(TABLE)
    return to_values(from_arrow(column.combine_chunks(), expr.type), len(column))


def same(ours: object, theirs: object) -> bool:
    """Return True if a value equals that of another system; doubles may differ in the last digits."""
    if isinstance(theirs, timedelta):
        theirs = (theirs.days * 86_400 + theirs.seconds) * 1_000_000 + theirs.microseconds
    if isinstance(ours, tuple) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-12)
    if isinstance(ours, Decimal) and isinstance(theirs, Decimal):
        return ours == theirs
    return type(ours) is type(theirs) and ours == theirs


def differences(text: str, theirs: list[object]) -> list[str]:
    """Return the rows where row form or column form differs from an oracle, which has NULL for errors."""
    found = []
    for row, mine, column, other in zip(INPUT, by_row(text), by_column(text), theirs, strict=True):
        if not same(None if isinstance(mine, ExpressionError) else mine, other):
            found.append(f"{text}: {mine!r} by row, not {other!r}, {inputs(text, row)}")
        if not same(column, other):
            found.append(f"{text}: {column!r} by column, not {other!r}, {inputs(text, row)}")
    return found


def inputs(text: str, row: tuple[object, ...]) -> str:
    read = {node.name for node in walk(bound(text)) if isinstance(node, ColumnRef)}
    return ", ".join(f"{name}={row[SCHEMA.index(name)]!r}" for name in sorted(read))
