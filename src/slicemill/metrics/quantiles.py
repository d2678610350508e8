"""Mergeable quantile sketch: counts of values in buckets of increasing width."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_RATIO = 1.02
_LOG_RATIO = math.log(_RATIO)
_LEAST = 1e-6


@dataclass(slots=True)
class Quantiles:
    """Counts by bucket.

    Each bucket is 2 % wider than the previous one, so quantiles are at most 1 % off. Values below 1e-6 (a
    microsecond, for seconds) count as 1e-6.
    """

    counts: dict[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def add(self, values: npt.ArrayLike, times: npt.ArrayLike = 1) -> None:
        """Count values, each `times` times."""
        given = np.maximum(np.atleast_1d(np.asarray(values, np.float64)), _LEAST)
        ranges = np.floor(np.log(given) / _LOG_RATIO).astype(int)
        for index, often in zip(ranges.tolist(), np.broadcast_to(times, ranges.shape).tolist(), strict=True):
            self.counts[index] = self.counts.get(index, 0) + often

    def merge(self, other: Quantiles) -> None:
        for index, often in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + often

    def at(self, share: float) -> float:
        """Return the quantile for this share, NaN without values."""
        left = share * self.count
        for index in sorted(self.counts):
            left -= self.counts[index]
            if left <= 0:
                return math.exp((index + 0.5) * _LOG_RATIO)
        return math.nan
