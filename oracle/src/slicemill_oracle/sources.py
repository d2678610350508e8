"""Sources: stamp arrivals and append them to buffers (M1, M24-M27).

An external stream is ordered by its producer's timestamps. A late tuple goes to the stream's late stream,
which is a regular source. With a slack, tuples are buffered for that time and sorted first. The agenda lists
all scheduled events: arrivals, heartbeats, actions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from slicemill.errors import SlicemillError
from slicemill.types import Row, Timed
from slicemill_oracle.buffers import Buffer, Occupancy
from slicemill_oracle.ets import Kind, ets_now, moment_of_ets
from slicemill_oracle.punctuation import BEGINNING, END, Item, punctuation


class Arrival(NamedTuple):
    """A row that arrives at `at`, with its external timestamp, if any."""

    at: int
    row: Row
    ts: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduledSource:
    """A stream with its kind of timestamps, maximal skew and slack."""

    name: str
    kind: Kind = "internal"
    skew_us: int | None = None
    slack_us: int = 0

    @property
    def silence_us(self) -> int | None:
        """The silence after which an ETS advances, at least the slack."""
        return None if self.skew_us is None else max(self.skew_us, self.slack_us)


class ReferenceSource:
    """Input wrapper of a stream.

    `frontier` is the stream's current time, `told` the last enabling timestamp that was sent to consumers.
    """

    __slots__ = (
        "_held",
        "_last_arrival",
        "_last_ts",
        "_sequence",
        "closed",
        "frontier",
        "kind",
        "late",
        "late_rows",
        "name",
        "output",
        "spec",
        "told",
    )

    def __init__(
        self, spec: ScheduledSource, occupancy: Occupancy, late: ReferenceSource | None = None
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.kind = spec.kind
        self.output = Buffer(occupancy)
        self.late = late
        self.late_rows = 0
        self.closed = False
        self.frontier = BEGINNING
        self.told = BEGINNING
        self._held: list[tuple[int, int, Item]] = []
        self._sequence = count()
        self._last_ts: int | None = None
        self._last_arrival = 0

    def stamp(self, arrival: Arrival) -> list[Item]:
        """Return the tuples that an arrival releases, in order.

        Without slack this is the arrival itself. With slack there may be several tuples or none.
        """
        if self.closed:
            raise SlicemillError(f"stream {self.name} has ended: it takes no more tuples")
        at = arrival.at
        if self.kind != "external":
            ts = at if at > self.frontier else self.frontier
            self.frontier = ts
            return [(Timed(ts, arrival.row), at)]
        if arrival.ts is None:
            raise SlicemillError(f"stream {self.name} is external: its tuple {arrival.row} needs a timestamp")
        return self._stamp_external(arrival.ts, arrival.row, at)

    def is_late(self, arrival: Arrival) -> bool:
        """Return True if an arrival belongs to the late stream."""
        return arrival.ts is not None and self.kind == "external" and arrival.ts < self.frontier

    def note_late(self, arrival: Arrival) -> None:
        """Count a late tuple, which ends the silence without advancing time."""
        self.late_rows += 1
        self._last_arrival = arrival.at

    def ets(self, now: int) -> int | None:
        """Return the enabling timestamp that this stream can offer at `now`."""
        if self.closed:
            return END
        return ets_now(self.kind, now, self._last_ts, self._last_arrival, self.spec.silence_us)

    def moment_of(self, ts: int) -> int | None:
        """Return the time at which this stream can offer `ts`."""
        if self.closed:
            return BEGINNING
        return moment_of_ets(ts, self.kind, self._last_ts, self._last_arrival, self.spec.silence_us)

    def pass_time(self, ts: int) -> list[Item]:
        """Advance the frontier to `ts`. Return the buffered tuples below it."""
        if ts > self.frontier:
            self.frontier = ts
        self.closed = self.closed or ts == END
        return self._release(ts)

    def _stamp_external(self, ts: int, row: Row, at: int) -> list[Item]:
        if self._last_ts is None or ts > self._last_ts:
            self._last_ts = ts
        self._last_arrival = at
        item = (Timed(ts, row), at)
        if not self.spec.slack_us:
            self.frontier = ts
            return [item]
        heapq.heappush(self._held, (ts, next(self._sequence), item))
        # Latency is measured from the release, since the user requested the delay by the slack.
        return [(timed, at) for timed, _ in self.pass_time(self._last_ts - self.spec.slack_us)]

    def _release(self, ts: int) -> list[Item]:
        out = []
        while self._held and self._held[0][0] <= ts:
            out.append(heapq.heappop(self._held)[2])
        return out


def end_of(source: ReferenceSource, now: int) -> list[Item]:
    """Return a source's remaining tuples and the ETS of infinity."""
    return [*source.pass_time(END), punctuation(END, now)]


class EventLane:
    """Arrivals in time order with their action.

    Endless lanes do not prevent termination.
    """

    __slots__ = ("_arrivals", "_name", "endless", "fire", "next")

    def __init__(
        self, name: str, arrivals: Iterable[Arrival], fire: Callable[[Arrival], None], endless: bool = False
    ) -> None:
        self._name = name
        self._arrivals: Iterator[Arrival] = iter(arrivals)
        self.fire = fire
        self.endless = endless
        self.next: Arrival | None = next(self._arrivals, None)

    def fetch(self, at: int) -> Arrival | None:
        """Advance to the arrival that follows the one at `at`."""
        self.next = following = next(self._arrivals, None)
        if following is not None and following.at < at:
            raise SlicemillError(
                f"arrivals of {self._name} go back in time, from {at} to {following.at} µs: sort them"
            )
        return following


class Agenda:
    """All lanes merged by time. Ties are broken by insertion order."""

    __slots__ = ("_finite", "_heap", "_numbers", "next_at")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, EventLane]] = []
        self._numbers = count()
        self._finite = 0
        self.next_at = END

    @property
    def finished(self) -> bool:
        """True if only endless lanes are left."""
        return self._finite == 0

    def add(self, lane: EventLane) -> None:
        if lane.next is not None:
            heapq.heappush(self._heap, (lane.next.at, next(self._numbers), lane))
            self._finite += not lane.endless
            self.next_at = self._heap[0][0]

    def fire_until(self, now: int) -> None:
        """Fire all events that are due at `now`."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, number, lane = heap[0]
            arrival = lane.next
            following = lane.fetch(at)
            # Reorder before firing, since the action may add lanes.
            if following is not None:
                heapq.heapreplace(heap, (following.at, number, lane))
            else:
                heapq.heappop(heap)
                self._finite -= not lane.endless
            if arrival is not None:
                lane.fire(arrival)
        self.next_at = heap[0][0] if heap else END


def every(period_us: int, start: int) -> Iterator[Arrival]:
    """Yield the times of a heartbeat, endlessly."""
    for at in count(start + period_us, period_us):
        yield Arrival(at, ())
