"""Means over sliding windows by two Numba loops, as a lower bound of the cost.

There is no log, no journal and no recovery. Keys are known to be small numbers, and one thread does all of
the work. pyarrow reads the files, counts and sums are kept by second and key, and the means of ended windows
stay in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SECOND = 1_000_000


@njit(cache=True)
def _add(k: Ints, v: Ints, ts: Ints, first_s: int, counts: Ints, sums: Ints) -> None:
    for row in range(len(k)):
        second = ts[row] // 1_000_000 - first_s
        counts[second, k[row]] += 1
        sums[second, k[row]] += v[row]


@njit(cache=True)
def _means(
    counts: Ints, sums: Ints, range_s: int, begin: int, end: int, ends: Ints, keys: Ints, means: Floats
) -> int:
    """Compute means of windows that end after second `begin` and by `end`. Return their number."""
    number = counts.shape[1]
    count, total = np.zeros(number, np.int64), np.zeros(number, np.int64)
    for second in range(max(0, begin - range_s), begin):
        count += counts[second]
        total += sums[second]
    found = 0
    for at in range(begin + 1, end + 1):
        for key in range(number):
            count[key] += counts[at - 1, key]
            total[key] += sums[at - 1, key]
            if at > range_s:
                count[key] -= counts[at - 1 - range_s, key]
                total[key] -= sums[at - 1 - range_s, key]
            if count[key]:
                ends[found], keys[found], means[found] = at, key, total[key] / count[key]
                found += 1
    return found


class BareWindows:
    """`RANGE r SLIDE 1 SECOND` for each range, over events from second `first_s` on, for `keys` keys."""

    def __init__(self, ranges: Sequence[int], keys: int, first_s: int, seconds: int) -> None:
        self.results: dict[int, list[pa.Table]] = {range_s: [] for range_s in ranges}
        self._first_s, self._keys, self._ended = first_s, keys, 0
        self._counts, self._sums = (np.zeros((seconds, keys), np.int64) for _ in range(2))

    def take(self, paths: Sequence[Path]) -> None:
        """Read files, and compute the means of all ended windows."""
        for path in paths:
            table = pq.read_table(path)
            k, v, ts = (table.column(name).cast(pa.int64()).to_numpy() for name in ("k", "v", "ts"))
            _add(k, v, ts, self._first_s, self._counts, self._sums)
        ended = int(ts[-1]) // _SECOND - self._first_s
        most = (ended - self._ended) * self._keys
        for range_s, tables in self.results.items():
            ends, keys, means = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
            found = _means(self._counts, self._sums, range_s, self._ended, ended, ends, keys, means)
            moments = (ends[:found] + self._first_s) * _SECOND
            tables.append(pa.table({"k": keys[:found], "mean": means[:found], "e": moments}))
        self._ended = ended

    def count(self, range_s: int) -> int:
        return sum(table.num_rows for table in self.results[range_s])
