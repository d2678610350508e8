"""Input of the scale benchmark: joins with different placements, and their rows.

The rate and window of each case are chosen so that one task has about the same work in all cases. Rows arrive
in batches. The first batches fill the windows and are not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import pyarrow as pa

_US = 1_000_000


@dataclass(frozen=True, slots=True)
class ScaleCase:
    """Join of streams with given rows per batch and per second. `heavy` is the share of key 0."""

    name: str
    streams: str
    where: str
    rows_per_batch: int
    rows_per_s: int
    window_s: float
    values: int
    heavy: float = 0.0

    def query(self, window_s: float) -> str:
        items = ", ".join(f"{stream}.v AS v{stream}" for stream in self.streams)
        sources = ", ".join(
            f"{stream} [RANGE {round(1000 * window_s)} MILLISECONDS]" for stream in self.streams
        )
        return f"SELECT a.k AS k, {items} FROM {sources} WHERE {self.where}"

    def script(self, windows_s: Sequence[float]) -> str:
        """Return the streams, and a query for each window."""
        declared = [
            f"CREATE STREAM {stream} (k bigint, v bigint, ts timestamp) ORDER BY ts;"
            for stream in self.streams
        ]
        queries = [
            f"CREATE QUERY q{number} AS {self.query(window)};" for number, window in enumerate(windows_s)
        ]
        return "\n".join([*declared, *queries])

    @property
    def warming(self) -> int:
        """Number of batches that fill the window."""
        return ceil(self.window_s * self.rows_per_s / self.rows_per_batch)

    def batches(self, count: int) -> Iterator[dict[str, pa.Table]]:
        """Yield the batches that fill the window and `count` more. The rows are deterministic."""
        rows = self.rows_per_batch
        span = rows * _US // self.rows_per_s
        for number in range(self.warming + count):
            tables = {}
            for stream in self.streams:
                chance = np.random.default_rng((ord(stream) - ord("a"), number))
                keys = chance.integers(0, self.values, rows)
                if self.heavy:
                    keys[chance.random(rows) < self.heavy] = 0
                times = np.sort(chance.integers(0, span, rows)) + number * span
                tables[stream] = pa.table(
                    {
                        "k": keys,
                        "v": chance.integers(0, self.values, rows),
                        "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                    }
                )
            yield tables


UNIFORM = ScaleCase("equi, uniform", "ab", "a.k = b.k", 100_000, 40_000, 5, 100_000)
SKEWED = ScaleCase(
    "equi, 30 % on one key", "ab", "a.k = b.k AND abs(a.v - b.v) <= 10", 10_000, 2_000, 1, 10_000, heavy=0.3
)
BAND = ScaleCase("theta, a band", "ab", "a.v BETWEEN b.v - 1 AND b.v + 1", 10_000, 500, 2, 10_000)
SHORT_BAND = ScaleCase(
    "theta, a short band", "ab", "a.v BETWEEN b.v - 1 AND b.v + 1", 10_000, 500, 0.5, 10_000
)
ONE_KEY = ScaleCase("3-way, one key", "abc", "a.k = b.k AND b.k = c.k", 50_000, 5_000, 10, 25_000)
TWO_KEYS = ScaleCase("3-way, two keys", "abc", "a.k = b.k AND b.v = c.v", 50_000, 5_000, 10, 25_000)
FOUR = ScaleCase(
    "4-way, two keys", "abcd", "a.k = b.k AND b.k = c.k AND c.v = d.v", 50_000, 5_000, 10, 30_000
)
CASES = (UNIFORM, SKEWED, BAND, SHORT_BAND, ONE_KEY, TWO_KEYS, FOUR)


@dataclass(frozen=True, slots=True)
class OverlapCase:
    """Joins on one key, each over some streams and a window in seconds. Rates are those of `ONE_KEY`."""

    name: str
    joins: tuple[tuple[str, float], ...]

    def script(self, chosen: Sequence[int]) -> str:
        """Return the script of the streams and of some joins, by their numbers."""
        declared = [
            f"CREATE STREAM {stream} (k bigint, v bigint, ts timestamp) ORDER BY ts;"
            for stream in self.streams(chosen)
        ]
        queries = []
        for number in chosen:
            streams, window_s = self.joins[number]
            where = " AND ".join(f"{streams[0]}.k = {other}.k" for other in streams[1:])
            case = ScaleCase(self.name, streams, where, 0, 0, window_s, 0)
            queries.append(f"CREATE QUERY q{number} AS {case.query(window_s)};")
        return "\n".join([*declared, *queries])

    def streams(self, chosen: Sequence[int]) -> str:
        return "".join(sorted({stream for number in chosen for stream in self.joins[number][0]}))

    def rows(self, chosen: Sequence[int]) -> ScaleCase:
        """Return rows of the streams of some joins, in batches of one second.

        State is kept in slices. With batches as long as a window, the kept state would depend on how batches
        and slices align.
        """
        return replace(ONE_KEY, streams=self.streams(chosen), rows_per_batch=ONE_KEY.rows_per_s)


_SECONDS = (1.25, 2.5, 3.75, 5.0, 6.25, 7.5, 8.75, 10.0)
OVERLAPS = (
    OverlapCase("eight of abc", tuple(("abc", seconds) for seconds in _SECONDS)),
    OverlapCase("abc, abd, acd, ab", (("abc", 10.0), ("abd", 10.0), ("acd", 10.0), ("ab", 10.0))),
    OverlapCase("the same, 4 to 10 s", (("abc", 10.0), ("abd", 8.0), ("acd", 6.0), ("ab", 4.0))),
)
