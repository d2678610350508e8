"""`json:folder`: one file of JSON lines for each delivered range.

A folder, not one growing file: a file that appears whole needs no commit marker, and whoever reads it never
meets half a line. `cat folder/*.jsonl` is the growing file.
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
    """Rows as objects; JSON has no types for times, decimals and bytes, see `json_values`."""
    types = {TS: TIMESTAMP} | {column.name: column.type for column in from_arrow(table.schema)}
    columns = [column_values(table.column(name), type_) for name, type_ in types.items()]
    return "".join(json_line(row, types) for row in zip(*columns, strict=True)).encode()


def json_line(row: Iterable[object], types: Mapping[str, Type], head: Mapping[str, str] = _NO_HEAD) -> str:
    """A row as one line; `types` has its columns, and `head` what stands in front of them."""
    values = {name: plain(value, type_) for (name, type_), value in zip(types.items(), row, strict=True)}
    return json.dumps({**head, **values}, ensure_ascii=False, allow_nan=False) + "\n"


def result_line(query: str, schema: Schema, timed: tuple[int | None, Sequence[object]]) -> str:
    """A result of `slicemill run --json`: which query's, when (not of ad hoc ones), and its columns."""
    ts, row = timed
    types = {TS: TIMESTAMP} | {column.name: column.type for column in schema}
    return json_line((ts, *row), types, {"query": query})
