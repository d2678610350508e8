"""Conversion of string columns to a declared type, by vectorized casts.

`converter` of `ingest/formats/records.py` defines the conversion of a single value. Arrow's casts of columns
are several hundred times faster, and have the same results for usual spellings. If Arrow can cast a whole
column, values on which Arrow and `converter` differ (0x1F, nan(1), 2026-01-31 12) are corrected afterwards.
If the cast fails, Arrow casts only texts with a usual spelling, and `converter` converts each distinct other
text once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.arrow_schema import arrow_type
from slicemill.functions.calendar import BLANKS
from slicemill.ingest.formats.records import (
    FALSE_WORDS,
    FIRST_US,
    LAST_US,
    TRUE_WORDS,
    UNIT_US,
    BadValueError,
    converter,
)
from slicemill.types import Kind, TimestampUnit, Type

# Part of a column that Arrow cannot cast is split until at most this number of values is converted one by
# one.
_MOST_EACH = 16
_PIECES = 8
_OFFSET = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-](0[0-9]|1[0-7])(:?[0-5][0-9])?)$"
_PLAIN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_USUAL = {
    Kind.INT: r"^-?[0-9]{1,10}$",
    Kind.BIGINT: r"^-?[0-9]{1,18}$",
    Kind.INTERVAL: r"^-?[0-9]{1,18}$",
    Kind.DOUBLE: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?$",
    Kind.DECIMAL: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$",
    Kind.TIMESTAMP: _PLAIN,
    Kind.DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}
_NAIVE = pa.timestamp("us")
_INSTANT = pa.timestamp("us", tz="UTC")
_YEAR_1 = {_NAIVE: FIRST_US, pa.date32(): -719_162}
# Nanoseconds of each unit of TIMESTAMP.
_UNIT_NS = {unit: 1_000 * us for unit, us in UNIT_US.items()} | {TimestampUnit.NANOS: 1}
_ARROW_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


Cast: TypeAlias = Callable[[pa.Array], pa.Array]


@dataclass(slots=True)
class TypedValues:
    """Column of a declared type, with the errors of bad values.

    `bad` has the error messages by position. The values at these positions are NULL.
    """

    array: pa.Array
    bad: dict[int, str] = field(default_factory=dict)


def never_fails(type_: Type) -> bool:
    """Return True if every string can be converted to the type."""
    return type_.kind in (Kind.VARCHAR, Kind.BINARY) and type_.length is None


def from_texts(texts: pa.Array, type_: Type) -> TypedValues:
    """Convert strings to a declared type; NULL stays NULL.

    >>> from slicemill.types import INT
    >>> found = from_texts(pa.array(["7", " 3.0", "x", None]), INT)
    >>> found.array.to_pylist(), found.bad
    ([7, 3, None, None], {2: "'x' is no INT"})
    """
    if type_.kind is Kind.VARCHAR:
        return _within_length(texts, type_)
    if type_.kind is Kind.BINARY:
        return TypedValues(texts.cast(pa.binary()))
    if type_.kind is Kind.LIST:
        return convert_each(_objects(texts), type_)
    if type_.kind is Kind.BOOLEAN:
        cast, unsure = _booleans(texts)
        return _convert_each_where(unsure, texts, cast, type_)
    if type_.unit is not None:
        return _numbers_and_texts(texts, type_)
    whole = _cast_as_whole(texts, type_)
    if whole is not None:
        return whole
    bare = pc.ascii_trim(texts, characters=BLANKS)
    pattern = _USUAL[type_.kind]
    if type_.kind is Kind.TIMESTAMP:
        zoned = pc.match_substring_regex(bare, _OFFSET)
        if pc.any(zoned).as_py():
            return _in_two(texts, bare, zoned, type_)
    usual = pc.match_substring_regex(bare, pattern)
    regular = pc.if_else(usual, bare, None)
    cast, failed = _cast_in_pieces(regular, type_, lambda part: _cast(part, type_))
    unsure = pc.and_(pc.is_valid(texts), pc.invert(pc.fill_null(usual, False)))
    return _convert_each_where(pc.or_(unsure, failed), texts, cast, type_)


def from_column(column: pa.Array, type_: Type) -> TypedValues:
    """Convert a column of any Arrow type to a declared type.

    >>> from slicemill.types import INT
    >>> found = from_column(pa.array([1.0, 2.5, 2.0**40]), INT)
    >>> found.array.to_pylist(), sorted(found.bad)
    ([1, None, None], [1, 2])
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        return from_texts(column, type_)
    if type_.element is not None:
        return _lists(column, type_, type_.element)
    if pa.types.is_timestamp(column.type):
        if type_.kind is Kind.TIMESTAMP:
            return _instants(column, type_)
        column = column.cast(pa.timestamp(column.type.unit, tz=column.type.tz and "UTC"))
    target = arrow_type(type_)
    if column.type == target:
        return TypedValues(column)
    cast = _cast_of(column.type, type_)
    if cast is None:
        return convert_each(_objects(column), type_)
    found, failed = _cast_in_pieces(column, type_, cast)
    return _within_length_of(found, failed, column, type_)


