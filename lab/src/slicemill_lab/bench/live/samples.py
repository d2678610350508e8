"""Latency samples of a subscriber: rows by query, with the time seen and the stamp."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Samples:
    """Rows with stamps. `query` is an index into `names`; `rows` counts all rows of each query."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    query: NDArray[np.int64]
    seen_us: NDArray[np.int64]
    stamp_us: NDArray[np.int64]

    def between(self, from_us: int, until_us: int) -> Samples:
        """Return the rows with stamps in a time span, excluding its end."""
        kept = (self.stamp_us >= from_us) & (self.stamp_us < until_us)
        return Samples(self.names, self.rows, self.query[kept], self.seen_us[kept], self.stamp_us[kept])

    def of(self, name: str) -> Samples:
        kept = self.query == (self.names.index(name) if name in self.names else -1)
        return Samples(self.names, self.rows, self.query[kept], self.seen_us[kept], self.stamp_us[kept])

    @property
    def latencies_ms(self) -> NDArray[np.float64]:
        latencies: NDArray[np.float64] = (self.seen_us - self.stamp_us) / 1_000
        return latencies

    def __len__(self) -> int:
        return len(self.query)

    def figures(self) -> dict[str, Any]:
        """Return p50 and p99 of all rows, and p50 per query."""
        each = {name: percentile(self.of(name).latencies_ms, 50) for name in self.names}
        return {
            "p50 ms": percentile(self.latencies_ms, 50),
            "p99 ms": percentile(self.latencies_ms, 99),
            "rows": len(self),
            "p50 ms by query": {name: found for name, found in each.items() if found is not None},
        }

    def save(self, path: Path) -> None:
        np.savez(
            path, names=self.names, rows=self.rows, query=self.query, seen=self.seen_us, stamp=self.stamp_us
        )


def load(path: Path) -> Samples:
    with np.load(path) as found:
        names = tuple(str(name) for name in found["names"])
        rows = tuple(int(count) for count in found["rows"])
        return Samples(names, rows, found["query"], found["seen"], found["stamp"])


def percentile(values: Sequence[float] | NDArray[np.float64], share: float) -> float | None:
    """Return a percentile, rounded to a hundredth, or None without values.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 50), percentile([4.0, 1.0, 3.0, 2.0], 99), percentile([], 50)
    (2.0, 4.0, None)
    """
    if not len(values):
        return None
    return round(float(np.percentile(values, share, method="inverted_cdf")), 2)


class Recorder:
    """Collects samples as rows are seen. `first` is called once per query."""

    def __init__(self, now_us: Callable[[], int], first: Callable[[str], object]) -> None:
        self._now_us = now_us
        self._first = first
        self._rows: dict[str, int] = {}
        self._parts: list[tuple[str, int, Sequence[int]]] = []
        self._lock = threading.Lock()

    def add(self, query: str, stamps: Sequence[int], rows: int) -> None:
        """Record rows that are seen now. Some queries have no stamps."""
        seen_us = self._now_us()
        with self._lock:
            if query not in self._rows:
                self._first(query)
            self._rows[query] = self._rows.get(query, 0) + rows
            if stamps:
                self._parts.append((query, seen_us, stamps))

    def samples(self) -> Samples:
        with self._lock:
            names = tuple(self._rows)
            counts = [len(stamps) for _, _, stamps in self._parts]
            query = np.repeat([names.index(name) for name, _, _ in self._parts], counts)
            seen = np.repeat([seen_us for _, seen_us, _ in self._parts], counts)
            stamps = [np.asarray(stamps, np.int64) for _, _, stamps in self._parts]
            return Samples(
                names,
                tuple(self._rows.values()),
                query.astype(np.int64),
                seen.astype(np.int64),
                np.concatenate(stamps) if stamps else np.zeros(0, np.int64),
            )
