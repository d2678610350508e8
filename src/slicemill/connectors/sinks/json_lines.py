"""`json:folder`: one file of JSON lines per delivered range of epochs.

Files that appear whole need no commit marker, and readers never see half a line; that is why the sink writes
a folder instead of one growing file. `cat folder/*.jsonl` concatenates them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from slicemill.columns.rows import column_values
from slicemill.connectors.sinks.json_values import plain
from slicemill.esl.types.schema import TIMESTAMP, Schema, Type
from slicemill.storage.arrow_schema import TS, from_arrow

SUFFIX = "jsonl"

_NO_HEAD: Mapping[str, str] = {}


def encode(table: pa.Table) -> bytes:
    """Encode rows as JSON objects; `json_values` converts types."""
    types = {TS: TIMESTAMP} | {column.name: column.type for column in from_arrow(table.schema)}
    columns = [column_values(table.column(name), type_) for name, type_ in types.items()]
    return "".join(json_line(row, types) for row in zip(*columns, strict=True)).encode()


def json_line(row: Iterable[object], types: Mapping[str, Type], head: Mapping[str, str] = _NO_HEAD) -> str:
    """Encode a row as one line, with fields of `head` first.

    `types` has the row's columns.
    """
    values = {name: plain(value, type_) for (name, type_), value in zip(types.items(), row, strict=True)}
    return json.dumps({**head, **values}, ensure_ascii=False, allow_nan=False) + "\n"


def result_line(query: str, schema: Schema, timed: tuple[int | None, Sequence[object]]) -> str:
    """Encode a result of `slicemill run --json`: query, `_ts`, columns."""
    ts, row = timed
    types = {TS: TIMESTAMP} | {column.name: column.type for column in schema}
    return json_line((ts, *row), types, {"query": query})
