"""Values of scalar expressions: the error where there is none, the ranges of types, and strings of numbers.

Values are Spark's: INT and BIGINT are ints checked to 32 and 64 bits, DECIMAL is an exact Decimal with the
scale of its type, TIMESTAMP and INTERVAL are microseconds, DATE is days, PERIOD is a tuple (begin, end, …).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from slicemill.errors import SlicemillError
from slicemill.esl.types.schema import Kind, Type

# Kinds whose values are integers of 32 and of 64 bits.
INTS_32 = (Kind.INT, Kind.DATE, Kind.MONTHS)
INTS_64 = (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL)
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1

# Wide enough that sums and products of two decimals of 38 digits are exact.
EXACT = Context(prec=160, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)


# Characters at either end of a message.
_SHOWN = 400


class ExpressionError(SlicemillError):
    """A value for which an expression has no result: overflow, division by zero, a text that is no number.

    The message is kept in the home and shown, so that it has the ends only of a long value.
    """

    def __init__(self, message: str) -> None:
        left_out = len(message) - 2 * _SHOWN
        if left_out > _SHOWN:
            message = f"{message[:_SHOWN]} … ({left_out} characters) … {message[-_SHOWN:]}"
        super().__init__(message)


# A text may have so many characters, and so may the texts of a column together in a block of rows.
LONGEST_TEXT, MOST_TEXT = 100_000_000, 1 << 30


def check_length(name: str, length: int) -> None:
    """Raise if a function would make a text that is too long."""
    if length > LONGEST_TEXT:
        raise ExpressionError(f"{name} would make a text of {length} characters; {LONGEST_TEXT} are allowed")


def int_checked(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise ExpressionError(f"{value} is out of the range of INT; convert an operand to BIGINT")


def bigint_checked(value: int) -> int:
    if BIGINT_MIN <= value <= BIGINT_MAX:
        return value
    raise ExpressionError(f"{value} is out of the range of 64 bits; convert an operand to DECIMAL or DOUBLE")


def integer_check(type_: Type) -> Callable[[int], int]:
    """INT and MONTHS have 32 bits; all other integers, also times and intervals, have 64."""
    return int_checked if type_.kind in (Kind.INT, Kind.MONTHS) else bigint_checked


def representable(value: object, type_: Type) -> object:
    """The value, or an error if a column of this type cannot hold it."""
    if isinstance(value, int):
        if type_.kind in INTS_32 and not INT_MIN <= value <= INT_MAX:
            raise ExpressionError(f"{value} is out of the range of {type_}")
        if type_.kind in INTS_64 and not BIGINT_MIN <= value <= BIGINT_MAX:
            raise ExpressionError(f"{value} is out of the range of {type_}")
    return value


def wrapped(value: int, bits: int) -> int:
    """An integer as two's complement of so many bits keeps it."""
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
    """The digits of a decimal of this scale, as an integer."""
    return int(value.scaleb(scale, context=EXACT))


def double_text(value: float) -> str:
    """A double as Java prints it.

    >>> double_text(100.0), double_text(1e7), double_text(-0.00025), double_text(float("nan"))
    ('100.0', '1.0E7', '-2.5E-4', 'NaN')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    if len(digits) == 1:  # Java shows two digits at least, also of the smallest numbers, and the nearest ones
        _, digits, exponent = Decimal(f"{abs(value):.1e}").normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent  # digits before the point
    if value == 0:
        return f"{sign}0.0"
    if -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        fraction = text[point:] if point > 0 else "0" * -point + text
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{text[0]}.{text[1:] or '0'}E{point - 1}"
