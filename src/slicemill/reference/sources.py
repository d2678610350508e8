"""Input wrappers: arrivals become stamped tuples in a source's buffer (M1, M24-M27).

An external stream is ordered by its producer's timestamps. A tuple that comes too late for that goes to the
stream's late stream, which is a source like any other; with a slack, tuples are held for that long and put in
order first. The agenda is the list of everything that will happen by itself: arrivals, heartbeats, actions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from slicemill.errors import SlicemillError
from slicemill.reference.buffers import Buffer, Occupancy
from slicemill.reference.ets import Kind, ets_now, moment_of_ets
from slicemill.reference.punctuation import BEGINNING, END, Item, punctuation
from slicemill.rows import Row, Timed


class Arrival(NamedTuple):
    """A row that reaches the engine at `at`; `ts` is its producer's timestamp on an external stream."""

    at: int
    row: Row
    ts: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduledSource:
    """A stream: who stamps it and, if external, how far apart two arrivals may be and how long to reorder."""

    name: str
    kind: Kind = "internal"
    skew_us: int | None = None
    slack_us: int = 0

    @property
    def silence_us(self) -> int | None:
        """How much silence counts for less than it lasts: silence does not take back what a slack allows."""
        return None if self.skew_us is None else max(self.skew_us, self.slack_us)


class ReferenceSource:
    """The wrapper of one stream: `frontier` is how far its time has gone, `told` what its consumers know."""

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
        """The tuples this arrival lets out, in order: mostly itself, none or several under a slack."""
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
        """Whether this arrival can no longer be put in order and belongs in the late stream."""
        return arrival.ts is not None and self.kind == "external" and arrival.ts < self.frontier

    def note_late(self, arrival: Arrival) -> None:
        """A late tuple moves no time, but its stream is not silent."""
        self.late_rows += 1
        self._last_arrival = arrival.at

    def ets(self, now: int) -> int | None:
        """The enabling timestamp this stream can offer at `now`."""
        if self.closed:
            return END
        return ets_now(self.kind, now, self._last_ts, self._last_arrival, self.spec.silence_us)

    def moment_of(self, ts: int) -> int | None:
        """When this stream will be able to offer `ts`."""
        if self.closed:
            return BEGINNING
        return moment_of_ets(ts, self.kind, self._last_ts, self._last_arrival, self.spec.silence_us)

    def pass_time(self, ts: int) -> list[Item]:
        """No tuple below `ts` will be let in from now on; what was held for reordering below it comes out."""
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
        # What the slack held counts from now: a delay that the user asked for is no part of the response.
        return [(timed, at) for timed, _ in self.pass_time(self._last_ts - self.spec.slack_us)]

    def _release(self, ts: int) -> list[Item]:
        out = []
        while self._held and self._held[0][0] <= ts:
            out.append(heapq.heappop(self._held)[2])
        return out


def end_of(source: ReferenceSource, now: int) -> list[Item]:
    """What a source still gives when its input ends: the held tuples, then the ETS of infinity."""
    return [*source.pass_time(END), punctuation(END, now)]


class Lane:
    """Arrivals in order of time, and what to do with each; an endless lane keeps nobody from finishing."""

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
        """Make the arrival after the one at `at` the next."""
        self.next = following = next(self._arrivals, None)
        if following is not None and following.at < at:
            raise SlicemillError(
                f"arrivals of {self._name} go back in time, from {at} to {following.at} µs: sort them"
            )
        return following


class Agenda:
    """All lanes together, by time; lanes added first go first at equal times."""

    __slots__ = ("_finite", "_heap", "_numbers", "next_at")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Lane]] = []
        self._numbers = count()
        self._finite = 0
        self.next_at = END

    @property
    def finished(self) -> bool:
        """Nothing finite is left to happen."""
        return self._finite == 0

    def add(self, lane: Lane) -> None:
        if lane.next is not None:
            heapq.heappush(self._heap, (lane.next.at, next(self._numbers), lane))
            self._finite += not lane.endless
            self.next_at = self._heap[0][0]

    def fire_until(self, now: int) -> None:
        """Let everything happen that is due at `now`."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, number, lane = heap[0]
            arrival = lane.next
            following = lane.fetch(at)
            # Put in order before it fires, since what it does may add lanes.
            if following is not None:
                heapq.heapreplace(heap, (following.at, number, lane))
            else:
                heapq.heappop(heap)
                self._finite -= not lane.endless
            if arrival is not None:
                lane.fire(arrival)
        self.next_at = heap[0][0] if heap else END


def every(period_us: int, start: int) -> Iterator[Arrival]:
    """A heartbeat's moments, without end."""
    for at in count(start + period_us, period_us):
        yield Arrival(at, ())
