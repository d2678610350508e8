"""Input of the join benchmark: two streams of Parquet files, joins, and expected numbers of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

STREAMS = ("a", "b")
COLUMNS = {"k": "BIGINT", "v": "BIGINT", "ts": "TIMESTAMP"}
VALUES = 1000
_SECOND = 1_000_000
_BEGIN = _SECOND  # Spark drops rows of the first moment of 1970 as late
_KEY_SPAN = 1 << 40  # longer than any stream here, in microseconds


@dataclass(frozen=True, slots=True)
class WindowedJoin:
    """Join on equal keys less than `window_s` apart, for left tuples with a value below `below`.

    A `left` join also emits left tuples without a match, after the end of their window.
    """

    window_s: float
    below: int = VALUES
    left: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """Files of both streams, which arrive in pairs. The last pair only advances the watermarks."""

    paths: tuple[Sequence[Path], Sequence[Path]]
    rows_per_file: int

    @property
    def files(self) -> int:
        return len(self.paths[0])

    def expected(self, join: WindowedJoin, files: int) -> int:
        """Return the number of results of the first files, up to the lower watermark of both streams."""
        read = [pa.concat_tables([pq.read_table(path) for path in paths[:files]]) for paths in self.paths]
        keys, values, times = ([_numbers(table, name) for table in read] for name in ("k", "v", "ts"))
        until = min(int(ts[-1]) for ts in times)
        here = [(ts < until) & (keys[side] >= 0) for side, ts in enumerate(times)]
        here[0] &= values[0] < join.below
        left, right = (keys[side][here[side]] * _KEY_SPAN + times[side][here[side]] for side in (0, 1))
        right.sort()
        length = round(join.window_s * _SECOND)
        first = np.searchsorted(right, left - length, side="right")
        pairs = np.searchsorted(right, left + length, side="left") - first
        over = times[0][here[0]] + length <= until
        return int(pairs.sum()) + (int(np.count_nonzero((pairs == 0) & over)) if join.left else 0)


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return np.asarray(table.column(name).cast(pa.int64()).to_numpy())


def write_input(folder: Path, files: int, rows_per_file: int, keys: int, rows_per_s: int) -> Input:
    """Write uniform keys, values and times, ordered by time.

    Times are whole milliseconds, the precision of Flink.
    """
    paths: tuple[list[Path], list[Path]] = ([], [])
    span = rows_per_file * _SECOND // rows_per_s
    for side, stream in enumerate(STREAMS):
        (folder / stream).mkdir(parents=True)
        for number in range(files):
            chance = np.random.default_rng((side, number))
            times = _BEGIN + number * span + 1_000 * np.sort(chance.integers(0, span // 1_000, rows_per_file))
            found = (
                chance.integers(0, keys, rows_per_file),
                chance.integers(0, VALUES, rows_per_file),
                times,
            )
            paths[side].append(_write(folder / stream / f"{number:05d}.parquet", *found))
        last = (np.array([-1 - side]), np.array([0]), np.array([_BEGIN + files * span + _SECOND]))
        paths[side].append(_write(folder / stream / f"{files:05d}.parquet", *last))
    return Input(paths, rows_per_file)


def _write(path: Path, keys: NDArray[np.int64], values: NDArray[np.int64], times: NDArray[np.int64]) -> Path:
    table = pa.table({"k": keys, "v": values, "ts": pa.array(times, pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, path)
    return path
