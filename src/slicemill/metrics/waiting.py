"""Rows that wait at units: the average over time, and by recent time bucket (P29)."""

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
    """Units by position. Rows are counted again and again; in between as many waited as at the last time."""

    def __init__(self, count: int, now_us: int) -> None:
        self._since_us = np.full(count, now_us)
        self._counted_us = now_us
        self._row_us = np.zeros(count)
        self._most = np.zeros(count, np.int64)
        # By bucket, the time that rows waited in it, and the most rows.
        self._buckets: dict[int, tuple[npt.NDArray[np.float64], Counts]] = {}

    def take_over(self, before: WaitingRows, positions: Mapping[int, int]) -> None:
        """Go on from what was known of units, whose positions were others."""
        here, there = np.array(list(positions.items()), np.intp).reshape(-1, 2).T
        for name in ("_since_us", "_row_us", "_most"):
            getattr(self, name)[here] = getattr(before, name)[there]
        for number, (row_us, most) in before._buckets.items():
            for own, known in zip(self._bucket(number), (row_us, most), strict=True):
                own[here] = known[there]

    def passed(self, rows: Counts, now_us: int) -> None:
        """These rows have waited since the last time."""
        self._add(slice(None), rows, self._counted_us, now_us)
        self._counted_us = now_us

    def came(self, positions: Positions, rows: int, at_us: int) -> None:
        """So many rows, which are counted from now on, have waited since then at some units."""
        self._add(positions, rows, at_us, self._counted_us)

    def now(self, rows: Counts) -> None:
        """So many rows wait now."""
        np.maximum(self._most, rows, out=self._most)
        most = self._bucket(int(self._counted_us // _BUCKET_US))[1]
        np.maximum(most, rows, out=most)

    def _add(self, where: slice | Positions, rows: Counts | int, begin_us: int, end_us: int) -> None:
        if end_us <= begin_us:
            return
        self._row_us[where] += rows * (end_us - begin_us)
        # A clock may jump by years, of which few buckets are kept.
        kept_us = max(begin_us, end_us - BUCKETS_KEPT * int(_BUCKET_US))
        for number, length_us in stretches(kept_us, end_us, _BUCKET_US):
            row_us, most = self._bucket(number)
            row_us[where] += rows * length_us
            most[where] = np.maximum(most[where], rows)

    def _bucket(self, number: int) -> tuple[npt.NDArray[np.float64], Counts]:
        if number not in self._buckets:
            count = len(self._most)
            # Others may read meanwhile: what they see is left as it is.
            kept = {known: self._buckets[known] for known in self._buckets if known > number - BUCKETS_KEPT}
            self._buckets = {**kept, number: (np.zeros(count), np.zeros(count, np.int64))}
        return self._buckets[number]

    def of(self, position: int) -> tuple[float, int]:
        """Rows that wait at a unit: on average over time, and at most."""
        over_us = self._counted_us - int(self._since_us[position])
        mean = float(self._row_us[position]) / over_us if over_us > 0 else 0.0
        return mean, int(self._most[position])

    def by_bucket(self, position: int) -> list[tuple[int, float, int]]:
        """Buckets in which rows waited at a unit: number, how many on average, and at most."""
        found = []
        for number, (row_us, most) in self._buckets.items():
            begin_us = max(number * _BUCKET_US, float(self._since_us[position]))
            over_us = min((number + 1) * _BUCKET_US, self._counted_us) - begin_us
            if most[position] and over_us > 0:
                found.append((number, float(row_us[position]) / over_us, int(most[position])))
        return found
