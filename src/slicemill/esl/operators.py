"""Types of arithmetic: numbers as in Spark, timestamps and intervals as in SQL.

Division of integers is fractional, as in Spark and DuckDB; DIV is the whole one.
"""

from __future__ import annotations

from slicemill.esl import types as t
from slicemill.esl.functions import remainder_type
from slicemill.esl.types import MAX_DECIMAL_PRECISION, Kind, Type

MIN_ADJUSTED_SCALE = 6

_TIME = (Kind.TIMESTAMP, Kind.DATE)


def arithmetic_type(operator: str, left: Type, right: Type) -> Type | None:
    """The type of `left operator right`, or None where it means nothing."""
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
        return t.BIGINT
    if operator in ("&", "|", "^"):
        return t.common(left, right) if t.is_integer(left) and t.is_integer(right) else None
    kinds = {left.kind, right.kind}
    if Kind.DOUBLE in kinds or (operator == "/" and Kind.DECIMAL not in kinds):
        return t.DOUBLE
    if operator == "%":
        return remainder_type(left, right)
    if Kind.DECIMAL in kinds and Kind.NULL not in kinds:
        return _decimal_type(operator, t.as_decimal(left), t.as_decimal(right))
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
    """Fit into 38 digits: keep the whole part, give up digits behind the point down to six."""
    if precision <= MAX_DECIMAL_PRECISION:
        return t.decimal(precision, scale)
    whole = precision - scale
    return t.decimal(
        MAX_DECIMAL_PRECISION, max(MAX_DECIMAL_PRECISION - whole, min(scale, MIN_ADJUSTED_SCALE))
    )


def _time_type(operator: str, left: Type, right: Type) -> Type | None:
    if left.kind in _TIME and right.kind in _TIME:
        return t.INTERVAL if operator == "-" else None
    if left.kind is Kind.DATE and t.is_integer(right):
        return t.DATE
    if left.kind in _TIME and right.kind is Kind.INTERVAL:
        return t.TIMESTAMP
    if left.kind in _TIME and right.kind is Kind.MONTHS:
        return left
    if operator == "+" and right.kind in _TIME:
        return _time_type("+", right, left) if left.kind in (Kind.INTERVAL, Kind.MONTHS) else None
    if left.kind is right.kind and left.kind in (Kind.INTERVAL, Kind.MONTHS):
        return left
    if Kind.NULL in (left.kind, right.kind):
        return right if left.kind is Kind.NULL else left
    return None


def castable(source: Type, target: Type) -> bool:
    """May CAST be asked for? Whether a given value converts shows at run time."""
    if Kind.NULL in (source.kind,) or Kind.ANY in (source.kind, target.kind) or source.kind is target.kind:
        return True
    if target.kind is Kind.VARCHAR:
        return source.kind is not Kind.PERIOD
    if source.kind is Kind.VARCHAR:
        return target.kind not in (Kind.PERIOD, Kind.MONTHS, Kind.INTERVAL)
    if source.kind in _TIME and target.kind in _TIME:
        return True
    numberlike = {Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE}
    if source.kind in numberlike and target.kind in numberlike | {Kind.BOOLEAN, Kind.TIMESTAMP}:
        return True
    return source.kind in (Kind.BOOLEAN, Kind.TIMESTAMP) and target.kind in numberlike
