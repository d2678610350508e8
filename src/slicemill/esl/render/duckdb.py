"""DuckDB's words for ESL's calls and casts where they differ from Spark's.

DuckDB is the oracle of the tests, so a function is given only where it means the same; for the rest there is
an error, never a near miss. What a function is called is in the table of functions (`slicemill.scalar`).
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
    """DuckDB's own text of a call, fit to stand anywhere; None where it is written as in Spark."""
    # The table brings NumPy and Arrow, which those who only print ESL do without.
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
    """A cast; numbers lose their fraction and times are seconds, as in Spark."""
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
