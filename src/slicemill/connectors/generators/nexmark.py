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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from slicemill.connectors.generators.paced import EventRange, Pace, PacedStreamReader, pace_of, whole
from slicemill.errors import SlicemillError
from slicemill.sources import nexmark

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
_EVENTS_PER_TASK = 20_000


@dataclass(frozen=True, slots=True)
class NexmarkOptions:
    stream: str
    seed: int
    start_us: int
    pace: Pace


def nexmark_options(given: Mapping[str, str]) -> NexmarkOptions:
    """Options as Spark passes them, checked; their names are not case-sensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    stream = options.get("stream", "")
    if stream not in nexmark.STREAMS:
        raise SlicemillError(f"NEXMark has no stream {stream!r}; it has {', '.join(nexmark.STREAMS)}")
    pace = pace_of(
        "NEXMark",
        options,
        events=whole("NEXMark", options, "events", None, least=0),
        rate=_rate(options.get("rate", "10000")),
        per_task=_EVENTS_PER_TASK,
    )
    return NexmarkOptions(
        stream=stream,
        seed=whole("NEXMark", options, "seed", 1) or 0,
        start_us=whole("NEXMark", options, "start", 0) or 0,
        pace=pace,
    )


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise SlicemillError(f"NEXMark's rate is a number of events per second above 0, not {text!r}")
    return rate


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
            rate=options.pace.rate,
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
        pace = self._options.pace
        return pace.ranges(0, nexmark.FINITE_EVENTS if pace.events is None else pace.events)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._options, self._schema, partition)


class NexmarkStreamReader(PacedStreamReader):
    def __init__(self, options: NexmarkOptions, schema: StructType) -> None:
        super().__init__(options.pace)
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._options, self._schema, partition)
