"""From the name of a call to its function: the themes' tables put together, with conversions of arguments."""

from __future__ import annotations

from collections.abc import Callable

from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.functions.arithmetic import ARITHMETIC
from slicemill.scalar.functions.casts import converter
from slicemill.scalar.functions.comparison import COMPARISON
from slicemill.scalar.functions.hashing import HASHES
from slicemill.scalar.functions.maths import MATH
from slicemill.scalar.functions.patterns import PATTERNS
from slicemill.scalar.functions.periods import PERIODS, RELATIONS
from slicemill.scalar.functions.text import TEXT
from slicemill.scalar.functions.times import TIME
from slicemill.scalar.values import ExpressionError, Function, Scalar, Types

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
