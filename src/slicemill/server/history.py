"""Metrics over time: a ring buffer of samples for each query, and one for the mill."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

QUERY_FIGURES = (
    "rate",
    "p50_ms",
    "p99_ms",
    "slowdown",
    "staleness",
    "rows_waiting",
    "state_bytes",
    "cpu",
    "lag_s",
    "shed",
    "accuracy",
)
MILL_FIGURES = ("rate", "response_ms", "slowdown", "rows_waiting", "cpu")
EVERY_S = 5.0
SAMPLES_KEPT = 360  # half an hour


class FigureRing:
    """Ring buffer of the last samples of some metrics, four bytes per value. A missing value is null."""

    def __init__(self, figures: Sequence[str], kept: int = SAMPLES_KEPT) -> None:
        self.figures = tuple(figures)
        self._kept = kept
        self._at = array("d")
        self._values = array("f")

    @classmethod
    def of(cls, figures: Sequence[str], at_s: array[float], values: array[float]) -> FigureRing:
        """Restore a ring buffer from the arrays that `stored` returned."""
        ring = cls(figures)
        ring._at, ring._values = at_s, values
        return ring

    def stored(self) -> tuple[array[float], array[float]]:
        """Return the sample times and the values, sample by sample."""
        return self._at[-self._kept :], self._values[-self._kept * len(self.figures) :]

    def __len__(self) -> int:
        return len(self._at)

    def add(self, at_s: float, values: Mapping[str, float | None]) -> None:
        self._at.append(at_s)
        for name in self.figures:
            value = values.get(name)
            self._values.append(math.nan if value is None else value)
        if len(self._at) >= 2 * self._kept:  # trim rarely, so that the mean cost of a sample stays small
            width = len(self.figures)
            self._values = self._values[-self._kept * width :]
            self._at = self._at[-self._kept :]

    def columns(self) -> dict[str, list[float | None]]:
        """Return sample times in seconds under `at`, and a column for each metric."""
        count, width = min(len(self._at), self._kept), len(self.figures)
        first = len(self._at) - count
        found: dict[str, list[float | None]] = {"at": [round(at, 3) for at in self._at[first:]]}
        for index, name in enumerate(self.figures):
            found[name] = [_number(value) for value in self._values[first * width + index :: width]]
        return found

    def last(self, name: str) -> float | None:
        """Return the newest value of a metric that is not null."""
        width, index = len(self.figures), self.figures.index(name)
        for place in range(len(self._values) - width + index, -1, -width):
            if not math.isnan(self._values[place]):
                return self._values[place]
        return None


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
