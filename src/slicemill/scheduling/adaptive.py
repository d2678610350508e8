"""Adaptive statistics: selectivities over windows of tuples, batch costs by regression (P21)."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_OVERHEAD = 0.1
"""Minimum overhead, as a share of the shortest recent run.

Noise may tilt a line through runs of similar sizes so far that its overhead is 0. The slowdown relative to
such an ideal time would be unbounded.
"""

_LEAST_S = 1e-6
"""Minimum duration of a run, for coarse clocks."""


@dataclass(slots=True)
class Selectivity:
    """Selectivity of an operator, updated per `window` input tuples.

    A new measurement has the weight `alpha`. If there is no prior value (`is_guess`), it is the ratio of
    the counts until the first window is full. Otherwise the results of the first few tuples would count
    like hundreds.
    """

    value: float
    alpha: float = 0.175
    window: int = 100
    is_guess: bool = False
    _inputs: int = 0
    _outputs: int = 0

    def observe(self, inputs: int, outputs: int) -> bool:
        """Count rows.

        Return True if the value changed, so that priorities must be recomputed.
        """
        self._inputs += inputs
        self._outputs += outputs
        before, is_full = self.value, self._inputs >= self.window
        if self.is_guess:
            # Add one, because windows that have not ended yet may still produce results.
            self.value = (self._outputs + 1) / (self._inputs + 1)
        elif is_full:
            self.value = (1 - self.alpha) * before + self.alpha * self._outputs / self._inputs
        if is_full:
            self.is_guess, self._inputs, self._outputs = False, 0, 0
        return self.value != before


@dataclass(slots=True)
class BatchCost:
    """Time of a run over N rows as a + b·N.

    The line is fitted to past runs with exponential decay. Load of the machine prolongs a run by a factor,
    so relative errors are minimised (weights of 1 / time²). With absolute errors, the noise of large runs
    would hide the overhead, which is most of the time of small runs. The fitted line is then scaled so
    that it matches the total time of all runs, because the weights favour quick runs. Until runs of two
    sizes were seen, the initial values are used for what cannot be determined.
    """

    overhead: float = 0.05
    per_row: float = 1e-6
    decay: float = 0.95
    _runs: float = 0.0
    _rows: float = 0.0
    _time: float = 0.0
    _weight: float = 0.0
    _weighted_rows: float = 0.0
    _weighted_time: float = 0.0
    _weighted_rows_rows: float = 0.0
    _weighted_rows_time: float = 0.0
    _quickest: float = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        keep, seconds = self.decay, max(seconds, _LEAST_S)
        weight = seconds**-2
        self._quickest = min(seconds, self._quickest / keep) if self._runs else seconds
        self._runs = keep * self._runs + 1
        self._rows = keep * self._rows + rows
        self._time = keep * self._time + seconds
        self._weight = keep * self._weight + weight
        self._weighted_rows = keep * self._weighted_rows + weight * rows
        self._weighted_time = keep * self._weighted_time + weight * seconds
        self._weighted_rows_rows = keep * self._weighted_rows_rows + weight * rows * rows
        self._weighted_rows_time = keep * self._weighted_rows_time + weight * rows * seconds
        self._fit()

    def _fit(self) -> None:
        mean_rows, mean_time = self._weighted_rows / self._weight, self._weighted_time / self._weight
        spread = self._weighted_rows_rows / self._weight - mean_rows**2
        if spread > 1e-9 * max(1.0, mean_rows**2):
            slope = (self._weighted_rows_time / self._weight - mean_rows * mean_time) / spread
            self.per_row = max(slope, 0.0)  # a larger run is never cheaper
        self.overhead = max(mean_time - self.per_row * mean_rows, _LEAST_OVERHEAD * self._quickest)
        if mean_rows:
            # The line goes through the mean of the runs for any overhead.
            self.per_row = max(mean_time - self.overhead, 0.0) / mean_rows
        raised = self._time / (self.overhead * self._runs + self.per_row * self._rows)
        self.overhead *= raised
        self.per_row *= raised

    def of(self, rows: float) -> float:
        return self.overhead + self.per_row * rows

    @property
    def mean_rows(self) -> float:
        """Return the recent mean number of rows per run; 1 without data."""
        return max(self._rows / self._runs, 1.0) if self._runs else 1.0

    @property
    def ideal_time(self) -> float:
        """Return T: the time of a run over one row, without other load."""
        return self.of(1)
