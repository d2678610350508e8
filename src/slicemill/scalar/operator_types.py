"""Result types of arithmetic operators.

Numbers have the types of Spark, times and intervals those of standard SQL.

`/` of integers is fractional, as in Spark and DuckDB. DIV is integer division and rejects DOUBLE.
"""

from __future__ import annotations

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import MAX_DECIMAL_PRECISION, Kind, Type
from slicemill.scalar.signatures import remainder_type

MIN_ADJUSTED_SCALE = 6

_TIME = (Kind.TIMESTAMP, Kind.DATE)


def arithmetic_type(operator: str, left: Type, right: Type) -> Type | None:
    """Return the type of `left operator right`.

    Return None if the operands are invalid.
    """
    if Kind.ANY in (left.kind, right.kind):
        return t.ANY
    if t.is_numeric(left) and t.is_numeric(right):
        return _number_type(operator, left, right)
    if operator in ("+", "-"):
        return _time_type(operator, left, right)
    if left.kind is Kind.INTERVAL and t.is_numeric(right) and operator in ("*", "/"):
        return t.INTERVAL
    if right.kind is Kind.INTERVAL and t.is_numeric(left) and operator == "*":
        return t.INTERVAL
    return None


def _number_type(operator: str, left: Type, right: Type) -> Type | None:
    if operator == "div":
        return None if Kind.DOUBLE in (left.kind, right.kind) else t.BIGINT
    if operator in ("&", "|", "^"):
        return t.common(left, right) if t.is_integer(left) and t.is_integer(right) else None
    kinds = {left.kind, right.kind}
    if Kind.DOUBLE in kinds or (operator == "/" and (Kind.DECIMAL not in kinds or left.kind is Kind.NULL)):
        return t.DOUBLE
    if operator == "%":
        return remainder_type(left, right)
    if Kind.DECIMAL in kinds:
        # A bare NULL has the type of the other operand.
        a = right if left.kind is Kind.NULL else left
        b = left if right.kind is Kind.NULL else right
        return _decimal_type(operator, t.as_decimal(a), t.as_decimal(b))
    return t.common(left, right)


def _decimal_type(operator: str, a: Type, b: Type) -> Type:
    assert a.precision is not None and a.scale is not None
    assert b.precision is not None and b.scale is not None
    if operator in ("+", "-"):
        scale = max(a.scale, b.scale)
        return adjusted(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
    if operator == "*":
        return adjusted(a.precision + b.precision + 1, a.scale + b.scale)
    scale = max(MIN_ADJUSTED_SCALE, a.scale + b.precision + 1)
    return adjusted(a.precision - a.scale + b.scale + scale, scale)


def adjusted(precision: int, scale: int) -> Type:
    """Limit a decimal type to 38 digits.

    Drop fractional digits first, down to six.
    """
    if precision <= MAX_DECIMAL_PRECISION:
        return t.decimal(precision, scale)
    whole = precision - scale
    return t.decimal(
        MAX_DECIMAL_PRECISION, max(MAX_DECIMAL_PRECISION - whole, min(scale, MIN_ADJUSTED_SCALE))
    )


def _time_type(operator: str, left: Type, right: Type) -> Type | None:
    if left.kind in _TIME and right.kind in _TIME:
        return t.INTERVAL if operator == "-" else None
    if left.kind is Kind.DATE and right.kind is Kind.INT:
        return t.DATE
    if left.kind in _TIME and right.kind is Kind.INTERVAL:
        return t.TIMESTAMP
    if left.kind in _TIME and right.kind is Kind.MONTHS:
        return left
    if operator == "+" and right.kind in _TIME and left.kind in (Kind.INT, Kind.INTERVAL, Kind.MONTHS):
        return _time_type("+", right, left)
    if left.kind is right.kind and left.kind in (Kind.INTERVAL, Kind.MONTHS):
        return left
    if Kind.NULL in (left.kind, right.kind):
        known = right if left.kind is Kind.NULL else left
        if known.kind in _TIME:
            return t.TIMESTAMP if operator == "+" else t.INTERVAL
        return known if known.kind in (Kind.INTERVAL, Kind.MONTHS) else None
    return None


def castable(source: Type, target: Type) -> bool:
    """Return True if CAST is allowed between the types.

    A value may still fail at run time.
    """
    if Kind.NULL in (source.kind,) or Kind.ANY in (source.kind, target.kind) or source.kind is target.kind:
        return Kind.LIST not in (source.kind, target.kind) or source == target
    if target.kind is Kind.VARCHAR:
        return source.kind not in (Kind.PERIOD, Kind.LIST)
    if source.kind is Kind.VARCHAR:
        return target.kind not in (Kind.PERIOD, Kind.MONTHS, Kind.INTERVAL)
    if source.kind in _TIME and target.kind in _TIME:
        return True
    numberlike = {Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE}
    if source.kind in numberlike and target.kind in numberlike | {Kind.BOOLEAN, Kind.TIMESTAMP}:
        return True
    return source.kind in (Kind.BOOLEAN, Kind.TIMESTAMP) and target.kind in numberlike
