"""Check of typed tables against a declaration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.esl.types.schema import Schema
from slicemill.ingest.formats.checked import Parsed, ParsedColumns, WantedColumns, checked
from slicemill.ingest.formats.record_text import record_text
from slicemill.ingest.formats.values import from_column


def check_columns(schema: Schema, present: Sequence[str]) -> None:
    """Raise if a declared column is missing, ignoring case."""
    lowered = {name.lower() for name in present}
    missing = [column.name for column in schema if column.name.lower() not in lowered]
    if missing:
        raise SlicemillError(
            f"the source has no column {', '.join(missing)}; it has {', '.join(present) or 'none'}"
        )


def checked_table(table: pa.Table, wanted: WantedColumns) -> Parsed:
    """Check the rows of a table that has all declared columns."""
    names = {name.lower(): name for name in table.column_names}
    columns = {
        column.name: from_column(one_array(table.column(names[column.name.lower()])), column.type)
        for column in wanted.read
    }
    part = ParsedColumns(np.arange(table.num_rows), columns)
    return checked([part], {}, wanted, lambda number: record_text(table.slice(number, 1).to_pylist()[0]))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as a single array, without a copy if possible."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
