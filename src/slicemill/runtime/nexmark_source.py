"""NEXMark as a Spark data source, for slicemill and for any other Spark program.

    spark.dataSource.register(NexmarkSource)
    spark.readStream.format("nexmark").option("stream", "bid").option("rate", 10_000).load()

An offset is the number of an event, and every value is a hash of its event's number: the same offsets give
the same rows, on whatever machine, in however many partitions. A stream's events may be numbered in an hour
and made again in a year.

Options: `stream` (person, auction, bid), `events` (how many, all three streams together; none: endless),
`rate` (events per second of event time), `start` (event time of the first, µs), `seed`, `partitions`,
`maxEventsPerTrigger`, and `speed`: `rate-limited` (an event appears when the clock has come to it) or
`as fast as possible`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from slicemill.errors import SlicemillError
from slicemill.sources import nexmark

RATE_LIMITED = "rate-limited"
AS_FAST_AS_POSSIBLE = "as fast as possible"

SCHEMAS = {
    "person": "id BIGINT, name STRING, email STRING, city STRING, state STRING, ts TIMESTAMP",
    "auction": "id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMP, "
    "seller BIGINT, category INT, ts TIMESTAMP",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP",
}

_ARROW_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
# An Arrow batch of so many events stays in the processor's cache.
_EVENTS_PER_BATCH = 50_000
# A task for fewer events than this costs more than it saves.
_EVENTS_PER_PARTITION = 20_000
_EVENTS_PER_TRIGGER = 1_000_000


@dataclass(frozen=True, slots=True)
class NexmarkOptions:
    stream: str
    events: int | None
    rate: float
    seed: int
    start_us: int
    limited: bool
    partitions: int
    max_per_trigger: int | None


class EventRange(InputPartition):
    """Events first <= n < last."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last


def nexmark_options(given: Mapping[str, str]) -> NexmarkOptions:
    """Options as Spark passes them, checked; their names are not case-sensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    stream = options.get("stream", "")
    if stream not in nexmark.STREAMS:
        raise SlicemillError(f"NEXMark has no stream {stream!r}; it has {', '.join(nexmark.STREAMS)}")
    speed = options.get("speed", RATE_LIMITED)
    words = speed.lower().replace("-", " ")
    if words not in (RATE_LIMITED.replace("-", " "), AS_FAST_AS_POSSIBLE):
        raise SlicemillError(f"NEXMark's speed is {RATE_LIMITED} or {AS_FAST_AS_POSSIBLE}, not {speed!r}")
    limited = words != AS_FAST_AS_POSSIBLE
    most = _whole(options, "maxeventspertrigger", None if limited else _EVENTS_PER_TRIGGER, least=1)
    return NexmarkOptions(
        stream=stream,
        events=_whole(options, "events", None, least=0),
        rate=_rate(options.get("rate", "10000")),
        seed=_whole(options, "seed", 1) or 0,
        start_us=_whole(options, "start", 0) or 0,
        limited=limited,
        partitions=_whole(options, "partitions", os.cpu_count(), least=1) or 1,
        max_per_trigger=most,
    )


def _whole(
    options: Mapping[str, str], name: str, default: int | None, least: int | None = None
) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise SlicemillError(f"NEXMark's option {name} is a whole number, not {text!r}") from None
    if least is not None and number < least:
        raise SlicemillError(f"NEXMark's option {name} is at least {least}, not {number}")
    return number


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise SlicemillError(f"NEXMark's rate is a number of events per second above 0, not {text!r}")
    return rate


def _ranges(first: int, last: int, partitions: int) -> list[EventRange]:
    count = max(1, min(partitions, (last - first) // _EVENTS_PER_PARTITION))
    edges = [first + (last - first) * part // count for part in range(count + 1)]
    return [EventRange(a, b) for a, b in pairwise(edges) if a < b]


def _batches(options: NexmarkOptions, schema: StructType, events: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(events, EventRange):
        return  # what Spark passes where there is nothing to read
    fields = [pa.field(field.name, _ARROW_TYPES[field.dataType.simpleString()]) for field in schema]
    for first in range(events.first, events.last, _EVENTS_PER_BATCH):
        columns = nexmark.columns(
            options.stream,
            first,
            min(first + _EVENTS_PER_BATCH, events.last),
            seed=options.seed,
            rate=options.rate,
            start_us=options.start_us,
            pick=lambda words, numbers: pa.array(words).take(pa.array(numbers)),
        )
        yield pa.record_batch(
            [pa.array(columns[f.name]).cast(f.type) for f in fields], schema=pa.schema(fields)
        )


class NexmarkSource(DataSource):
    """The `nexmark` format."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> str:
        return SCHEMAS[nexmark_options(self.options).stream]

    def reader(self, schema: StructType) -> DataSourceReader:
        return NexmarkReader(nexmark_options(self.options), schema)

    # Spark passes the schema by name.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return NexmarkStreamReader(nexmark_options(self.options), schema)


class NexmarkReader(DataSourceReader):
    """A finite read: without `events`, as many as the reference engine makes."""

    def __init__(self, options: NexmarkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        events = self._options.events
        return [*_ranges(0, nexmark.FINITE_EVENTS if events is None else events, self._options.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._options, self._schema, partition)


class NexmarkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"event": n, "since_us": t}`: events below n are out; the first one appeared at time t."""

    def __init__(self, options: NexmarkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._since_us: int | None = None
        self._draining = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"event": 0, "since_us": time.time_ns() // 1_000}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        if self._options.events is None and not self._options.limited:
            raise SlicemillError(
                "an endless NEXMark stream that runs as fast as possible has no end to run to; "
                "give it the option events, or another trigger"
            )
        self._draining = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self._since_us = start["since_us"]
        available = self._available(self._since_us)
        if self._draining:
            # What there is when the run starts; events that appear while it runs are for the next one.
            self._target = available if self._target is None else self._target
            available = self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_per_trigger
        if isinstance(limit, ReadAllAvailable) and available is not None:
            most = None
        ends = [
            end for end in (available, None if most is None else start["event"] + most) if end is not None
        ]
        return {"event": max(start["event"], min(ends)), "since_us": self._since_us}

    def _available(self, since_us: int) -> int | None:
        """The number of events that have appeared; None: there is always one more."""
        if not self._options.limited:
            return self._options.events
        elapsed_us = max(0, time.time_ns() // 1_000 - since_us)
        appeared = int(elapsed_us * self._options.rate / 1_000_000)
        return appeared if self._options.events is None else min(appeared, self._options.events)

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        available = None if self._since_us is None else self._available(self._since_us)
        if available is None or self._since_us is None:
            return None
        return {"event": available, "since_us": self._since_us}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [*_ranges(start["event"], end["event"], self._options.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._options, self._schema, partition)
