"""The overload detector: from what waits, what it costs and what is kept, the share that can be afforded.

Two things are watched before each run of a query's unit. What waits must be done within the lag that the
query allows: a run that would take longer takes less. And if tuples have waited for most of that lag before
their run even begins, more comes than is done, here or elsewhere on the machine: the share falls by steps
until it does not, and rises again when they wait for less than half as long. Between the two nothing changes,
so that a load at the limit does not make the share go up and down.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.shedding.load import LoadBudget

_HIGH = 0.6
_LOW = 0.3
_FALL = 0.7
_RISE = 0.1
# Of the lag, what a run may take however late it begins: who drops everything never catches up.
_AT_LEAST = 0.25
_PERIOD = 8


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for a run: how long the oldest has, how much it is, what it costs, and what is kept now."""

    waited_s: float
    rows: int
    overhead_s: float
    per_row_s: float
    state_bytes: int
    bytes_per_row: float


@dataclass(slots=True)
class Controller:
    """Of one query, or of several with the same budget; those of more weight give up less at a time."""

    budget: LoadBudget
    weight: float = 1.0
    share: float = 1.0

    def decide(self, waiting: Waiting) -> float:
        """The share of what waits that is to be taken now."""
        afforded = 1.0
        if self.budget.lag_us is not None:
            afforded = self._in_time(waiting, self.budget.lag_us / 1_000_000)
        if self.budget.memory is not None and waiting.bytes_per_row > 0 and waiting.rows:
            room = max(0, self.budget.memory - waiting.state_bytes)
            afforded = min(afforded, room / (waiting.bytes_per_row * waiting.rows))
        return max(self.budget.least, min(1.0, afforded))

    def _in_time(self, waiting: Waiting, lag_s: float) -> float:
        if waiting.waited_s > _HIGH * lag_s:
            self.share = max(self.budget.least, self.share * _FALL ** (1 / self.weight))
        elif waiting.waited_s < _LOW * lag_s:
            self.share = min(1.0, self.share + _RISE)
        allowed_s = max(lag_s - waiting.waited_s - waiting.overhead_s, _AT_LEAST * lag_s)
        needed_s = waiting.rows * waiting.per_row_s
        return self.share if needed_s <= allowed_s else min(self.share, allowed_s / needed_s)


@dataclass(slots=True)
class Skipper:
    """Turns a share into spans of skipped windows, each by the ends (first, last] of its windows.

    To skip windows saves only the tuples that no other window needs, so a span is long against the range: of
    a period of eight ranges, the share that cannot be afforded and one range more.
    """

    range_us: int
    spans: tuple[tuple[int, int], ...] = ()
    next_us: int | None = None

    def plan(self, share: float, first_us: int) -> tuple[tuple[int, int], ...]:
        """The spans that matter to tuples from `first_us` on, with a new one if the last period is over."""
        self.spans = tuple(span for span in self.spans if span[1] + self.range_us >= first_us)
        if share < 1 and (self.next_us is None or first_us >= self.next_us):
            period = _PERIOD * self.range_us
            length = min(period, round((1 - share) * period) + self.range_us)
            self.spans = (*self.spans, (first_us, first_us + length))
            self.next_us = first_us + period
        return self.spans
