"""Rows waiting at units: time averages, in total and by recent bucket (P29)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from slicemill.metrics.figures import stretches

BUCKET_S = 10.0
BUCKETS_KEPT = 360

_US = 1_000_000
_BUCKET_US = BUCKET_S * _US

Counts = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]


class WaitingRows:
    """Waiting rows of units, by position.

    Rows are counted repeatedly. Between two counts, the number of the earlier one is assumed.
    """

    def __init__(self, count: int, now_us: int) -> None:
        self._since_us = np.full(count, now_us)
        self._counted_us = now_us
        self._row_us = np.zeros(count)
        self._most = np.zeros(count, np.int64)
        # By bucket: row-microseconds of waiting, and the maximum number of rows.
        self._buckets: dict[int, tuple[npt.NDArray[np.float64], Counts]] = {}

    def take_over(self, before: WaitingRows, positions: Mapping[int, int]) -> None:
        """Copy the history of units, which had other positions."""
        here, there = np.array(list(positions.items()), np.intp).reshape(-1, 2).T
        for name in ("_since_us", "_row_us", "_most"):
            getattr(self, name)[here] = getattr(before, name)[there]
        for number, (row_us, most) in before._buckets.items():
            for own, known in zip(self._bucket(number), (row_us, most), strict=True):
                own[here] = known[there]

    def passed(self, rows: Counts, now_us: int) -> None:
        """Record that these rows have waited since the last call."""
        self._add(slice(None), rows, self._counted_us, now_us)
        self._counted_us = now_us

    def came(self, positions: Positions, rows: int, at_us: int) -> None:
        """Record rows that have waited since `at_us`, before their first count."""
        self._add(positions, rows, at_us, self._counted_us)

    def now(self, rows: Counts) -> None:
        """Record the current number of waiting rows, for maxima."""
        np.maximum(self._most, rows, out=self._most)
        most = self._bucket(int(self._counted_us // _BUCKET_US))[1]
        np.maximum(most, rows, out=most)

    def _add(self, where: slice | Positions, rows: Counts | int, begin_us: int, end_us: int) -> None:
        if end_us <= begin_us:
            return
        self._row_us[where] += rows * (end_us - begin_us)
        # The clock may jump by years, but few buckets are kept.
        kept_us = max(begin_us, end_us - BUCKETS_KEPT * int(_BUCKET_US))
        for number, length_us in stretches(kept_us, end_us, _BUCKET_US):
            row_us, most = self._bucket(number)
            row_us[where] += rows * length_us
            most[where] = np.maximum(most[where], rows)

    def _bucket(self, number: int) -> tuple[npt.NDArray[np.float64], Counts]:
        if number not in self._buckets:
            count = len(self._most)
            # Replace the dictionary, because other threads may be reading it.
            kept = {known: self._buckets[known] for known in self._buckets if known > number - BUCKETS_KEPT}
            self._buckets = {**kept, number: (np.zeros(count), np.zeros(count, np.int64))}
        return self._buckets[number]

    def of(self, position: int) -> tuple[float, int]:
        """Return the average and maximum number of waiting rows of a unit."""
        over_us = self._counted_us - int(self._since_us[position])
        mean = float(self._row_us[position]) / over_us if over_us > 0 else 0.0
        return mean, int(self._most[position])

    def by_bucket(self, position: int) -> list[tuple[int, float, int]]:
        """Return (bucket number, average, maximum) of waiting rows of a unit."""
        found = []
        for number, (row_us, most) in self._buckets.items():
            begin_us = max(number * _BUCKET_US, float(self._since_us[position]))
            over_us = min((number + 1) * _BUCKET_US, self._counted_us) - begin_us
            if most[position] and over_us > 0:
                found.append((number, float(row_us[position]) / over_us, int(most[position])))
        return found
