"""Generators as Spark streams: numbered events that appear by the clock, or as fast as they are taken.

An offset is the number of an event. Whoever makes events from their numbers alone gets a stream that Spark
can replay, on whatever machine, in however many partitions.

Options of all generators: `partitions`, `maxEventsPerTrigger`, and `speed`: `rate-limited` (an event appears
when the clock has come to it) or `as fast as possible`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from slicemill.errors import SlicemillError

RATE_LIMITED = "rate-limited"
AS_FAST_AS_POSSIBLE = "as fast as possible"

_EVENTS_PER_TRIGGER = 1_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """How many events there are (None: endless), how fast they appear and how they are shared out.

    A task for fewer than `per_task` events costs more than it saves.
    """

    what: str
    events: int | None
    rate: float
    limited: bool
    partitions: int
    max_per_trigger: int | None
    per_task: int

    def ranges(self, first: int, last: int) -> list[InputPartition]:
        """Events first <= n < last, shared out to tasks."""
        count = max(1, min(self.partitions, (last - first) // self.per_task))
        edges = [first + (last - first) * part // count for part in range(count + 1)]
        return [EventRange(a, b) for a, b in pairwise(edges) if a < b]


class EventRange(InputPartition):
    """Events first <= n < last."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last


def pace_of(what: str, given: Mapping[str, str], *, events: int | None, rate: float, per_task: int) -> Pace:
    """The options that all generators have, checked; their names are not case-sensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    speed = options.get("speed", RATE_LIMITED)
    words = speed.lower().replace("-", " ")
    if words not in (RATE_LIMITED.replace("-", " "), AS_FAST_AS_POSSIBLE):
        raise SlicemillError(f"{what}'s speed is {RATE_LIMITED} or {AS_FAST_AS_POSSIBLE}, not {speed!r}")
    limited = words != AS_FAST_AS_POSSIBLE
    default = None if limited else _EVENTS_PER_TRIGGER
    return Pace(
        what=what,
        events=events,
        rate=rate,
        limited=limited,
        partitions=whole(what, options, "partitions", os.cpu_count(), least=1) or 1,
        max_per_trigger=whole(what, options, "maxeventspertrigger", default, least=1),
        per_task=per_task,
    )


def whole(
    what: str, options: Mapping[str, str], name: str, default: int | None, least: int | None = None
) -> int | None:
    """An option that is a whole number; `options` has its names in lower case."""
    text = options.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise SlicemillError(f"{what}'s option {name} is a whole number, not {text!r}") from None
    if least is not None and number < least:
        raise SlicemillError(f"{what}'s option {name} is at least {least}, not {number}")
    return number


class PacedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"event": n, "since_us": t}`: events below n are out; the first one appeared at time t."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._since_us: int | None = None
        self._draining = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"event": 0, "since_us": time.time_ns() // 1_000}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._pace.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        if self._pace.events is None and not self._pace.limited:
            raise SlicemillError(
                f"an endless {self._pace.what} stream that runs as fast as possible has no end to run to; "
                "say how long it is, or give it another trigger"
            )
        self._draining = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self._since_us = start["since_us"]
        available = self._available(self._since_us)
        if self._draining:
            # What there is when the run starts; events that appear while it runs are for the next one.
            self._target = available if self._target is None else self._target
            available = self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._pace.max_per_trigger
        if isinstance(limit, ReadAllAvailable) and available is not None:
            most = None
        ends = [
            end for end in (available, None if most is None else start["event"] + most) if end is not None
        ]
        return {"event": max(start["event"], min(ends)), "since_us": self._since_us}

    def _available(self, since_us: int) -> int | None:
        """The number of events that have appeared; None: there is always one more."""
        if not self._pace.limited:
            return self._pace.events
        elapsed_us = max(0, time.time_ns() // 1_000 - since_us)
        appeared = int(elapsed_us * self._pace.rate / 1_000_000)
        return appeared if self._pace.events is None else min(appeared, self._pace.events)

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        available = None if self._since_us is None else self._available(self._since_us)
        if available is None or self._since_us is None:
            return None
        return {"event": available, "since_us": self._since_us}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._pace.ranges(start["event"], end["event"])