def _lists(column: pa.Array, type_: Type, element: Type) -> TypedValues:
    """Convert lists by converting all their elements as one column.

    If any element is bad, the lists are converted one by one.
    """
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if not pa.types.is_list(column.type):
        return convert_each(_objects(column), type_)
    elements = from_column(pc.list_flatten(column), element)
    if elements.bad:
        return convert_each(_objects(column), type_)
    ends = np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    mask = column.is_null() if column.null_count else None
    return TypedValues(pa.ListArray.from_arrays(offsets, elements.array, mask=mask))


def convert_each(raw: list[object], type_: Type) -> TypedValues:
    """Convert Python objects one by one, with `converter`."""
    convert = _converter(type_)
    bad: dict[int, str] = {}
    values: list[object] = []
    for position, value in enumerate(raw):
        try:
            values.append(convert(value))
        except BadValueError as problem:
            bad[position] = str(problem)
            values.append(None)
    return TypedValues(arrow_values(values, type_), bad)


_converter = lru_cache(maxsize=100)(converter)


def arrow_values(values: list[object], type_: Type) -> pa.Array:
    """Convert Python values to an Arrow array.

    Times are integers, as in the reference engine.
    """
    return pa.array(values, arrow_type(type_))


def _within_length(texts: pa.Array, type_: Type) -> TypedValues:
    if type_.length is None or not len(texts):
        return TypedValues(texts)
    long = pc.fill_null(pc.greater(pc.utf8_length(texts), type_.length), False)
    return _convert_each_where(long, texts, texts, type_) if pc.any(long).as_py() else TypedValues(texts)


def _convert_each_where(unsure: pa.Array, texts: pa.Array, cast: pa.Array, type_: Type) -> TypedValues:
    """Convert the texts at positions where Arrow's cast may be wrong one by one."""
    positions = np.flatnonzero(unsure.to_numpy(zero_copy_only=False))
    if not len(positions):
        return TypedValues(cast)
    distinct = texts.take(pa.array(positions)).dictionary_encode()
    ruled = convert_each(_objects(distinct.dictionary), type_)
    codes: npt.NDArray[np.int32] = distinct.indices.to_numpy()
    bad = {
        int(position): ruled.bad[code]
        for position, code in zip(positions, codes.tolist(), strict=True)
        if code in ruled.bad
    }
    return TypedValues(_replace_values(cast, unsure, ruled.array.take(distinct.indices)), bad)


def _replace_values(column: pa.Array, mask: pa.Array, values: pa.Array) -> pa.Array:
    if pa.types.is_duration(column.type):  # Arrow cannot replace values of this type
        whole = pa.int64()
        return pc.replace_with_mask(column.cast(whole), mask, values.cast(whole)).cast(column.type)
    return pc.replace_with_mask(column, mask, values)


