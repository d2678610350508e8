"""Generators of test streams (NEXMark, RFID, highway) with deterministic rows.

A generator produces numbered events, and each event has rows. Equal options produce equal rows for an event,
in any partitioning. Events appear at a rate according to the clock, or as fast as they are read. An event of
RFID or of the highway is a time slot (an interval of fixed length), and all rows of the slot appear at its
end.

Common options: `speed` (`rate-limited` or `as fast as possible`), `maxEventsPerTrigger`, `partitions` (number
of tasks if read through Spark), `seed`, `start` (timestamp of the first event, µs). Without `start`, a
rate-limited live stream begins at the current time, and any other stream in 1970.

NEXMark: `stream` (person, auction, bid), `events` (number of events of all three streams; endless by
default), `rate` (events per second). RFID: `tags` (new tags per second), `repeats`, `gap` (ms between two
readings of a tag), `noise` (share of readings), `readers`, `seconds` (duration for which new tags appear).
Highway: `segments`, `days`, `first` (the first day); a slot of five minutes takes a tenth of a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.connectors.generators import highway, nexmark, rfid
from slicemill.connectors.origin import SourceOrigin
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.parquet import check_columns, check_table
from slicemill.ingest.reader import SourceBatch
from slicemill.kernels.arrays import Int64s

RATE_LIMITED = "rate-limited"
AS_FAST_AS_POSSIBLE = "as fast as possible"

_EVENTS_PER_TRIGGER = 1_000_000
_HIGHWAY_SLOTS_PER_SECOND = 10
# Options that have no effect if a test advances a virtual clock.
PACE_OPTIONS = frozenset(("speed", "maxEventsPerTrigger", "partitions"))
_NEXMARK_OPTIONS = frozenset(("stream", "events", "rate", "seed", "start"))
_INSTANT = pa.timestamp("us", tz="UTC")

Columns = Mapping[str, Any]

NEXMARK_FIELDS = {
    "person": pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("email", pa.string()),
            ("city", pa.string()),
            ("state", pa.string()),
            ("ts", _INSTANT),
        ]
    ),
    "auction": pa.schema(
        [
            ("id", pa.int64()),
            ("item", pa.string()),
            ("initial_bid", pa.int64()),
            ("reserve", pa.int64()),
            ("expires", _INSTANT),
            ("seller", pa.int64()),
            ("category", pa.int32()),
            ("ts", _INSTANT),
        ]
    ),
    "bid": pa.schema(
        [
            ("auction", pa.int64()),
            ("bidder", pa.int64()),
            ("price", pa.int64()),
            ("channel", pa.string()),
            ("url", pa.string()),
            ("ts", _INSTANT),
        ]
    ),
}
_RFID_FIELDS = pa.schema([("reader", pa.int32()), ("tag", pa.int64()), ("at", _INSTANT)])
_MEASURES = ("hour", "speed", "volume", "occupancy", "speed_behind", "speed_ahead")
_HIGHWAY_FIELDS = pa.schema(
    [
        ("segment", pa.int32()),
        ("at", _INSTANT),
        *((name, pa.float64()) for name in _MEASURES),
        ("jam", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class EventPace:
    """Limits of a generator: whether a clock limits events, and batch sizes.

    `limited` is True if events appear according to the clock. `max_per_trigger` is the maximum number of
    events for each read. `partitions` is the number of Spark tasks.
    """

    limited: bool
    max_per_trigger: int | None
    partitions: int


@dataclass(frozen=True, slots=True)
class Generator:
    """Generator of a test stream, with events numbered from 0.

    `events` is the number of events, or None without an end. `rate` is the number of events per second.
    `finite` is the number of events for a batch read of an endless generator. The rows of `per_batch` events
    fit into the CPU cache. A Spark task for fewer than `per_task` events costs more time than it saves.
    """

    what: str
    fields: pa.Schema
    events: int | None
    finite: int
    rate: float
    pace: EventPace
    per_batch: int
    per_task: int
    columns: Callable[[int, int], Columns]
    numbers: Callable[[Columns, int, int], Int64s]  # function that returns the event number of each row
    following: Callable[[int], int]  # function that returns the first event with rows, from a number on
    starts_now: bool = False  # True if timestamps begin at the current time
    start_unit_us: int = 1  # unit to which the current time is rounded down

    def rows(self, first: int, last: int, later_us: int = 0) -> tuple[pa.Table, Int64s]:
        """Return the rows of the events first <= n < last, with their event numbers.

        All timestamps are increased by `later_us`.
        """
        columns = self.columns(first, last)
        arrays = [
            pa.array(columns[field.name] + later_us if field.type == _INSTANT else columns[field.name])
            for field in self.fields
        ]
        arrays = [array.cast(field.type) for array, field in zip(arrays, self.fields, strict=True)]
        return pa.table(arrays, schema=self.fields), self.numbers(columns, first, last)

    def present_start_us(self, now_us: int) -> int:
        """Return the first timestamp of a live stream that begins now."""
        return now_us - now_us % self.start_unit_us if self.starts_now else 0


def generator_of(form: str, given: Mapping[str, str]) -> Generator:
    """Return the generator of a format such as nexmark, with case-insensitive options."""
    options = {key.lower(): str(value) for key, value in given.items()}
    generator = GENERATORS[form](options)
    return replace(generator, starts_now=generator.pace.limited and "start" not in options)


def _nexmark(options: Mapping[str, str]) -> Generator:
    stream = options.get("stream", "")
    if stream not in nexmark.STREAMS:
        raise SlicemillError(f"NEXMark has no stream {stream!r}; it has {', '.join(nexmark.STREAMS)}")
    unknown = options.keys() - _NEXMARK_OPTIONS - {name.lower() for name in PACE_OPTIONS}
    if unknown:
        known = ", ".join(sorted(_NEXMARK_OPTIONS))
        raise SlicemillError(f"nexmark:// has no option {', '.join(sorted(unknown))}; it has {known}")
    seed = _whole("NEXMark", options, "seed", 1) or 0
    start_us = _whole("NEXMark", options, "start", 0) or 0
    rate = _rate(options.get("rate", "10000"))

    def columns(first: int, last: int) -> Columns:
        return nexmark.columns(
            stream,
            first,
            last,
            seed=seed,
            rate=rate,
            start_us=start_us,
            pick=lambda words, numbers: pa.array(words).take(pa.array(numbers)),
        )

    return Generator(
        what="NEXMark",
        fields=NEXMARK_FIELDS[stream],
        events=_whole("NEXMark", options, "events", None, least=0),
        finite=nexmark.FINITE_EVENTS,
        rate=rate,
        pace=_pace("NEXMark", options),
        per_batch=50_000,
        per_task=20_000,
        columns=columns,
        numbers=lambda _, first, last: nexmark.event_numbers(stream, first, last),
        following=lambda number: _following(stream, number),
    )


def _following(stream: str, number: int) -> int:
    """Return the first event number of a NEXMark stream that is at least `number`."""
    cycle, offset = divmod(number, nexmark.EVENTS_PER_CYCLE)
    first, last = _OFFSETS[stream]
    if offset > last:
        cycle, offset = cycle + 1, 0
    return cycle * nexmark.EVENTS_PER_CYCLE + max(offset, first)


_OFFSETS = {
    "person": (0, 0),
    "auction": (1, nexmark.AUCTIONS_PER_CYCLE),
    "bid": (nexmark.AUCTIONS_PER_CYCLE + 1, nexmark.EVENTS_PER_CYCLE - 1),
}


def _rfid(options: Mapping[str, str]) -> Generator:
    own = {name: text for name, text in options.items() if name != "stream"}
    tags = rfid.tags_of(options.get("stream", ""), own, ignored=PACE_OPTIONS)
    finite = replace(tags, seconds=rfid.FINITE_SECONDS).slots
    assert finite is not None
    return Generator(
        what="RFID",
        fields=_RFID_FIELDS,
        events=tags.slots,
        finite=finite,
        rate=rfid.SLOTS_PER_SECOND,
        pace=_pace("RFID", options),
        per_batch=100,
        per_task=100,
        columns=tags.readings,
        numbers=lambda columns, _, __: (columns["at"] - tags.start_us) // rfid.SLOT_US,
        following=lambda number: number,
    )


def _highway(options: Mapping[str, str]) -> Generator:
    own = {name: text for name, text in options.items() if name != "stream"}
    road = highway.highway_of(options.get("stream", ""), own, ignored=PACE_OPTIONS)
    return Generator(
        what="The highway",
        fields=_HIGHWAY_FIELDS,
        events=road.slots,
        finite=highway.FINITE_DAYS * highway.SLOTS_PER_DAY,
        rate=_HIGHWAY_SLOTS_PER_SECOND,
        pace=_pace("The highway", options),
        per_batch=highway.SLOTS_PER_DAY,
        per_task=highway.SLOTS_PER_DAY,
        columns=road.rows,
        numbers=lambda _, first, last: np.repeat(np.arange(first, last), road.segments),
        following=lambda number: number,
        start_unit_us=highway.SLOTS_PER_DAY * highway.SLOT_US,
    )


GENERATORS: dict[str, Callable[[Mapping[str, str]], Generator]] = {
    "highway": _highway,
    "nexmark": _nexmark,
    "rfid": _rfid,
}


# -- options of generators --------------------------------------------------------------------------------


def _pace(what: str, options: Mapping[str, str]) -> EventPace:
    speed = options.get("speed", RATE_LIMITED)
    words = speed.lower().replace("-", " ")
    if words not in (RATE_LIMITED.replace("-", " "), AS_FAST_AS_POSSIBLE):
        raise SlicemillError(f"{what}'s speed is {RATE_LIMITED} or {AS_FAST_AS_POSSIBLE}, not {speed!r}")
    limited = words != AS_FAST_AS_POSSIBLE
    default = None if limited else _EVENTS_PER_TRIGGER
    return EventPace(
        limited=limited,
        max_per_trigger=_whole(what, options, "maxeventspertrigger", default, least=1),
        partitions=_whole(what, options, "partitions", os.cpu_count(), least=1) or 1,
    )


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise SlicemillError(f"NEXMark's rate is a number of events per second above 0, not {text!r}")
    return rate


def _whole(
    what: str, options: Mapping[str, str], name: str, default: int | None, least: int | None = None
) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise SlicemillError(f"{what}'s option {name} is an integer, not {text!r}") from None
    if least is not None and number < least:
        raise SlicemillError(f"{what}'s option {name} is at least {least}, not {number}")
    return number


# Reader of generators, whose rows appear according to the clock, or as fast as they are read
#
# An offset is `{"event": n, "since_us": t, "start_us": s}`. Events below n have been read, the clock started
# at t, and s is added to all timestamps (0 in offsets of older versions). After a stop, all events that have
# become due meanwhile appear at once.


_LEAST_AGAIN_US = 5_000
_MOST_AGAIN_US = 1_000_000
_ENDLESS = 2**62


def open_generator(origin: SourceOrigin, wanted: WantedColumns, clock: Callable[[], int]) -> GeneratorReader:
    """Return the reader of a `nexmark://`, `rfid://` or `highway://` source."""
    generator = generator_of(origin.format, origin.options)
    check_columns(wanted.schema, generator.fields.names)
    return GeneratorReader(generator, wanted, clock)


@dataclass(slots=True)
class GeneratorReader:
    """Reader of a generator, with one partition, because events are totally ordered."""

    generator: Generator
    wanted: WantedColumns
    clock: Callable[[], int]

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        now_us = self.clock()
        if offset is None:
            start_us = self.generator.present_start_us(now_us)
            offset = {"event": 0, "since_us": now_us, "start_us": start_us}
        first, since_us = offset["event"], offset["since_us"]
        available = self._available(since_us, now_us)
        last = max(first, min(available, first + self._most(limit_rows)))
        batch = SourceBatch(None, None, {**offset, "event": last}, now_us, last < available, None)
        if first < last:
            table, numbers = self.generator.rows(first, last, offset.get("start_us", 0))
            parsed = check_table(table, self.wanted)
            batch.table = parsed.table if parsed.table.num_rows else None
            batch.errors = parsed.errors
            if self.generator.pace.limited:
                # The arrival time of a row is the time at which it appeared, not the time of the read.
                appeared_us = since_us + (numbers + 1) * (1_000_000 / self.generator.rate)
                batch.arrival_us = np.minimum(appeared_us.astype(np.int64), now_us)[parsed.numbers]
        batch.ended = last == self.generator.events
        batch.again_us = 0 if batch.more else self._pause_us(last, since_us, now_us)
        return batch

    def commit(self, offset: Any) -> None:
        """Do nothing, because events can be generated again."""

    def close(self) -> None:
        """Do nothing, because a generator has no open resource."""

    def _available(self, since_us: int, now_us: int) -> int:
        """Return the number of events that have appeared up to now."""
        events = self.generator.events
        if not self.generator.pace.limited:
            return _ENDLESS if events is None else events
        appeared = int(max(0, now_us - since_us) * self.generator.rate / 1_000_000)
        return appeared if events is None else min(appeared, events)

    def _most(self, limit_rows: int) -> int:
        """Return the maximum number of events per read.

        An event may have several rows.
        """
        most = self.generator.pace.max_per_trigger
        return max(1, limit_rows if most is None else min(limit_rows, most))

    def _pause_us(self, event: int, since_us: int, now_us: int) -> int:
        """Return the time in µs until the next event with rows."""
        following = self.generator.following(event)
        due_us = since_us + int((following + 1) * 1_000_000 / self.generator.rate) + 1
        return min(max(due_us - now_us, _LEAST_AGAIN_US), _MOST_AGAIN_US)
