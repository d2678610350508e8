"""Reading an epoch's rows: what a task does with the folder and the Epoch that the driver sends it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from slicemill.storage.arrow_schema import TS, conform, with_system_columns
from slicemill.storage.chunk import merge_sorted, open_chunk
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.log_epoch import Epoch


def read_epoch(
    folder: Path,
    columns: pa.Schema,
    epoch: Epoch,
    files: FileSystem = LOCAL,
    needed: frozenset[str] = frozenset(),
) -> pa.Table:
    """The epoch's rows in timestamp order, with `_ts`, `_seq` and `_arr` before the columns.

    Chunks that store no `_ts` get the epoch's timestamp, those without `_arr` its arrival time.
    A chunk is mapped, not copied, unless its times overlap with another's.
    One that lacks a column which the reader needs was stored when that reader was not there: it is left out.
    """
    schema = with_system_columns(columns)
    stored = (open_chunk(folder, chunk, files) for chunk in epoch.chunks if chunk.rows)
    tables = [
        conform(_stamped(table, epoch.stamped_ts), schema, epoch.arrival_us)
        for table in stored
        if needed.issubset(table.column_names)
    ]
    return merge_sorted(tables) if tables else schema.empty_table()


def _stamped(table: pa.Table, ts: int | None) -> pa.Table:
    if ts is None:
        return table
    return table.append_column(TS, pa.repeat(pa.scalar(ts, pa.int64()), table.num_rows))
