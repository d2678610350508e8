"""Values of aggregates in the declared types of their columns, as Spark has them.

A sum of BIGINTs that needs more than 64 bits is an error, and a DECIMAL is rounded to the scale of its
column, half away from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.functions.casts import converter
from slicemill.scalar.values import bigint_checked


def declared(type_: Type) -> Callable[[Any], object] | None:
    """Takes what an aggregate returned, if not NULL, to a type; None where values are as declared anyway."""
    if type_.kind is Kind.DECIMAL:
        return converter(t.ANY, type_)
    if type_.kind is Kind.DOUBLE:
        return _as_double
    return bigint_checked if type_.kind is Kind.BIGINT else None


def _as_double(value: object) -> object:
    return float(value) if isinstance(value, int) else value
