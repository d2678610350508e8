"""Encoders of tables for clients: JSON, Arrow or CSV."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from slicemill.columns.arrow_schema import TS, as_results, from_arrow
from slicemill.columns.rows import column_values, with_unique_names
from slicemill.connectors.sinks.json_values import plain
from slicemill.storage.log import Epoch, Log
from slicemill.types import BINARY, DATE, DOUBLE, TIMESTAMP, Kind, Type

_AS_IT_IS = (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.VARCHAR)

JSON, ARROW, CSV = "application/json", "application/vnd.apache.arrow.stream", "text/csv"


_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_of_epoch(rows: EpochRows) -> str:
    """Return the rows of an epoch (commit) as JSON, in the format of `json_rows`."""
    names = rows.layout.names
    columns = [
        values if type_.kind in _AS_IT_IS else [plain(value, type_) for value in values]
        for values, type_ in zip(rows.columns, rows.layout.types, strict=True)
    ]
    return _encode_json([dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)])


def json_rows(table: pa.Table) -> str:
    """Return the rows of a table as a JSON array of objects.

    Timestamps are ISO 8601 text, and intervals are microseconds (`json_values`). If two columns have the
    same name, the second is renamed.

    >>> json_rows(pa.table([[1], [2]], names=["n", "n"]))
    '[{"n": 1, "n_1": 2}]'
    """
    columns = [_json_values(column) for column in table.columns]
    names = with_unique_names(table).column_names
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return _encode_json(rows)


def _json_values(column: pa.ChunkedArray) -> list[object]:
    return [value for chunk in column.chunks for value in json_values(chunk)]


def arrow_stream(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def csv_text(table: pa.Table) -> bytes:
    """Return a table as CSV with a header.

    Types without a CSV form are written as JSON text.
    """
    sink = pa.BufferOutputStream()
    shown = [
        column if _fits_csv(field.type) else pa.array(map(_as_text, _json_values(column)), pa.string())
        for column, field in zip(table.columns, table.schema, strict=True)
    ]
    pa_csv.write_csv(pa.table(shown, names=table.column_names), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _fits_csv(kind: pa.DataType) -> bool:
    plain_types = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_floating)
    return any(fits(kind) for fits in plain_types)


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else _encode_json(value)


ENCODERS: Mapping[str, Callable[[pa.Table], bytes]] = {
    JSON: lambda table: json_rows(table).encode(),
    ARROW: arrow_stream,
    CSV: csv_text,
}


# JSON values of Arrow columns of any type
#
# Ad hoc queries run in DuckDB, which has more types than slicemill: nested lists, structs, maps, intervals
# with months, times of day. Timestamps are never converted to `datetime`, because Python supports only the
# years 1 to 9999 and no infinity.


_LAST_US = (1 << 63) - 1
_LAST_DAY = (1 << 31) - 1
_DAY_US = 86_400_000_000


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_interval(kind: pa.DataType) -> bool:
    """Return True for DuckDB intervals of months, days and nanoseconds."""
    return bool(kind == pa.month_day_nano_interval())


def raw_values(array: pa.Array) -> list[Any]:
    """Return the values of a column, with timestamps as microseconds and dates as days.

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
    """Return the values of a column in their JSON form (see `connectors.sinks.json_values`)."""
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
        names = tuple(kind.field(index).name for index in range(kind.num_fields))
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


# Rows of an epoch for live results, read once for all encodings.
#
# An epoch (commit) of a live query often has only one or two rows, and there are many epochs per second. So
# values are extracted from their Arrow columns only once. Timestamps and intervals stay integers of
# microseconds, as in the engine. `table` returns the rows as an Arrow table.


_VIEWED = {Kind.TIMESTAMP: pa.int64(), Kind.INTERVAL: pa.int64(), Kind.DATE: pa.int32()}


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Names and types of the columns of a query's results, with the timestamp first."""

    names: tuple[str, ...]
    types: tuple[Type, ...]

    @staticmethod
    def of(columns: pa.Schema) -> RowLayout:
        schema = from_arrow(columns)
        return RowLayout((TS, *schema.names), (TIMESTAMP, *(column.type for column in schema)))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(type_.kind for type_ in self.types)


@dataclass(frozen=True)
class EpochRows:
    """Rows of an epoch (commit). `columns` has a list of values for each column of the layout."""

    layout: RowLayout
    columns: Sequence[Sequence[object]]
    _stored: pa.Table

    @staticmethod
    def read(log: Log, epoch: Epoch, layout: RowLayout) -> EpochRows:
        stored = log.read(epoch)
        columns = [
            _values(stored.column(name), type_)
            for name, type_ in zip(layout.names, layout.types, strict=True)
        ]
        return EpochRows(layout, columns, stored)

    @cached_property
    def table(self) -> pa.Table:
        """The rows as an Arrow table in the form that clients receive."""
        return as_results(self._stored)


def _values(column: pa.ChunkedArray, type_: Type) -> Sequence[object]:
    viewed = _VIEWED.get(type_.kind)
    if viewed is not None and column.num_chunks == 1:  # cast() would take ten times as long as view()
        chunk = column.chunk(0)
        found: list[object] = (chunk if chunk.type == viewed else chunk.view(viewed)).to_pylist()
        return found
    return column_values(column, type_)
