"""Overload detector: computes the share of tuples that can be processed in time.

Before each run of a query's unit, the pending work of the machine is added up. Work of queries without a
budget is done in full. The rest of the permitted lag is divided among queries with a budget, by weight.
Under constant overload, a round over all units takes half of the lag: tuples wait for one round and are
processed in the next.

The share falls at once and rises in steps. A share close to 1 counts as 1, so that it does not oscillate
at the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.types.load_budget import LoadBudget

# The target, as a share of the lag. A run may take longer than the previous one.
_AIM = 0.8
_RISE = 0.1
_NEARLY_ALL = 0.95
# Minimum time per round, as a share of the lag. Dropping everything would never catch up.
_AT_LEAST = 0.1
_PERIOD = 8


@dataclass(frozen=True, slots=True)
class Backlog:
    """Pending work of the machine: what cannot be dropped, and what may be.

    The second is weighted: it is the sum of each unit's time multiplied by its weight.
    """

    certain_s: float
    weighted_s: float


@dataclass(frozen=True, slots=True)
class WaitingLoad:
    """Pending input of a run, and the current state size."""

    waited_s: float
    rows: int
    state_bytes: int
    bytes_per_row: float
    backlog: Backlog


@dataclass(slots=True)
class Controller:
    """Share controller of one query, or of several with the same budget.

    Each of them gets a part of the available time by its weight.
    """

    budget: LoadBudget
    weight: float = 1.0
    share: float = 1.0

    def decide(self, waiting: WaitingLoad) -> float:
        """Return the share of the pending tuples to process now."""
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
    """Converter of a share into spans of skipped windows.

    A span (first, last] covers the windows with these ends. Skipping a window saves only tuples that no
    other window needs, so a span must be long compared with the range. Its length is the skipped share of
    a period of eight ranges, plus one range.
    """

    range_us: int
    spans: tuple[tuple[int, int], ...] = ()
    next_us: int | None = None

    def plan(self, share: float, first_us: int) -> tuple[tuple[int, int], ...]:
        """Return the spans that affect tuples from `first_us` on.

        A new span is added when the last period is over.
        """
        self.spans = tuple(span for span in self.spans if span[1] + self.range_us >= first_us)
        if share < 1 and (self.next_us is None or first_us >= self.next_us):
            period = _PERIOD * self.range_us
            length = min(period, round((1 - share) * period) + self.range_us)
            self.spans = (*self.spans, (first_us, first_us + length))
            self.next_us = first_us + period
        return self.spans
