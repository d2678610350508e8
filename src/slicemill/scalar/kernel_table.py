"""From the name of a call to its kernel: the themes' tables put together."""

from __future__ import annotations

from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.functions.arithmetic_columns import ARITHMETIC
from slicemill.scalar.functions.casts_columns import cast_kernel
from slicemill.scalar.functions.comparison_columns import COMPARISON
from slicemill.scalar.functions.hashing_columns import HASHES
from slicemill.scalar.functions.maths_columns import MATH
from slicemill.scalar.functions.periods_columns import PERIODS, RELATIONS
from slicemill.scalar.functions.text_columns import TEXT
from slicemill.scalar.functions.times_columns import TIME
from slicemill.scalar.kernel import Bound, Kernel, Maker
from slicemill.scalar.table import IMPLEMENTED

__all__ = ["cast_kernel", "kernel_of", "types_taken"]

_MAKERS: dict[str, Maker] = {
    **ARITHMETIC,
    **COMPARISON,
    **HASHES,
    **MATH,
    **PERIODS,
    **TEXT,
    **TIME,
}


def _of_periods(name: str, types: tuple[Type, ...]) -> bool:
    """CONTAINS is a relation of periods and a function of texts."""
    return name in RELATIONS and any(type_.kind is Kind.PERIOD for type_ in types)


def types_taken(name: str, types: tuple[Type, ...], result: Type) -> tuple[Type, ...] | None:
    """The types a function's arguments are converted to; None if there is no kernel of this name."""
    if _of_periods(name, types):
        return types
    if name not in _MAKERS or any(type_.kind is Kind.ANY for type_ in types):
        return None
    return IMPLEMENTED[name].takes(types, result)


def kernel_of(bound: Bound) -> Kernel | None:
    """None where only the reference evaluates this call."""
    makers = RELATIONS if _of_periods(bound.function, bound.types) else _MAKERS
    made = makers[bound.function](bound)
    return made if made is None or isinstance(made, Kernel) else Kernel(made)
