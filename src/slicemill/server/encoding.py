"""Encoders of tables for clients: JSON, Arrow or CSV."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.csv as pa_csv

from slicemill.connectors.sinks.json_values import plain
from slicemill.esl.types.schema import Kind
from slicemill.server.epoch_rows import EpochRows
from slicemill.server.raw_columns import json_values, with_unique_names

_AS_IT_IS = (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.VARCHAR)

JSON, ARROW, CSV = "application/json", "application/vnd.apache.arrow.stream", "text/csv"


_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_of_epoch(rows: EpochRows) -> str:
    """Return the rows of an epoch as JSON, in the format of `json_rows`."""
    names = rows.layout.names
    columns = [
        values if type_.kind in _AS_IT_IS else [plain(value, type_) for value in values]
        for values, type_ in zip(rows.columns, rows.layout.types, strict=True)
    ]
    return _encode_json([dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)])


def json_rows(table: pa.Table) -> str:
    """Return the rows as a JSON array of objects.

    Timestamps are ISO 8601 text, intervals are microseconds (`json_values`). If two columns have the same
    name, the second one is renamed.

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
    """Return the table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def csv_text(table: pa.Table) -> bytes:
    """Return the table as CSV with a header. Types that CSV does not support are written as JSON text."""
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
