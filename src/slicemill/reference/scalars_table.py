"""From the name of a call to its function: the themes' tables put together, with conversions of arguments."""

from __future__ import annotations

from collections.abc import Callable

from slicemill.esl.types.schema import Kind, Type
from slicemill.reference.scalars import ExpressionError, Function, Scalar, Types
from slicemill.reference.scalars_arithmetic import ARITHMETIC
from slicemill.reference.scalars_cast import converter
from slicemill.reference.scalars_compare import COMPARISON
from slicemill.reference.scalars_hash import HASHES
from slicemill.reference.scalars_math import MATH
from slicemill.reference.scalars_patterns import PATTERNS
from slicemill.reference.scalars_period import PERIODS, RELATIONS
from slicemill.reference.scalars_text import TEXT
from slicemill.reference.scalars_time import TIME

IMPLEMENTED: dict[str, Scalar] = {
    **RELATIONS,
    **ARITHMETIC,
    **COMPARISON,
    **HASHES,
    **MATH,
    **PATTERNS,
    **PERIODS,
    **TEXT,
    **TIME,
}


def conversions_and_function(
    name: str, types: Types, result: Type
) -> tuple[list[Callable[[object], object] | None], Function, bool]:
    """How to convert each argument (None: leave it), the function, and whether it is strict."""
    # CONTAINS is a relation of periods and a function of texts.
    of_periods = name in RELATIONS and any(type_.kind is Kind.PERIOD for type_ in types)
    scalar = (RELATIONS if of_periods else IMPLEMENTED).get(name)
    if scalar is None:
        raise ExpressionError(f"the reference engine has no function {name}")
    wanted = scalar.takes(types, result)
    conversions = [
        None if source == target or target.kind is Kind.NULL else converter(source, target)
        for source, target in zip(types, wanted, strict=True)
    ]
    return conversions, scalar.make(wanted, result), scalar.strict
