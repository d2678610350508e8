"""Input of the windows benchmark: keyed events at regular intervals, and their expected means."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

EVENTS_PER_S = 10_000
KEYS = 1_000
SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"

_SECOND = 1_000_000
FIRST_S = 1_700_000_000


def write_events(folder: Path, files: int, rows_per_file: int) -> list[Path]:
    """Write files of consecutive events in time order."""
    random, rows = np.random.default_rng(1), files * rows_per_file
    ts = FIRST_S * _SECOND + np.arange(rows) * (_SECOND // EVENTS_PER_S)
    columns = {
        "k": random.integers(0, KEYS, rows),
        "v": random.integers(0, 10_000, rows),
        "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
    }
    return write_parts(folder, pa.table(columns), rows_per_file)


def write_parts(folder: Path, table: pa.Table, rows_per_file: int) -> list[Path]:
    """Write a table to files, in its order."""
    folder.mkdir(parents=True)
    paths = []
    for number, start in enumerate(range(0, table.num_rows, rows_per_file)):
        paths.append(folder / f"{number:05d}.parquet")
        pq.write_table(table.slice(start, rows_per_file), paths[-1])
        # Spark orders files by modification time, which would be equal for small files.
        os.utime(paths[-1], (FIRST_S + number, FIRST_S + number))
    return paths


class ExpectedMeans:
    """Expected results of all windows that end by the last event of some files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        table = pa.concat_tables([pq.read_table(path) for path in paths])
        k, v = table.column("k").to_numpy(), table.column("v").to_numpy()
        ts = table.column("ts").cast(pa.int64()).to_numpy()
        second = ts // _SECOND - FIRST_S
        self.seconds = int(second[-1]) + 1
        self._ends = int(ts[-1] // _SECOND - FIRST_S)
        subtasks = (second * KEYS + k).astype(np.int64)
        size = self.seconds * KEYS
        # Integers below 2**53 are exact as floats.
        self._counts, self._sums = (
            np.vstack([np.zeros(KEYS), np.cumsum(values.reshape(-1, KEYS), axis=0)])
            for values in (np.bincount(subtasks, minlength=size), np.bincount(subtasks, v, size))
        )

    def _windows(self, range_s: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return counts and sums by window end and key."""
        ends = np.arange(1, self._ends + 1)
        starts = np.maximum(ends - range_s, 0)
        return self._counts[ends] - self._counts[starts], self._sums[ends] - self._sums[starts]

    def count(self, range_s: int) -> int:
        return int(np.count_nonzero(self._windows(range_s)[0]))

    def differences(self, range_s: int, table: pa.Table) -> int:
        """Count the results (k, mean, e) that differ from the expected ones."""
        counts, sums = self._windows(range_s)
        end, key = np.nonzero(counts)
        right = np.array([(FIRST_S + 1 + end) * _SECOND, key, sums[end, key] / counts[end, key]])
        columns = (table.column("e").cast(pa.int64()), table.column("k"), table.column("mean"))
        found = np.array([column.to_numpy().astype(np.float64) for column in columns])
        if found.shape != right.shape:
            return abs(int(found.shape[1]) - int(right.shape[1]))
        found = found[:, np.lexsort((found[1], found[0]))]
        return int(np.count_nonzero((found != right).any(axis=0)))
