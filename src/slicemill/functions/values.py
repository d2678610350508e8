"""Values of scalar expressions: range checks, evaluation errors, and number formats.

Values follow Spark: INT and BIGINT are Python ints checked to 32 and 64 bits, DECIMAL is an exact Decimal
with the scale of its type, TIMESTAMP and INTERVAL are microseconds, DATE is days, PERIOD is a tuple
(begin, end, …).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from slicemill.errors import SlicemillError
from slicemill.types import Kind, Type

# Kinds whose values are integers of 32 and of 64 bits.
INTS_32 = (Kind.INT, Kind.DATE, Kind.MONTHS)
INTS_64 = (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL)
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1

# Decimal arithmetic in which sums and products of two decimals of 38 digits are exact.
EXACT = Context(prec=160, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)


# Number of characters shown from either end of a long error message.
_SHOWN = 400


class ExpressionError(SlicemillError):
    """Evaluation error, such as an overflow or a division by zero.

    A long message is cut in the middle, because the message is stored in the home directory.
    """

    def __init__(self, message: str) -> None:
        left_out = len(message) - 2 * _SHOWN
        if left_out > _SHOWN:
            message = f"{message[:_SHOWN]} … ({left_out} characters) … {message[-_SHOWN:]}"
        super().__init__(message)


# Maximum number of characters of one string, and of all strings of a column in one block of rows.
LONGEST_TEXT, MOST_TEXT = 100_000_000, 1 << 30


def check_length(name: str, length: int) -> None:
    """Raise an error if a function's result string is too long."""
    if length > LONGEST_TEXT:
        raise ExpressionError(f"{name} would make a text of {length} characters; {LONGEST_TEXT} are allowed")


def check_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise ExpressionError(f"{value} is out of the range of INT; convert an operand to BIGINT")


def check_bigint(value: int) -> int:
    if BIGINT_MIN <= value <= BIGINT_MAX:
        return value
    raise ExpressionError(f"{value} is out of the range of 64 bits; convert an operand to DECIMAL or DOUBLE")


def integer_check(type_: Type) -> Callable[[int], int]:
    """Return the range check of an integer type.

    The range has 32 bits for INT and MONTHS, and 64 bits for all other types.
    """
    return check_int if type_.kind in (Kind.INT, Kind.MONTHS) else check_bigint


def representable(value: object, type_: Type) -> object:
    """Return the value, or raise if the column type cannot represent the value."""
    if isinstance(value, int):
        if type_.kind in INTS_32 and not INT_MIN <= value <= INT_MAX:
            raise ExpressionError(f"{value} is out of the range of {type_}")
        if type_.kind in INTS_64 and not BIGINT_MIN <= value <= BIGINT_MAX:
            raise ExpressionError(f"{value} is out of the range of {type_}")
    return value


def wrap_integer(value: int, bits: int) -> int:
    """Wrap an integer to two's complement of `bits` bits."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def decimal_fit(type_: Type) -> Callable[[Decimal], Decimal]:
    """Return a function that rounds to a decimal type's scale.

    The function raises if the precision is exceeded.
    """
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


def decimal_digits(value: Decimal, scale: int) -> int:
    """Return the unscaled integer of a decimal with this scale."""
    return int(value.scaleb(scale, context=EXACT))


def double_text(value: float) -> str:
    """Format a double as Java does.

    >>> double_text(100.0), double_text(1e7), double_text(-0.00025), double_text(float("nan"))
    ('100.0', '1.0E7', '-2.5E-4', 'NaN')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    if len(digits) == 1:  # Java prints at least two digits, also for the smallest numbers
        _, digits, exponent = Decimal(f"{abs(value):.1e}").normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent  # number of digits before the decimal point
    if value == 0:
        return f"{sign}0.0"
    if -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        fraction = text[point:] if point > 0 else "0" * -point + text
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{text[0]}.{text[1:] or '0'}E{point - 1}"
