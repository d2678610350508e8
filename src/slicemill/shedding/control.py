"""The overload detector: from what waits, what it costs and what is kept, the share that can be afforded.

Before each run of a query's unit, all that waits on the machine is added up: what has no budget will be done
in full, and what is left of the lag is for those that have one, by their weights. Under a steady overload
runs settle where a round over all units takes half of the lag: tuples wait for one and are done in the next.

The share falls at once and rises by steps, and what is nearly all is all, so that a load at the limit does
not make it go up and down.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.types.load_budget import LoadBudget

# Of the lag, what is aimed at: runs may take longer than those before them.
_AIM = 0.8
_RISE = 0.1
_NEARLY_ALL = 0.95
# Of the lag, what may be spent however late it is: who drops everything never catches up.
_AT_LEAST = 0.1
_PERIOD = 8


@dataclass(frozen=True, slots=True)
class Backlog:
    """What all that waits on the machine will take: what has to be done anyway, and what may be dropped.

    The second is weighted: the sum of each unit's time times its weight.
    """

    certain_s: float
    weighted_s: float


@dataclass(frozen=True, slots=True)
class WaitingLoad:
    """What waits for a run: how long the oldest has, how much it is, and what is kept now."""

    waited_s: float
    rows: int
    state_bytes: int
    bytes_per_row: float
    backlog: Backlog


@dataclass(slots=True)
class Controller:
    """Of one query, or of several with the same budget; of what can be afforded, each gets by its weight."""

    budget: LoadBudget
    weight: float = 1.0
    share: float = 1.0

    def decide(self, waiting: WaitingLoad) -> float:
        """The share of what waits that is to be taken now."""
        afforded = 1.0
        if self.budget.lag_us is not None:
            afforded = self._in_time(waiting, self.budget.lag_us / 1_000_000)
        if self.budget.memory is not None and waiting.bytes_per_row > 0 and waiting.rows:
            room = max(0, self.budget.memory - waiting.state_bytes)
            afforded = min(afforded, room / (waiting.bytes_per_row * waiting.rows))
        return max(self.budget.least, min(1.0, afforded))

    def _in_time(self, waiting: WaitingLoad, lag_s: float) -> float:
        backlog = waiting.backlog
        allowed_s = max(_AIM * lag_s - waiting.waited_s - backlog.certain_s, _AT_LEAST * lag_s)
        share = self.weight * allowed_s / backlog.weighted_s if backlog.weighted_s > 0 else 1.0
        self.share = min(1.0 if share > _NEARLY_ALL else share, self.share + _RISE, 1.0)
        return self.share


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
