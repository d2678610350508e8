"""Epochs: rows that one record appended to a log, and reading them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from slicemill.storage.arrow_schema import conform, with_system_columns
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.order import merge_sorted
from slicemill.storage.segments import Extent, ExtentDamaged, read_extent
from slicemill.storage.ties import ties_of, untied


class Epoch(NamedTuple):
    """Rows that one record appended to a log."""

    number: int
    extents: tuple[Extent, ...]
    rows: int
    bytes: int
    min_ts: int | None
    max_ts: int | None
    arrival_us: int


def neighbouring(epochs: Iterable[Epoch]) -> Iterator[list[Epoch]]:
    """Yield runs of epochs whose rows are adjacent in one segment.

    An epoch with several extents is a run of its own.
    """
    run: list[Epoch] = []
    for epoch in epochs:
        if not epoch.rows:
            continue
        if run and not _follows(run[-1], epoch):
            yield run
            run = []
        run.append(epoch)
    if run:
        yield run


def _follows(before: Epoch, after: Epoch) -> bool:
    if len(before.extents) != 1 or len(after.extents) != 1:
        return False
    (one,), (other,) = before.extents, after.extents
    return one.segment == other.segment and one.offset + one.length == other.offset


def read_epochs(
    folder: Path,
    columns: pa.Schema,
    epochs: Iterable[Epoch],
    needed: frozenset[str] = frozenset(),
    files: FileSystem = LOCAL,
) -> pa.Table:
    """Return the rows of epochs sorted by (`_ts`, `_seq`).

    The system columns precede the other columns. Nothing is copied unless the times of extents overlap. A
    column that was not stored is NULL. An extent without a `needed` column is left out, because it was stored
    before its reader existed.
    """
    schema = with_system_columns(columns)
    found = stored_tables(folder, epochs, needed, files)
    tables = [conform(table, schema, arrival_us) for table, arrival_us in found]
    return merge_sorted(tables) if tables else schema.empty_table()


def stored_tables(
    folder: Path, epochs: Iterable[Epoch], needed: frozenset[str] = frozenset(), files: FileSystem = LOCAL
) -> Iterator[tuple[pa.Table, int]]:
    """Yield the extents of epochs as stored, with arrival times; see `read_epochs`.

    Rows with ties, which several partitions produced, are merged here for all readers of logs.
    """
    for epoch in epochs:
        tied = []
        for extent in epoch.extents:
            if extent.rows:
                try:
                    table = read_extent(folder, extent, files)
                except ExtentDamaged as problem:
                    raise lost_rows(folder, [epoch], problem) from problem
                if needed and not needed.issubset(table.column_names):
                    continue
                if ties_of(table):
                    tied.append(table)
                else:
                    yield table, epoch.arrival_us
        if tied:
            yield untied(tied), epoch.arrival_us


def lost_rows(folder: Path, epochs: Sequence[Epoch], problem: ExtentDamaged) -> ExtentDamaged:
    """Return an error with log, epochs and timestamps of damaged rows."""
    first, last = epochs[0], epochs[-1]
    numbers = f"epoch {first.number}" if first is last else f"epochs {first.number} to {last.number}"
    spans = [ts for epoch in epochs for ts in (epoch.min_ts, epoch.max_ts) if ts is not None]
    times = f" with timestamps from {_moment(min(spans))} to {_moment(max(spans))}" if spans else ""
    rows = sum(epoch.rows for epoch in epochs)
    return ExtentDamaged(f"{rows:,} rows of {folder.name}, {numbers},{times} cannot be read: {problem}")


def _moment(ts_us: int) -> str:
    return str(np.datetime64(ts_us, "us"))
