"""Expressions column by column: over whole Arrow tables, with the meaning of the row form.

    price_in_cents = compile_vector(expr, schema)
    column = price_in_cents(table)

Columns of the table are named as in the schema and may stand among others. `compile_many` evaluates what
several expressions have in common once; `fallbacks` says which parts have no fast form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Schema
from slicemill.scalar.program import Arrived, Program
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import arrow_type, to_arrow

# An expression that fails stops its query, not those it is evaluated with.
Outcome: TypeAlias = pa.ChunkedArray | ExpressionError


def compile_many(exprs: Sequence[Expr], schema: Schema) -> Callable[[Arrived], list[Outcome]]:
    """The column of each expression over a table, or its error; equal sub-expressions are evaluated once."""
    program = Program(exprs, schema)
    types = [arrow_type(expr.type) for expr in exprs]

    def evaluate(table: Arrived) -> list[Outcome]:
        return [
            results if isinstance(results, ExpressionError) else pa.chunked_array(results, type_)
            for results, type_ in zip(program.run(table, to_arrow), types, strict=True)
        ]

    return evaluate


def compile_or_null(exprs: Sequence[Expr], schema: Schema) -> Callable[[Arrived], list[pa.ChunkedArray]]:
    """The column of each expression over a table; NULL on rows where it fails."""
    program = Program(exprs, schema)
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
    return tuple(step.expr for step in Program([expr], schema).steps if not step.vectorised)


def vectorised(expr: Expr, schema: Schema) -> bool:
    return not fallbacks(expr, schema)
