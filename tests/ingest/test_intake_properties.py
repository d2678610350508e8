"""Decisions of an intake do not depend on batches, restarts or engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.streams import Kept, batches_of, external, rows
from slicemill.ingest.watermarks import watermark
from slicemill.time import BEGINNING
from slicemill_oracle.buffers import Occupancy
from slicemill_oracle.sources import Arrival, ReferenceSource, ScheduledSource

TIMES = st.lists(st.integers(0, 20), min_size=1, max_size=30)
BORDERS = st.sets(st.integers(0, 30), max_size=8)
SLACK = st.integers(0, 8)
SKEW = st.none() | st.integers(0, 8)


def taken(
    times: Sequence[int],
    borders: set[int],
    slack: int,
    skew: int | None = None,
    promised: int = BEGINNING,
    restarts: bool = False,
    wanted: Sequence[bool] | None = None,
) -> Kept:
    kept = Kept(external(slack, skew))
    intake = kept.open()
    for table, arrivals, passed in batches_of(times, borders, wanted):
        kept.keep(intake.admit("", table, arrivals, promised, int(arrivals[-1]), passed=passed))
        intake = kept.open() if restarts else intake
    return kept


def admitted(kept: Kept, skew: int | None) -> list[tuple[int, ...]]:
    """Return the admitted rows; with a SKEW no arrival times, since a poll ends the SLACK of a silence."""
    return kept.admitted if skew is None else [(ts, seq, n) for ts, seq, _, n in kept.admitted]


@given(TIMES, BORDERS, SLACK, SKEW, st.integers(0, 20))
def test_every_division_into_batches_admits_the_same_rows_in_the_same_order(
    times: list[int], borders: set[int], slack: int, skew: int | None, promised: int
) -> None:
    whole, cut = taken(times, set(), slack, skew, promised), taken(times, borders, slack, skew, promised)
    assert admitted(cut, skew) == admitted(whole, skew) and cut.late == whole.late
    assert cut.admitted == sorted(cut.admitted)
    # Late rows are stamped when they are read.
    assert cut.progress | {"side_stamp": 0} == whole.progress | {"side_stamp": 0}
    assert watermark(cut.stream, cut.progress, 99) == watermark(whole.stream, whole.progress, 99)


@given(TIMES, BORDERS, SLACK, SKEW)
def test_a_restart_after_any_batch_changes_no_result(
    times: list[int], borders: set[int], slack: int, skew: int | None
) -> None:
    straight, again = taken(times, borders, slack, skew), taken(times, borders, slack, skew, restarts=True)
    assert admitted(again, skew) == admitted(straight, skew) and again.late == straight.late
    assert again.progress == straight.progress
    straight.keep(straight.open().flush(0))
    assert [seq for _, seq, *_ in straight.admitted] == list(range(len(straight.admitted)))
    assert sorted(n for *_, n in straight.admitted + straight.late) == list(range(len(times)))


@given(TIMES, BORDERS, SLACK, st.lists(st.booleans(), min_size=30, max_size=30))
def test_unwanted_rows_do_not_change_the_admission_of_other_rows(
    times: list[int], borders: set[int], slack: int, wanted: list[bool]
) -> None:
    every, some = taken(times, borders, slack), taken(times, borders, slack, wanted=wanted)
    assert [(ts, n) for ts, *_, n in some.admitted] == [(ts, n) for ts, *_, n in every.admitted if wanted[n]]
    assert some.late == [row for row in every.late if wanted[row[0]]]
    assert some.progress["watermark"] == every.progress["watermark"]


class Event(NamedTuple):
    """Timestamp of a tuple, or an announced watermark."""

    ts: int
    announced: bool


EVENTS = st.lists(
    st.builds(Event, st.integers(0, 20), st.sampled_from([False, False, False, True])), max_size=30
)


@given(EVENTS, SLACK)
def test_the_reference_engine_has_the_same_late_rows_in_the_same_order(
    events: list[Event], slack: int
) -> None:
    source = ReferenceSource(ScheduledSource("s", "external", None, slack), Occupancy())
    kept = Kept(external(slack))
    intake = kept.open()
    admitted, late, announced = [], [], BEGINNING
    for number, event in enumerate(events):
        if event.announced:
            announced = max(announced, event.ts)
            # A cycle announces only watermarks above the time of the source.
            items = source.pass_time(event.ts) if event.ts > source.frontier else []
            kept.keep(intake.admit("", None, number, announced, number))
        else:
            arrival = Arrival(number, (number,), event.ts)
            is_late = source.is_late(arrival)
            late += [number] if is_late else []
            items = [] if is_late else source.stamp(arrival)
            kept.keep(intake.admit("", rows([event.ts], [number]), number, announced, number))
        admitted += [(timed.ts, timed.row[0]) for timed, _ in items]
        # A tuple with the last announced timestamp need not wait for the slack here.
        assert [(ts, n) for ts, _, _, n in kept.admitted][: len(admitted)] == admitted
    assert [n for _, _, n in kept.late] == late
    kept.keep(intake.flush(0))
    admitted += [(timed.ts, timed.row[0]) for timed, _ in source.pass_time(2**63 - 1)]
    assert [(ts, n) for ts, _, _, n in kept.admitted] == admitted


class Read(NamedTuple):
    """Read of a partition, a time after the previous read; without timestamps it found no rows."""

    partition: str
    times: tuple[int, ...]
    later: int = 0
    ends: bool = False


READS = st.lists(
    st.builds(
        Read,
        st.sampled_from("abc"),
        st.lists(st.integers(0, 20), max_size=4).map(tuple),
        st.integers(0, 4),
        st.sampled_from([False] * 9 + [True]),
    ),
    max_size=20,
)


class Model:
    """Model of the rules for partitions, tuple by tuple: admitted rows and late rows."""

    def __init__(self, slack: int, skew: int | None) -> None:
        self.slack, self.skew = slack, skew
        self.mark, self.number, self.clock = BEGINNING, 0, 0
        self.reached: dict[str, int] = {}
        self.arrived: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        self.silent: set[str] = set()
        self.held: list[tuple[int, int]] = []
        self.admitted: list[tuple[int, int]] = []
        self.late: list[int] = []

    def read(self, read: Read) -> None:
        name = read.partition
        self.clock += read.later
        self.asked[name] = self.clock
        for ts in read.times:
            self.silent.discard(name)
            self.arrived[name] = self.clock
            if ts < self.mark or ts < self.reached.get(name, BEGINNING) - self.slack:
                self.late.append(self.number)
            else:
                self.held.append((ts, self.number))
                self.reached[name] = max(ts, self.reached.get(name, ts))
            self.number += 1
            self.move()
        if read.ends or not read.times:
            self.silent.add(name)
            self.move()

    def move(self) -> None:
        """Return the minimum over the partitions that are not silent; the maximum if all are silent."""
        live = [name for name in "abc" if name not in self.silent]
        counted = [name for name in live or "abc" if name in self.reached]
        if counted and len(counted) >= len(live):
            least = min if live else max
            self.mark = max(self.mark, least(self.reached[name] for name in counted) - self.slack)
            if self.skew is not None and len(self.asked) == 3:
                seen, allowed = min(self.asked.values()), max(self.skew, self.slack)
                passed = [self.reached[name] + max(0, seen - self.arrived[name]) for name in counted]
                self.mark = max(self.mark, least(passed) - allowed)
        self.admitted += sorted(row for row in self.held if row[0] <= self.mark)
        self.held = [row for row in self.held if row[0] > self.mark]


@settings(max_examples=300)
@given(READS, SLACK, SKEW, st.booleans())
def test_partitions_follow_the_model_tuple_by_tuple(
    reads: list[Read], slack: int, skew: int | None, restarts: bool
) -> None:
    model, ended = Model(slack, skew), set[str]()
    kept = Kept(external(slack, skew), ("a", "b", "c"))
    intake = kept.open()
    for read in reads:
        if read.partition in ended:
            continue
        first = model.number
        model.read(read)
        batch = rows(read.times, range(first, model.number))
        kept.keep(intake.admit(read.partition, batch, model.clock, BEGINNING, model.clock, ended=read.ends))
        intake = kept.open() if restarts else intake
        ended |= {read.partition} if read.ends else set()
    assert [(ts, n) for ts, _, _, n in kept.admitted] == model.admitted
    assert [seq for seq, _, _ in kept.late] == model.late
