"""Render calls and casts in DuckDB's SQL where it differs from Spark's.

DuckDB is the oracle of the tests, so a function is rendered only if DuckDB has one with the same meaning;
otherwise rendering raises an error. The table of functions (`slicemill.scalar`) has the DuckDB names.
"""

from __future__ import annotations

from collections.abc import Callable

from slicemill.errors import SlicemillError
from slicemill.esl.render.words import type_name
from slicemill.esl.types.expression import Call, Cast, Expr
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.signatures import SCALARS

_INTEGERS = (Kind.INT, Kind.BIGINT)
_FRACTIONS = (Kind.DOUBLE, Kind.DECIMAL)
_NUMBERS = (*_INTEGERS, *_FRACTIONS)


def call(node: Call, inner: Callable[[Expr], str]) -> str | None:
    """Return a call in DuckDB's SQL; None if it equals Spark's."""
    # Imported here, because the table imports NumPy and Arrow, which rendering ESL does not need.
    from slicemill.scalar.function import SAME
    from slicemill.scalar.table import in_duckdb

    template = in_duckdb(node)
    if template is None:
        known = SCALARS.get(node.function, node.function)
        raise SlicemillError(
            f"DuckDB has no function that means the same as {known}: run this query on Spark"
        )
    if template == SAME:
        return None
    return template.format(*(inner(argument) for argument in node.arguments), type=node.type)


def cast(node: Cast, operand: str) -> str:
    """Return a cast with Spark's semantics.

    Fractions are truncated, and times are in seconds.
    """
    source, target = node.operand.type, node.type
    if source.kind in _FRACTIONS and target.kind in _INTEGERS:
        operand = f"trunc({operand})"
    elif source.kind is Kind.TIMESTAMP and target.kind in _NUMBERS:
        seconds = f"epoch_us({operand}) / 1000000"
        operand = f"floor({seconds})" if target.kind in _INTEGERS else seconds
    elif source.kind in _NUMBERS and target.kind is Kind.TIMESTAMP:
        return f"make_timestamp(CAST({operand} * 1000000 AS BIGINT))"
    text = f"{'TRY_CAST' if node.safe else 'CAST'}({operand} AS {_target(target)})"
    return text if target.length is None else f"left({text}, {target.length})"


def _target(type_: Type) -> str:
    return type_name(type_, "duckdb")
