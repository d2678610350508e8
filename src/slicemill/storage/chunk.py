"""Chunks: immutable Arrow IPC files, the unit of storage for streams, results and state slices (DESIGN 6).

A chunk has a unique name and no reader until a manifest names it, so it is written in place: a part of one,
left by a writer that died, is an orphan like any other. Reading maps the file: columns are views of the page
cache, shared by all processes on the machine, and no byte is touched that nobody looks at. Chunks of results
are compressed instead: most are read once, if at all, and writing fewer bytes takes less time than LZ4 does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.errors import SlicemillError
from slicemill.storage.arrow_schema import TS
from slicemill.storage.files import LOCAL, FileSystem, unique_name

SUFFIX = ".arrow"

# Handling a run costs about as much as copying so many rows.
_ROWS_PER_RUN = 1_000

_COMPRESSED_BYTES = 1 << 16
_COMPRESSED_ROWS = 1 << 17


class ChunkError(SlicemillError):
    """A table that cannot become a chunk, or a chunk that is not what its manifest says."""


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """A chunk as manifests name it. Without `_ts` (its epoch has one for all rows) it has no min and max."""

    path: str  # relative to the log's or unit's folder
    rows: int
    bytes: int
    min_ts: int | None
    max_ts: int | None


def write_chunk(
    folder: Path,
    subfolder: str,
    table: pa.Table,
    files: FileSystem = LOCAL,
    durable: bool = False,
    compress: bool = False,
) -> ChunkInfo:
    """Write a table sorted by `_ts` (or without `_ts`) as a new chunk in `folder / subfolder`.

    `compress` is for what need not be mapped; a small table is mapped in any case.
    """
    min_ts, max_ts = _ts_range(table)
    data = _compressed(table) if compress and table.nbytes >= _COMPRESSED_BYTES else _encoded(table)
    path = f"{subfolder}/{unique_name()}{SUFFIX}"
    files.write(folder / path, data)
    if durable:
        files.sync(folder / path)
    return ChunkInfo(path, table.num_rows, data.size, min_ts, max_ts)


def _encoded(table: pa.Table) -> pa.Buffer:
    """The file's content. Its size is found first: a buffer that grows copies what it has again and again."""
    # One batch per chunk, so that a kernel gets each column as one vector.
    whole = table.combine_chunks() if _pieces(table) > 1 else table
    counted = pa.MockOutputStream()
    _write_to(counted, whole)
    data = pa.allocate_buffer(counted.size())
    _write_to(pa.FixedSizeBufferWriter(data), whole)
    return data


def _write_to(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _compressed(table: pa.Table) -> pa.Buffer:
    """The file's content, in batches that need little memory: whole columns took up to five times as long."""
    # Tasks run side by side already: one that took other cores as well would take them from the next.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=_COMPRESSED_ROWS)
    return sink.getvalue()


def _pieces(table: pa.Table) -> int:
    return max((column.num_chunks for column in table.columns), default=0)


def _ts_range(table: pa.Table) -> tuple[int | None, int | None]:
    if TS not in table.column_names or table.num_rows == 0:
        return None, None
    column = table.column(TS)
    if column.type != pa.int64() or column.null_count:
        raise ChunkError(f"{TS} must be int64 without NULL; rows that have no timestamp belong in _errors")
    ts = column.to_numpy()
    if np.any(ts[1:] < ts[:-1]):
        raise ChunkError(f"a chunk must be sorted by {TS}; sort the table (stably) before it is written")
    return int(ts[0]), int(ts[-1])


def open_chunk(folder: Path, chunk: ChunkInfo, files: FileSystem = LOCAL) -> pa.Table:
    """The chunk's rows as they were written, mapped, not read."""
    table = _mapped(folder / chunk.path, files)
    if table.num_rows != chunk.rows:
        raise ChunkError(f"chunk {folder / chunk.path} has {table.num_rows} rows instead of {chunk.rows}")
    return table


def _mapped(path: Path, files: FileSystem) -> pa.Table:
    try:
        return pa.ipc.open_file(files.map(path)).read_all()
    except (FileNotFoundError, pa.ArrowInvalid) as problem:
        raise ChunkError(f"chunk {path} cannot be read: {problem}") from problem


def check_chunks(folder: Path, chunks: Iterable[ChunkInfo], files: FileSystem = LOCAL) -> None:
    """Raise if a chunk that is about to be committed is not there in full: swept, or written elsewhere."""
    for chunk in chunks:
        try:
            found = files.stat(folder / chunk.path).bytes
        except FileNotFoundError:
            raise ChunkError(f"chunk {folder / chunk.path} is gone; write it again and commit anew") from None
        if found != chunk.bytes:
            raise ChunkError(
                f"chunk {folder / chunk.path} has {found} of {chunk.bytes} bytes; write it again"
            )


def merge_sorted(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables that are each sorted by `_ts` as one; equal timestamps keep the tables' and rows' order.

    Copies only if the tables' times overlap in many places.
    """
    # Chunks have the columns that were needed when they were written.
    whole = pa.concat_tables(tables, promote_options="default")
    parts = [table.column(TS) for table in tables if table.num_rows]
    if any(before[-1].as_py() > after[0].as_py() for before, after in pairwise(parts)):
        return sorted_by(whole, whole.column(TS).to_numpy())
    return whole


def sorted_by(table: pa.Table, times: NDArray[np.int64]) -> pa.Table:
    """The rows in the order of their times; equal times keep the rows' order.

    Files and partitions are sorted in themselves more often than not. Where their rows come in long runs, the
    runs are put in order, and no row is copied.
    """
    order = np.argsort(times, kind="stable")
    starts = np.concatenate(([0], np.flatnonzero(np.diff(order) != 1) + 1))
    if len(starts) * _ROWS_PER_RUN > len(order):
        return table.take(order)
    ends = np.append(starts[1:], len(order))
    return pa.concat_tables(
        table.slice(first, rows)
        for first, rows in zip(order[starts].tolist(), (ends - starts).tolist(), strict=True)
    )


def encode_chunk(chunk: ChunkInfo) -> list[object]:
    """A chunk in a manifest's JSON."""
    return [chunk.path, chunk.rows, chunk.bytes, chunk.min_ts, chunk.max_ts]


def decode_chunk(line: Sequence[Any]) -> ChunkInfo:
    return ChunkInfo(*line)
