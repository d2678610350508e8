"""`json:folder`: one file of JSON lines for each delivered range.

A folder, not one growing file: a file that appears whole needs no commit marker, and whoever reads it never
meets half a line. `cat folder/*.jsonl` is the growing file.
"""

from __future__ import annotations

import json

import pyarrow as pa

from slicemill.columns.rows import column_values
from slicemill.connectors.sinks.json_values import plain
from slicemill.esl.types.schema import TIMESTAMP
from slicemill.storage.arrow_schema import TS, from_arrow

SUFFIX = "jsonl"


def encode(table: pa.Table) -> bytes:
    """Rows as objects; JSON has no types for times, decimals and bytes, see `json_values`."""
    kinds = {TS: TIMESTAMP.kind} | {column.name: column.type.kind for column in from_arrow(table.schema)}
    columns = [
        [plain(v, kind) for v in column_values(table.column(name), kind)] for name, kind in kinds.items()
    ]
    rows = (dict(zip(kinds, row, strict=True)) for row in zip(*columns, strict=True))
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows).encode()
