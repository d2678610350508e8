"""What every scalar function of the reference engine is made of: its error, its ranges and its table entry.

Values are Spark's: INT and BIGINT are ints checked to 32 and 64 bits, DECIMAL is an exact Decimal with the
scale of its type, TIMESTAMP and INTERVAL are microseconds, DATE is days, PERIOD is a tuple (begin, end, …).
The functions themselves are in `scalars_*.py`, one theme a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

from slicemill.errors import SlicemillError
from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type

# Values are checked by the binder, once: implementations take them as they come.
Function: TypeAlias = Callable[..., Any]
Types: TypeAlias = tuple[Type, ...]

INT_BITS, BIGINT_BITS = 32, 64
# Wide enough that sums and products of two decimals of 38 digits are exact.
EXACT = Context(prec=160, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)


class ExpressionError(SlicemillError):
    """A value for which an expression has no result: overflow, division by zero, a text that is no number."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """How a function is made for the types of one call.

    `takes` gives the types its arguments are converted to, `make` the function of the converted values.
    A `strict` function is not called with NULLs: its result is NULL then.
    """

    make: Callable[[Types, Type], Function]
    takes: Callable[[Types, Type], Types]
    strict: bool = True


def as_given(types: Types, result: Type) -> Types:  # noqa: ARG001
    return types


def as_doubles(types: Types, result: Type) -> Types:  # noqa: ARG001
    return (t.DOUBLE,) * len(types)


def as_result(types: Types, result: Type) -> Types:
    return (result,) * len(types)


def as_common(types: Types, result: Type) -> Types:  # noqa: ARG001
    """All to the type they have in common; as they are where they have none."""
    merged: Type | None = types[0]
    for type_ in types[1:]:
        merged = t.common(merged, type_) if merged is not None else None
    return types if merged is None else (merged,) * len(types)


def as_dates(types: Types, result: Type) -> Types:  # noqa: ARG001
    """Points in time to dates, everything else as it is."""
    return tuple(t.DATE if type_.kind is Kind.TIMESTAMP else type_ for type_ in types)


def as_timestamps(types: Types, result: Type) -> Types:  # noqa: ARG001
    """Points in time to timestamps, everything else as it is."""
    return tuple(t.TIMESTAMP if type_.kind is Kind.DATE else type_ for type_ in types)


def plain(
    function: Function, takes: Callable[[Types, Type], Types] = as_given, strict: bool = True
) -> Scalar:
    """A function that is the same for all types it takes."""
    return Scalar(lambda _types, _result: function, takes, strict)


def int_checked(value: int) -> int:
    if -0x8000_0000 <= value <= 0x7FFF_FFFF:
        return value
    raise ExpressionError(f"{value} is out of the range of INT; convert an operand to BIGINT")


def bigint_checked(value: int) -> int:
    if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        return value
    raise ExpressionError(f"{value} is out of the range of 64 bits; convert an operand to DECIMAL or DOUBLE")


def integer_check(type_: Type) -> Callable[[int], int]:
    """INT and MONTHS have 32 bits; all other whole numbers, also times and intervals, have 64."""
    return int_checked if type_.kind in (Kind.INT, Kind.MONTHS) else bigint_checked


def wrapped(value: int, bits: int) -> int:
    """A whole number as two's complement of so many bits keeps it."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def decimal_fit(type_: Type) -> Callable[[Decimal], Decimal]:
    """Rounds to the scale of a decimal type; an error where the precision does not suffice."""
    assert type_.precision is not None and type_.scale is not None
    unit = Decimal(1).scaleb(-type_.scale)
    limit = Decimal(10) ** (type_.precision - type_.scale)

    def fit(value: Decimal) -> Decimal:
        try:
            rounded = value.quantize(unit, context=EXACT)
        except InvalidOperation:
            raise ExpressionError(f"{value} does not fit into {type_}; CAST it to a wider decimal") from None
        if not -limit < rounded < limit:
            raise ExpressionError(f"{value} does not fit into {type_}; CAST it to a wider decimal")
        return rounded if rounded else rounded.copy_abs()  # SQL has no negative zero

    return fit


def unscaled(value: Decimal, scale: int) -> int:
    """The digits of a decimal of this scale, as a whole number."""
    return int(value.scaleb(scale, context=EXACT))
