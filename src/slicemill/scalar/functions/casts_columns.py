"""Conversions over whole columns. A text or number in an uncommon form is left to the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.calendar_columns import DAY_US, SECOND_US
from slicemill.scalar.decimals import NARROW, from_unscaled, unscaled
from slicemill.scalar.functions.arithmetic_columns import narrowed, times
from slicemill.scalar.kernel import Kernel, Out, Strict, Unfit
from slicemill.scalar.vectors import Mask, Numbers, arrow_type, dtype_of, numbers

_EXACT_DOUBLE = 2**53  # up to here whole numbers and doubles are the same
_WHOLE = r"\A-?[0-9]{1,9}\z"
_LONG_WHOLE = r"\A-?[0-9]{1,18}\z"
_REAL = r"\A-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,3})?\z"
_DATE = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_TIMESTAMP = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\z"


def cast_kernel(source: Type, target: Type) -> Kernel | None:
    """None where only the reference converts."""
    function = _function(source, target)
    return None if function is None else Kernel(function, patches=True)


def _function(source: Type, target: Type) -> Strict | None:
    if target.kind is Kind.VARCHAR and target.length is not None:
        if source.kind is not Kind.VARCHAR:
            return None
        length = target.length
        return lambda text: pc.utf8_slice_codeunits(text, 0, length)
    if target.kind is Kind.DECIMAL:
        return _to_decimal(source, target)
    if source.kind is target.kind:
        return lambda value: value
    if source.kind is Kind.DECIMAL:
        return _from_decimal(source, target.kind)
    return _CONVERSIONS.get((source.kind, target.kind))


def _as(kind: Kind) -> Strict:
    dtype = dtype_of(Type(kind))
    return lambda value: value.astype(dtype)


def _not_zero(value: Numbers) -> Mask:
    return np.asarray(value != 0)


def _scaled(unit: int) -> Strict:
    factor = np.asarray(unit, np.int64)
    return lambda value: times(value.astype(np.int64), factor)


def _truncated(limit: float, dtype: type[np.generic]) -> Strict:
    """Doubles to whole numbers; what is near the limit is left to the reference."""
    return lambda value: Out(value.astype(dtype), unsure=~(np.abs(value) < limit))


def _double_to_timestamp(value: Numbers) -> Out:
    us = value * SECOND_US
    return Out(us.astype(np.int64), unsure=~(np.abs(us) < 2.0**63))


def _timestamp_to_double(us: Numbers) -> Out:
    return Out(us / SECOND_US, unsure=(us > _EXACT_DOUBLE) | (us < -_EXACT_DOUBLE))


def _seconds_of(us: Numbers) -> Numbers:
    return us // SECOND_US


# -- texts ------------------------------------------------------------------------------------------------


def _texts(value: Numbers) -> pa.Array:
    return pc.cast(pa.array(value), pa.string())


def _parsed(pattern: str, target: pa.DataType) -> Strict:
    """Texts of the usual form by Arrow, the others by the reference."""

    def parse(text: pa.Array) -> Out:
        usual = pc.match_substring_regex(text, pattern)
        known = pc.all(usual).as_py() is not False
        try:
            found = pc.cast(text if known else pc.if_else(usual, text, None), target)
        except pa.ArrowInvalid:
            raise Unfit from None  # such as the 30th of February
        return Out(numbers(found), unsure=None if known else ~numbers(usual))

    return parse


# -- decimals ---------------------------------------------------------------------------------------------


def _to_decimal(source: Type, target: Type) -> Strict | None:
    assert target.precision is not None and target.scale is not None
    if source.kind is Kind.DECIMAL:
        assert source.scale is not None
        return _rescaled(arrow_type(target)) if target.scale >= source.scale else None
    if source.kind not in (Kind.INT, Kind.BIGINT, Kind.BOOLEAN) or target.scale > NARROW:
        return None
    power = np.asarray(10**target.scale, np.int64)
    whole_digits = min(target.precision - target.scale, NARROW)
    limit = 10**whole_digits

    def from_whole(value: Numbers) -> Out:
        wide = value.astype(np.int64)
        out = times(wide, power).doubting((wide >= limit) | (wide <= -limit))
        return out._replace(data=from_unscaled(out.data, target))

    return from_whole


def _rescaled(target: pa.DataType) -> Strict:
    def rescale(value: pa.Array) -> pa.Array:
        try:
            return pc.cast(value, target)
        except pa.ArrowInvalid:
            raise Unfit from None

    return rescale


def _from_decimal(source: Type, kind: Kind) -> Strict | None:
    assert source.scale is not None
    if source.scale > NARROW:
        return None
    power = 10**source.scale

    def to_double(value: pa.Array) -> Out:
        digits, wide = unscaled(value)
        # Both exact, so that the quotient is rounded once.
        return Out(digits / float(power), unsure=wide | (digits > _EXACT_DOUBLE) | (digits < -_EXACT_DOUBLE))

    def to_boolean(value: pa.Array) -> Mask:
        digits, wide = unscaled(value)
        return np.asarray((digits != 0) | wide)

    def to_bigint(value: pa.Array) -> Out:
        digits, wide = unscaled(value)
        floor = digits // power
        return Out(floor + ((digits < 0) & (floor * power != digits)), unsure=wide)

    def to_int(value: pa.Array) -> Out:
        whole = to_bigint(value)
        return narrowed(whole.data, whole.unsure)

    conversions: dict[Kind, Callable[[pa.Array], Any]] = {
        Kind.DOUBLE: to_double,
        Kind.BOOLEAN: to_boolean,
        Kind.BIGINT: to_bigint,
        Kind.INT: to_int,
    }
    return conversions.get(kind)


_CONVERSIONS: dict[tuple[Kind, Kind], Strict] = {
    (Kind.INT, Kind.BIGINT): _as(Kind.BIGINT),
    (Kind.INT, Kind.DOUBLE): _as(Kind.DOUBLE),
    (Kind.INT, Kind.BOOLEAN): _not_zero,
    (Kind.INT, Kind.TIMESTAMP): _scaled(SECOND_US),
    (Kind.INT, Kind.VARCHAR): _texts,
    (Kind.BIGINT, Kind.INT): narrowed,
    (Kind.BIGINT, Kind.DOUBLE): _as(Kind.DOUBLE),
    (Kind.BIGINT, Kind.BOOLEAN): _not_zero,
    (Kind.BIGINT, Kind.TIMESTAMP): _scaled(SECOND_US),
    (Kind.BIGINT, Kind.VARCHAR): _texts,
    (Kind.DOUBLE, Kind.INT): _truncated(2.0**31 - 1, np.int32),
    (Kind.DOUBLE, Kind.BIGINT): _truncated(2.0**63, np.int64),
    (Kind.DOUBLE, Kind.BOOLEAN): _not_zero,
    (Kind.DOUBLE, Kind.TIMESTAMP): _double_to_timestamp,
    (Kind.BOOLEAN, Kind.INT): _as(Kind.INT),
    (Kind.BOOLEAN, Kind.BIGINT): _as(Kind.BIGINT),
    (Kind.BOOLEAN, Kind.DOUBLE): _as(Kind.DOUBLE),
    (Kind.BOOLEAN, Kind.VARCHAR): _texts,
    (Kind.VARCHAR, Kind.INT): _parsed(_WHOLE, pa.int32()),
    (Kind.VARCHAR, Kind.BIGINT): _parsed(_LONG_WHOLE, pa.int64()),
    (Kind.VARCHAR, Kind.DOUBLE): _parsed(_REAL, pa.float64()),
    (Kind.VARCHAR, Kind.DATE): _parsed(_DATE, pa.date32()),
    (Kind.VARCHAR, Kind.TIMESTAMP): _parsed(_TIMESTAMP, pa.timestamp("us")),
    (Kind.TIMESTAMP, Kind.DATE): lambda us: (us // DAY_US).astype(np.int32),
    (Kind.TIMESTAMP, Kind.INT): lambda us: narrowed(_seconds_of(us)),
    (Kind.TIMESTAMP, Kind.BIGINT): _seconds_of,
    (Kind.TIMESTAMP, Kind.DOUBLE): _timestamp_to_double,
    (Kind.DATE, Kind.TIMESTAMP): _scaled(DAY_US),
}
