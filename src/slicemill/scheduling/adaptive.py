"""Statistics that follow the data: selectivities by windows of tuples, batch costs by regression (P21)."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_OVERHEAD = 0.1
"""Of the quickest run of late. Noise can tilt a line through runs of similar sizes until it says that a small
run is free, and a slowdown over a time of nothing is without bounds."""


@dataclass(slots=True)
class Selectivity:
    """An operator's selectivity, renewed after each `window` input tuples with weight `alpha`."""

    value: float
    alpha: float = 0.175
    window: int = 100
    _inputs: int = 0
    _outputs: int = 0

    def observe(self, inputs: int, outputs: int) -> bool:
        """Count; True if the value has changed, so that priorities must be derived anew."""
        self._inputs += inputs
        self._outputs += outputs
        if self._inputs < self.window:
            return False
        before = self.value
        self.value = (1 - self.alpha) * before + self.alpha * self._outputs / self._inputs
        self._inputs = self._outputs = 0
        return self.value != before


@dataclass(slots=True)
class BatchCost:
    """The time of a run over N rows as a + b·N, fitted to past runs, of which older ones count less.

    Until two sizes have been seen the guess stands for what cannot be told apart yet.
    """

    overhead: float = 0.05
    per_row: float = 1e-6
    decay: float = 0.95
    _weight: float = 0.0
    _rows: float = 0.0
    _time: float = 0.0
    _rows_rows: float = 0.0
    _rows_time: float = 0.0
    _quickest: float = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        keep = self.decay
        self._quickest = min(seconds, self._quickest / keep) if self._weight else seconds
        self._weight = keep * self._weight + 1
        self._rows = keep * self._rows + rows
        self._time = keep * self._time + seconds
        self._rows_rows = keep * self._rows_rows + rows * rows
        self._rows_time = keep * self._rows_time + rows * seconds
        mean_rows, mean_time = self._rows / self._weight, self._time / self._weight
        spread = self._rows_rows / self._weight - mean_rows**2
        if spread > 1e-9 * max(1.0, mean_rows**2):
            slope = (self._rows_time / self._weight - mean_rows * mean_time) / spread
            self.per_row = max(slope, 0.0)  # a run never costs less for being larger
        self.overhead = max(mean_time - self.per_row * mean_rows, _LEAST_OVERHEAD * self._quickest)
        if mean_rows:
            # The line goes through the mean of the runs whatever the overhead.
            self.per_row = max(mean_time - self.overhead, 0.0) / mean_rows

    def of(self, rows: float) -> float:
        return self.overhead + self.per_row * rows

    @property
    def ideal_time(self) -> float:
        """T: a run over one row, with nothing else there."""
        return self.of(1)
