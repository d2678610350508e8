"""Static tables from files: all current rows, without the JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from slicemill.connectors.files.reader import opened_format
from slicemill.connectors.origin import LINES_IN_FILES, origin_of
from slicemill.esl.types.catalog import SourceSpec, Table
from slicemill.ingest.formats.checked import WantedColumns, joined

_ROWS_AT_ONCE = 100_000


def read_table(table: Table, folder: Path) -> pa.Table | None:
    """Return a table's good rows. None if the source needs Spark.

    A table without a source is empty. Files are read in the order of their names.
    """
    wanted = WantedColumns.of_schema(table.written, table.schema.names)
    if table.source == SourceSpec():
        return wanted.arrow.empty_table()
    origin = origin_of(table.source, table.name, folder)
    if origin.format not in (*LINES_IN_FILES, "parquet"):
        return None
    opened = opened_format(origin, wanted)
    if opened is None:
        return None
    listing, form = opened
    tables: list[pa.Table] = []
    try:
        for name in sorted(found.name for found in listing.new(frozenset())):
            position, ended = 0, False
            while not ended:
                taken = form.take(listing.root / name, position, _ROWS_AT_ONCE, None)
                position, ended = taken.position, taken.ended
                tables += [rows for rows, _ in form.parse([taken])]
    finally:
        form.close()
    found_rows = joined(tables)
    return wanted.arrow.empty_table() if found_rows is None else found_rows
