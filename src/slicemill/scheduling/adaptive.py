"""Statistics that follow the data: selectivities by windows of tuples, batch costs by regression (P21)."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_OVERHEAD = 0.1
"""Of the quickest run of late. Noise can tilt a line through runs of similar sizes until it says that a small
run is free, and a slowdown over a time of nothing is without bounds."""

_LEAST_S = 1e-6
"""No run takes less, whatever a coarse clock says."""


@dataclass(slots=True)
class Selectivity:
    """An operator's selectivity, renewed after each `window` input tuples with weight `alpha`.

    Where nothing was known before (`is_guess`), it is what has been counted until the first window is full:
    the results of the first few tuples would count for hundreds.
    """

    value: float
    alpha: float = 0.175
    window: int = 100
    is_guess: bool = False
    _inputs: int = 0
    _outputs: int = 0

    def observe(self, inputs: int, outputs: int) -> bool:
        """Count; True if the value has changed, so that priorities must be derived anew."""
        self._inputs += inputs
        self._outputs += outputs
        before, is_full = self.value, self._inputs >= self.window
        if self.is_guess:
            # One more, for windows that have not ended yet: nothing so far is not nothing ever.
            self.value = (self._outputs + 1) / (self._inputs + 1)
        elif is_full:
            self.value = (1 - self.alpha) * before + self.alpha * self._outputs / self._inputs
        if is_full:
            self.is_guess, self._inputs, self._outputs = False, 0, 0
        return self.value != before


@dataclass(slots=True)
class BatchCost:
    """The time of a run over N rows as a + b·N, fitted to past runs, of which older ones count less.

    A busy machine makes a run longer by some share of it, so what is made small are relative errors (weights
    of 1 / time²): with absolute ones the noise of a large run drowns the overhead, which is most of what a
    small run takes. The line so found is then raised until it comes to the time that all runs took together,
    which the weights of quick runs would let it stay below. Until two sizes have been seen the guess stands
    for what cannot be told apart yet.
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
            self.per_row = max(slope, 0.0)  # a run never costs less for being larger
        self.overhead = max(mean_time - self.per_row * mean_rows, _LEAST_OVERHEAD * self._quickest)
        if mean_rows:
            # The line goes through the mean of the runs whatever the overhead.
            self.per_row = max(mean_time - self.overhead, 0.0) / mean_rows
        raised = self._time / (self.overhead * self._runs + self.per_row * self._rows)
        self.overhead *= raised
        self.per_row *= raised

    def of(self, rows: float) -> float:
        return self.overhead + self.per_row * rows

    @property
    def mean_rows(self) -> float:
        """How large runs were of late; 1 before there was any."""
        return max(self._rows / self._runs, 1.0) if self._runs else 1.0

    @property
    def ideal_time(self) -> float:
        """T: a run over one row, with nothing else there."""
        return self.of(1)
