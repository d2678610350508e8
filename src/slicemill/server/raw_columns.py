"""JSON values of Arrow columns of any type.

Tables and queries have ESL types. Ad hoc queries run in DuckDB, which has more types: nested lists, structs,
maps, intervals with months, times of day. Timestamps are never converted to `datetime`, because Python
supports only the years 1 to 9999 and no infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.connectors.sinks.json_values import plain
from slicemill.esl.types.schema import BINARY, DATE, DOUBLE, TIMESTAMP

_LAST_US = (1 << 63) - 1
_LAST_DAY = (1 << 31) - 1
_DAY_US = 86_400_000_000


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_interval(kind: pa.DataType) -> bool:
    """Return True for DuckDB intervals of months, days and nanoseconds."""
    return bool(kind == pa.month_day_nano_interval())


def raw_values(array: pa.Array) -> list[Any]:
    """Return values with timestamps as microseconds and dates as days.

    Infinite timestamps and dates are the largest integers.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return raw_values(array.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return cast(list[Any], _microseconds(array, kind).to_pylist())
    if pa.types.is_duration(kind):
        return cast(list[Any], array.cast(pa.duration("us"), safe=False).cast(pa.int64()).to_pylist())
    if pa.types.is_date32(kind):
        return cast(list[Any], array.cast(pa.int32()).to_pylist())
    return cast(list[Any], array.to_pylist())


def _microseconds(array: pa.Array, kind: pa.DataType) -> pa.Array:
    whole = array.cast(pa.int64())
    if kind.unit == "us":
        return whole
    if kind.unit == "ns":
        found = array.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
    else:
        found = pc.multiply(whole, 1_000 if kind.unit == "ms" else 1_000_000)
    found = pc.if_else(pc.equal(whole, _LAST_US), _LAST_US, found)
    return pc.if_else(pc.equal(whole, -_LAST_US), -_LAST_US, found)


def lists_of(array: pa.Array, convert: Callable[[pa.Array], list[Any]]) -> list[list[Any] | None]:
    """Return the lists of a column. The elements of all lists are converted in one call."""
    elements = convert(array.flatten())
    found: list[list[Any] | None] = []
    start = 0
    for length in pc.list_value_length(array).to_pylist():
        found.append(None if length is None else elements[start : start + length])
        start += length or 0
    return found


def json_values(array: pa.Array) -> list[object]:
    """Return values in their JSON form (see `connectors.sinks.json_values`)."""
    kind = array.type
    if is_list(kind):
        return cast(list[object], lists_of(array, json_values))
    if pa.types.is_map(kind):
        pairs = lists_of(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))), json_values)
        names = kind.key_field.name, kind.item_field.name
        return [
            None if entries is None else {_key(one[names[0]]): one[names[1]] for one in entries}
            for entries in pairs
        ]
    if pa.types.is_struct(kind):
        names = tuple(kind.field(place).name for place in range(kind.num_fields))
        fields = [json_values(field) for field in array.flatten()]
        rows = zip(*fields, strict=True) if fields else [()] * len(array)
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if is_there else None
            for row, is_there in zip(rows, valid, strict=True)
        ]
    return [None if value is None else _json_value(value, kind) for value in raw_values(array)]


def _key(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _json_value(value: Any, kind: pa.DataType) -> object:
    if pa.types.is_timestamp(kind):
        return _infinite(value, _LAST_US) or plain(value, TIMESTAMP)
    if pa.types.is_date32(kind):
        return _infinite(value, _LAST_DAY) or plain(value, DATE)
    if pa.types.is_floating(kind):
        return plain(value, DOUBLE)
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if isinstance(value, bytes):
        return plain(value, BINARY)
    if is_interval(kind):
        months, days, nanoseconds = value
        return interval_text(value) if months else days * _DAY_US + nanoseconds // 1_000
    return value if isinstance(value, (bool, int, str)) else str(value)


def _infinite(value: int, last: int) -> str | None:
    return {last: "infinity", -last: "-infinity"}.get(value)


def interval_text(value: tuple[int, int, int]) -> str:
    """Return an interval of months, days and nanoseconds as PostgreSQL writes it.

    >>> interval_text((14, -3, 4_500_000_000))
    '1 year 2 mons -3 days +00:00:04.5'
    """
    months, days, nanoseconds = value
    sign_of_months = 1 if months > 0 else -1
    years, months = (sign_of_months * part for part in divmod(abs(months), 12))
    parts: list[str] = []
    negative = False
    for number, word in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            sign = "+" if negative and number > 0 else ""
            parts.append(f"{sign}{number} {word}{'' if number == 1 else 's'}")
            negative = number < 0
    if nanoseconds or not parts:
        seconds, micros = divmod(abs(nanoseconds) // 1_000, 1_000_000)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        sign = "-" if nanoseconds < 0 else "+" if negative else ""
        part = f".{micros:06d}".rstrip("0") if micros else ""
        parts.append(f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{part}")
    return " ".join(parts)


def with_unique_names(table: pa.Table) -> pa.Table:
    """Rename columns so that names are unique, as JSON objects require: `n`, `n_1`.

    >>> with_unique_names(pa.table([[1], [2], [3]], names=["n", "n", "n_1"])).column_names
    ['n', 'n_2', 'n_1']
    """
    names = table.column_names
    taken, found = set(names), list[str]()
    for name in names:
        unique, number = name, 0
        while unique in found or (number and unique in taken):
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return table.rename_columns(found)
