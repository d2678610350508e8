"""Reading an epoch's rows: what a task does with the folder and the Epoch that the driver sends it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from slicemill.storage.arrow_schema import conform, with_system_columns
from slicemill.storage.chunk import merge_sorted, open_chunk
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.log_epoch import Epoch


def read_epoch(
    folder: Path,
    columns: pa.Schema,
    epoch: Epoch,
    mask_words: int = 0,
    files: FileSystem = LOCAL,
    needed: frozenset[str] = frozenset(),
) -> pa.Table:
    """The epoch's rows in timestamp order, with `_ts`, `_arr` and `mask_words` mask words before the columns.

    Chunks that store no `_ts` get the epoch's timestamp, those without `_arr` its arrival time, and mask
    words that a chunk lacks are zero. A chunk is mapped, not copied, unless its times overlap with another's.
    One that lacks a column which the reader needs was stored when that reader was not there: it is left out.
    """
    schema = with_system_columns(columns, mask_words)
    stored = (open_chunk(folder, chunk, files) for chunk in epoch.chunks if chunk.rows)
    tables = [
        conform(table, schema, epoch.stamped_ts, epoch.arrival_us)
        for table in stored
        if needed.issubset(table.column_names)
    ]
    return merge_sorted(tables) if tables else schema.empty_table()