# -- casts of strings with Arrow --------------------------------------------------------------------------


def _booleans(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    words = pc.ascii_lower(pc.ascii_trim(texts, characters=BLANKS))
    true = pc.is_in(words, pa.array(TRUE_WORDS))
    known = pc.or_(true, pc.is_in(words, pa.array(FALSE_WORDS)))
    return pc.if_else(known, true, None), pc.and_(pc.is_valid(texts), pc.invert(known))


def _cast(texts: pa.Array, type_: Type) -> pa.Array:
    """Cast strings with Arrow; raise ArrowInvalid if the cast of any text fails."""
    if type_.kind in (Kind.TIMESTAMP, Kind.DATE):
        return _from_year_1(texts.cast(_NAIVE if type_.kind is Kind.TIMESTAMP else pa.date32())).cast(
            arrow_type(type_)
        )
    if type_.kind is Kind.INTERVAL:
        return texts.cast(pa.int64()).cast(pa.duration("us"))
    return texts.cast(arrow_type(type_))


def _from_year_1(times: pa.Array) -> pa.Array:
    """Return the times, or raise ArrowInvalid if one is in the year 0.

    The year 0 exists only in Arrow's calendar.
    """
    first = pc.min(times)
    if first.is_valid and first.value < _YEAR_1[times.type]:
        raise pa.ArrowInvalid("there is no year 0")
    return times


def _cast_as_whole(texts: pa.Array, type_: Type) -> TypedValues | None:
    """Cast a whole column with Arrow, then correct values that Arrow converts differently.

    Return None if the cast fails.
    """
    try:
        cast = _cast(texts, type_)
    except pa.ArrowInvalid:
        return _in_utc(texts) if type_.kind is Kind.TIMESTAMP else None
    odd = _ODD[type_.kind](texts, cast)
    return TypedValues(cast) if odd is None else _convert_each_where(odd, texts, cast, type_)


def _in_utc(texts: pa.Array) -> TypedValues | None:
    """Cast timestamps that all end with Z and include minutes.

    Return None for any other column.
    """
    if not pc.all(pc.ends_with(texts, "Z")).as_py() or _odd_lengths(texts, 14) is not None:
        return None
    try:
        return TypedValues(_with_offset(texts))
    except pa.ArrowInvalid:
        return None


def _with_offset(texts: pa.Array) -> pa.Array:
    if pc.any(pc.starts_with(texts, "0000")).as_py():
        raise pa.ArrowInvalid("there is no year 0")
    return texts.cast(_INSTANT)


def _in_two(texts: pa.Array, bare: pa.Array, zoned: pa.Array, type_: Type) -> TypedValues:
    """Convert timestamps with an offset from UTC separately from other timestamps."""
    zoned = pc.fill_null(zoned, False)
    with_offset = pc.if_else(zoned, bare, None)
    cast, failed = _cast_in_pieces(with_offset, type_, _with_offset)
    found = _convert_each_where(failed, texts, cast, type_)
    rest = from_texts(pc.if_else(zoned, None, texts), type_)
    return TypedValues(pc.if_else(zoned, found.array, rest.array), {**found.bad, **rest.bad})


def _numbers_and_texts(texts: pa.Array, type_: Type) -> TypedValues:
    """Convert timestamps that are spelled as numbers separately from other timestamps."""
    bare = pc.ascii_trim(texts, characters=BLANKS)
    whole = pc.fill_null(pc.match_substring_regex(bare, _USUAL[Kind.BIGINT]), False)
    numbers = from_column(pc.if_else(whole, bare, None).cast(pa.int64()), type_)
    if numbers.array.null_count == texts.null_count:
        return numbers
    plain = from_texts(pc.if_else(whole, None, texts), replace(type_, unit=None))
    unsure = np.zeros(len(texts), np.bool_)
    unsure[[*numbers.bad, *plain.bad]] = True  # converted again, because error messages must contain the text
    return _convert_each_where(pa.array(unsure), texts, pc.if_else(whole, numbers.array, plain.array), type_)


def _cast_in_pieces(column: pa.Array, type_: Type, cast: Cast) -> tuple[pa.Array, pa.Array]:
    """Cast all values that Arrow can cast.

    Also return a mask of the values that remain to be converted one by one.
    """
    failed = np.zeros(len(column), np.bool_)

    def piece(first: int, length: int) -> pa.Array:
        part = column.slice(first, length)
        try:
            return cast(part)
        except pa.ArrowInvalid:
            if length <= _MOST_EACH:
                failed[first : first + length] = part.is_valid().to_numpy(False)
                return pa.nulls(length, arrow_type(type_))
        step = -(-length // _PIECES)
        parts = [piece(first + n, min(step, length - n)) for n in range(0, length, step)]
        return pa.concat_arrays(parts)

    return piece(0, len(column)), pa.array(failed)


# -- conversion of typed columns --------------------------------------------------------------------------


def _cast_of(source: pa.DataType, type_: Type) -> Cast | None:
    """Return Arrow's cast between two types.

    Return None if the results of the cast would differ from those of `converter`.
    """
    target = arrow_type(type_)
    kind = type_.kind
    if pa.types.is_integer(source):
        if kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.VARCHAR):
            return lambda part: part.cast(target)
        if kind is Kind.INTERVAL:
            return lambda part: part.cast(pa.int64()).cast(target)
        if type_.unit is not None:
            return partial(_from_numbers, unit=type_.unit)
        if kind is Kind.DOUBLE:
            return lambda part: part.cast(target, safe=False)
    if pa.types.is_floating(source) and kind is Kind.DOUBLE:
        return lambda part: part.cast(target)
    if pa.types.is_decimal(source) and kind is Kind.DECIMAL:
        return partial(_rescale_decimals, target=target)
    if pa.types.is_date(source) and kind is Kind.DATE:
        return lambda part: part.cast(target)
    return None


def _rescale_decimals(decimals: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Change the precision and scale of decimals.

    Arrow's cast does not detect values with more than 38 digits.
    """
    digits = target.precision - target.scale
    if decimals.type.precision - decimals.type.scale > digits:
        limit = pa.scalar(Decimal(10) ** digits, decimals.type)
        if pc.any(pc.greater_equal(pc.abs(decimals), limit)).as_py():
            raise pa.ArrowInvalid("this has too many digits")
    return decimals.cast(target)


def _from_numbers(numbers: pa.Array, unit: TimestampUnit) -> pa.Array:
    """Convert numbers to timestamps; raise ArrowInvalid outside the years 1 to 9999."""
    numbers = numbers.cast(pa.int64())
    if len(_outside(numbers, _UNIT_NS[unit])):
        raise pa.ArrowInvalid("this is no time")
    return _at(numbers, _UNIT_NS[unit])


def _instants(column: pa.Array, type_: Type) -> TypedValues:
    """Convert timestamps of any unit to timestamps in UTC.

    Timestamps without a time zone are in UTC. Fractions of a microsecond are truncated. Values are converted
    as integers, so that the result of a row depends neither on other rows nor on Python's calendar.
    """
    numbers, unit_ns = column.cast(pa.int64()), _ARROW_NS[column.type.unit]
    outside = _outside(numbers, unit_ns)
    if not len(outside):
        return TypedValues(column if column.type == _INSTANT else _at(numbers, unit_ns))
    spelled = f"{column.type.unit} since 1970' is no {type_}"
    bad = {index: f"'{numbers[index].as_py()} {spelled}" for index in outside.tolist()}
    fits = np.ones(len(column), np.bool_)
    fits[outside] = False
    return TypedValues(_at(pc.if_else(pa.array(fits), numbers, None), unit_ns), bad)


def _outside(numbers: pa.Array, unit_ns: int) -> npt.NDArray[np.int64]:
    """Return the positions of numbers outside the years 1 to 9999."""
    first, last = -(-FIRST_US * 1_000 // unit_ns), (LAST_US * 1_000 + 999) // unit_ns
    ends = pc.min_max(numbers)
    if not ends["min"].is_valid or (ends["min"].as_py() >= first and ends["max"].as_py() <= last):
        return np.empty(0, np.int64)
    low = pc.less(numbers, max(first, -(2**63)))
    high = pc.greater(numbers, min(last, 2**63 - 1))
    return np.flatnonzero(pc.fill_null(pc.or_(low, high), False).to_numpy(zero_copy_only=False))


def _at(numbers: pa.Array, unit_ns: int) -> pa.Array:
    """Convert numbers in a unit of nanoseconds to timestamps."""
    if unit_ns == 1:
        values = numbers.fill_null(0).to_numpy(zero_copy_only=False) // 1_000
        return pa.array(values, mask=numbers.is_null().to_numpy(zero_copy_only=False)).cast(_INSTANT)
    return pc.multiply(numbers, unit_ns // 1_000).cast(_INSTANT)


def _objects(column: pa.Array) -> list[object]:
    try:
        objects: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        objects = column.cast(
            pa.string()
        ).to_pylist()  # texts, because Python's calendar ends in the year 9999
    return objects


def _within_length_of(found: pa.Array, failed: pa.Array, column: pa.Array, type_: Type) -> TypedValues:
    if type_.length is not None:
        failed = pc.or_(failed, pc.fill_null(pc.greater(pc.utf8_length(found), type_.length), False))
    return _convert_each_where(failed, column, found, type_)


# -- texts that only Arrow accepts, or that Arrow converts differently ------------------------------------


def _any(mask: pa.Array) -> pa.Array | None:
    mask = pc.fill_null(mask, False)
    return mask if pc.any(mask).as_py() else None


def _has_byte(texts: pa.Array, characters: bytes) -> bool:
    buffer = texts.buffers()[2]
    if buffer is None:
        return False
    data = buffer.to_pybytes()
    return any(character in data for character in characters)


def _odd_integers(texts: pa.Array, cast: pa.Array) -> pa.Array | None:
    del cast
    # Only Arrow accepts hexadecimal numbers such as 0x1F.
    return _any(pc.match_substring_regex(texts, "[xX]")) if _has_byte(texts, b"xX") else None


def _odd_doubles(texts: pa.Array, cast: pa.Array) -> pa.Array | None:
    # Only Arrow accepts -nan, nan(1) and exponents of four digits.
    odd = pc.invert(pc.is_finite(cast))
    if _has_byte(texts, b"eE"):
        odd = pc.or_kleene(odd, pc.match_substring_regex(texts, "[eE][+-]?[0-9]{4,}"))
    return _any(odd)


def _odd_instants(texts: pa.Array, cast: pa.Array) -> pa.Array | None:
    del cast
    return _odd_lengths(texts, 13)


def _odd_lengths(texts: pa.Array, length: int) -> pa.Array | None:
    """Return a mask of texts of this length, or None without such texts.

    The length is that of a timestamp with hours but no minutes, which only Arrow accepts.
    """
    return _any(pc.equal(pc.binary_length(texts), length))


def _none_odd(texts: pa.Array, cast: pa.Array) -> pa.Array | None:
    del texts, cast
    return None


_ODD: dict[Kind, Callable[[pa.Array, pa.Array], pa.Array | None]] = {
    Kind.INT: _odd_integers,
    Kind.BIGINT: _odd_integers,
    Kind.INTERVAL: _odd_integers,
    Kind.DOUBLE: _odd_doubles,
    Kind.DECIMAL: lambda texts, _: (
        _any(pc.match_substring_regex(texts, "[eE]")) if _has_byte(texts, b"eE") else None
    ),
    Kind.TIMESTAMP: _odd_instants,
    Kind.DATE: _none_odd,
}
